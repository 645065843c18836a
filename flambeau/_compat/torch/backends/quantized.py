"""Libraries of quantized kernels by the names that PyTorch has for them: here all of them are the same kernels."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

engine = "x86"
supported_engines = ["qnnpack", "onednn", "x86", "fbgemm"]


class _Engines(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "engine" and value not in (*supported_engines, "none"):
            raise RuntimeError(f"[backends.quantized] expected one of {', '.join(supported_engines)}, got {value!r}")
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Engines
