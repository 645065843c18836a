"""Whether a function is being transformed by `torch.func`, where parts of the stateful autograd API are refused.

The counts are in lists, which capture can follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_inside = [0]  # functions that are being transformed
levels = [0]  # transformations among them that differentiate
hooks = [0]  # saved_tensors_hooks that are active

NO_HOOKS = "[func] expected no saved tensor hooks, got some: torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks"


def is_inside() -> bool:
    """Whether the caller runs inside of a function that is being transformed."""
    return _inside[0] > 0


def call_inside(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the function that a transform was given."""
    _inside[0] += 1
    try:
        return function(*args, **kwargs)
    finally:
        _inside[0] -= 1


def refuse(what: str, instead: str) -> None:
    """Raises inside of a transform: what is called is of the API that changes tensors, or uses the graph of the caller."""
    if is_inside():
        raise RuntimeError(
            f"[{what}] expected to be called outside of functions that torch.func transforms, got a call inside of one: You are "
            f"attempting to call {what} inside of a function being transformed by a functorch transform. {instead}"
        )
