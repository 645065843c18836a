"""Settings for reproducible runs: whether memory of new tensors is filled while deterministic algorithms are asked for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from flambeau import _settings


class _Deterministic(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        return _settings._state["fill"]

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, on: Any) -> None:
        if not isinstance(on, bool):
            raise RuntimeError(
                f"[fill_uninitialized_memory] expected a bool, got {type(on).__name__}: expected a bool, but got {type(on).__name__}"
            )
        _settings._state["fill"] = on
        _settings._tell_fill()


sys.modules[__name__].__class__ = _Deterministic
