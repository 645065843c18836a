"""The transformations of `torch.func` under the module that older programs import them from."""

from __future__ import annotations

from typing import Any

from flambeau.func.transforms import (  # noqa: F401
    _chosen,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
)


def _slice_argnums(args: tuple[Any, ...], argnums: Any, as_tuple: bool = True) -> Any:
    """The arguments that argnums names."""
    positions = _chosen(argnums, args, "grad")
    if isinstance(argnums, int):
        return (args[positions[0]],) if as_tuple else args[positions[0]]
    return tuple(args[i] for i in positions)
