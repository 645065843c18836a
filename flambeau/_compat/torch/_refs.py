"""The operators under the names of PyTorch's reference implementations, `torch._refs.sum` and the like.

There, they are written in Python to define what the native ones compute. Here, an operator is written once: its record is the
reference, so each name stands for the operator itself.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import flambeau

_HOMES = {
    "": lambda: (flambeau, flambeau.nn.functional, flambeau.special, flambeau.Tensor),
    "nn": lambda: (),
    "nn.functional": lambda: (flambeau.nn.functional,),
    "special": lambda: (flambeau.special,),
    "linalg": lambda: (flambeau.linalg,),
    "fft": lambda: (flambeau.fft,),
    "_conversions": lambda: (flambeau.Tensor,),
}


class References(ModuleType):
    """A module whose functions are found, when they are asked for, where the library has them."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            place = self.__name__.partition("._refs")[2].lstrip(".")
            inner = f"{place}.{name}".lstrip(".")
            if inner in _HOMES:
                return sys.modules[f"{self.__name__}.{name}"]
            for home in _HOMES[place]():
                value = getattr(home, name, None)
                if callable(value) and not isinstance(value, type):
                    return value
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = References
__path__: list[str] = []  # the modules below are not files
for _place in filter(None, _HOMES):
    sys.modules[f"{__name__}.{_place}"] = References(f"{__name__}.{_place}")
sys.modules[f"{__name__}.nn"].__path__ = []


def prod(a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The product along some dimensions, of which the operator takes one."""
    if dim is None or isinstance(dim, int):
        return flambeau.prod(a, dtype=dtype) if dim is None else flambeau.prod(a, dim, keepdim, dtype=dtype)
    rank = max(a.dim(), 1)
    dims = [d % rank if -rank <= d < rank else d for d in dim] or list(range(a.dim()))
    if len(set(dims)) != len(dims):
        raise RuntimeError(
            f"[prod] expected each dimension once, got {tuple(dim)}: duplicate value in the list of dims"
        )
    for d in sorted(dims, reverse=True):
        a = flambeau.prod(a, d, keepdim, dtype=dtype)
    return a
