"""Helpers beside the tensor library. Submodules are imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_FUNCTIONS = {
    "swap_tensors": "swapping",
    "rename_privateuse1_backend": "backend_registration",
    "generate_methods_for_privateuse1_backend": "backend_registration",
}


def __getattr__(name: str) -> Any:
    if name == "cmake_prefix_path":  # for find_package(flambeau) and find_package(Torch)
        return __file__.rsplit("/", 2)[0] + "/share/cmake"
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
