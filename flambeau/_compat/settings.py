"""Settings and arguments of PyTorch's that nothing here reads: giving one a value is answered instead of ignored."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import Any


class _Fixed(ModuleType):
    """A module some of whose variables keep their values."""

    def __setattr__(self, name: str, value: Any) -> None:
        names, why, refuse = self.__dict__["_fixed"]
        if name in names and value != self.__dict__[name]:
            message = f"[{self.__name__}] expected {name} to stay {self.__dict__[name]!r}, got {value!r}: {why}"
            if refuse:
                raise NotImplementedError(message)
            warnings.warn(message, stacklevel=2)
        super().__setattr__(name, value)


def refuse(function: str, **arguments: Any) -> None:
    """Raise for the first of these arguments that asks for something."""
    for name, value in arguments.items():
        if value:
            raise NotImplementedError(f"[{function}] expected no {name}, got {value!r}")


def fix(module: str, names: str, why: str, refuse: bool = True) -> None:
    """Assigning another value to one of these settings is an error; or a warning, where the results are the same."""
    loaded = sys.modules[module]
    loaded.__dict__["_fixed"] = (frozenset(names.split()), why, refuse)
    loaded.__class__ = _Fixed
