"""Where in a model an error happened: the path of the layer and what it was given, added to the error's message.

The native call of a module asks here when an operator has refused its arguments (its message begins with the operator in
brackets). The innermost module says what it is; each module around it puts the way to it in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau._C import Tensor

_KINDS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)


@dataclass
class Place:
    """How far the way from the innermost module outwards is known."""

    module: Any  # the outermost module so far
    path: str  # from it to the innermost one
    message: str  # of the error itself
    layer: str  # the innermost module, and what it was given


def locate(module: Any, error: BaseException, args: tuple[Any, ...]) -> None:
    """Add one module to what the message says of the place."""
    if not isinstance(error, _KINDS) or not error.args or not isinstance(error.args[0], str):
        return
    place = getattr(error, "_place", None)
    if place is None:
        if not error.args[0].startswith("["):
            return
        place = Place(module, "", error.args[0], _described(module, args))
        vars(error)["_place"] = place
    else:
        name = next((name for name, child in module.named_modules() if child is place.module and name), "...")
        place.module, place.path = module, f".{name}{place.path}"
    where = f"{type(module).__name__}{place.path}: " if place.path else ""
    error.args = (f"{place.message}\n  in {where}{place.layer}", *error.args[1:])


def _described(module: Any, args: tuple[Any, ...]) -> str:
    """A layer as it prints, or the class of a module of others; and the shapes it was called with."""
    options = "" if module._modules else f"({module.extra_repr()})"
    described = [str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__ for value in args]
    return f"{type(module).__name__}{options} got input {', '.join(described) or 'by name'}"
