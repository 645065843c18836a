"""`functorch.compile`: the names under which older programs reach for ahead-of-time autograd."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "aot_function": "_functorch.aot_autograd", "aot_module": "_functorch.aot_autograd",
    "aot_module_simplified": "_functorch.aot_autograd", "make_boxed_func": "_functorch.aot_autograd",
    "make_boxed_compiler": "_functorch.aot_autograd", "default_partition": "_functorch.partitioners",
    "min_cut_rematerialization_partition": "_functorch.partitioners",
}  # fmt: skip
__all__ = ["nop"]


def nop(fx_g: Any, _: Any) -> Any:
    """A compiler that changes nothing."""
    return fx_g


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module("flambeau." + _HOMES[name]), name)
    if name in ("compiled_function", "compiled_module"):
        return __getattr__(name.replace("compiled", "aot"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
