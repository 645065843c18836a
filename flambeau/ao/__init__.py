"""What PyTorch keeps under `ao`: quantization in eager mode, and the modules that it makes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau._compat import absent

_MODULES = ("nn", "ns", "quantization")
_absent = absent.names_of(__name__)


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}") if name in _MODULES else _absent(name)
