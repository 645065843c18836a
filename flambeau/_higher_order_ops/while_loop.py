"""`while_loop`: a function applied as long as a condition holds."""

from __future__ import annotations

from typing import Any

__all__ = ["while_loop"]


def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """A function applied to values again and again, as long as a condition on them holds.

    >>> flambeau._higher_order_ops.while_loop(lambda i: i < 3, lambda i: (i + 1,), (flambeau.tensor(0),))
    (tensor(3),)
    """
    values = tuple(carried_inputs)
    while cond_fn(*values):
        values = body_fn(*values)
        values = values if isinstance(values, tuple) else tuple(values) if isinstance(values, list) else (values,)
    return values
