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
