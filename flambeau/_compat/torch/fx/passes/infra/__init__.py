"""What passes are made of: the base class, and the manager that runs several."""

from __future__ import annotations

import importlib

_MODULES = ("partitioner", "pass_base", "pass_manager")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
