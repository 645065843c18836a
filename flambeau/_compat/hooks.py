"""Libraries that take tensors of flambeau without the alias: what is added to a module of theirs when it is imported."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

# The module that is changed -> the module here whose `add` changes it.
HOOKED = {"einops._backends": "einops_backend", "safetensors.torch": "safetensors_backend"}


class _Loader:
    """Loads a module as its own loader does, then adds to it."""

    def __init__(self, loader: Any, name: str) -> None:
        self.loader, self.name = loader, name

    def create_module(self, spec: Any) -> ModuleType | None:
        return self.loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        add(self.name, module)


def spec(name: str, path: Any) -> Any:
    """The module's own spec, with the loader that adds to it; None where the library is not found."""
    own = PathFinder.find_spec(name, path)
    if own is not None:
        own.loader = _Loader(own.loader, name)  # type: ignore[assignment]
    return own


def add(name: str, module: ModuleType) -> None:
    import_module(f"flambeau._compat.{HOOKED[name]}").add(module)


def add_to_loaded() -> None:
    for name in HOOKED:
        if name in sys.modules:
            add(name, sys.modules[name])
