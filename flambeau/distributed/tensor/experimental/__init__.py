"""Distributed tensors beside their operators: plain tensors among them, and functions of the local parts."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau.distributed.tensor import _dispatch, _rules
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor.experimental._attention import context_parallel
from flambeau.distributed.tensor.placement_types import Placement
from flambeau.utils import _pytree as pytree

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]


def register_sharding(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of a function that takes an operator's arguments and lists (output placements, input placements) which
    the operator accepts along one mesh dimension; arguments that are no tensors have None."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for one in op if isinstance(op, (list, tuple)) else [op]:
            _rules.registered[_dispatch._name(one)] = rule
        return rule

    return register


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A `with` block in which plain tensors beside distributed ones count as replicated."""
    before, _dispatch.implicit_replication = _dispatch.implicit_replication, True
    try:
        yield
    finally:
        _dispatch.implicit_replication = before


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: Any = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """A function of local parts as a function of distributed tensors."""
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements,
            in_grad_placements=in_grad_placements, device_mesh=device_mesh, redistribute_inputs=redistribute_inputs,
        )  # fmt: skip

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        mesh = device_mesh
        values, structure = pytree.tree_flatten(args)
        for index, value in enumerate(values):
            if isinstance(value, DTensor):
                mesh = mesh or value.device_mesh
                wanted = None if in_placements is None else in_placements[index]
                if wanted is not None and tuple(wanted) != value.placements:
                    if not redistribute_inputs:
                        raise ValueError(
                            f"[local_map] arg {value} in local_map has a mismatched placements: arg placements is "
                            f"{value.placements} but the input placements is {wanted}! If redistribution is desired, set "
                            "redistribute_inputs=True."
                        )
                    value = value.redistribute(placements=wanted)
                gradient = None if in_grad_placements is None else in_grad_placements[index]
                values[index] = value.to_local(grad_placements=gradient)
        result = func(*pytree.tree_unflatten(values, structure), **kwargs)
        if mesh is None:
            return result
        outputs, structure = pytree.tree_flatten(result)
        placements = _for_each(out_placements, len(outputs))
        wrapped_outputs = [
            DTensor.from_local(value, mesh, own) if isinstance(value, flambeau.Tensor) and own is not None else value
            for value, own in zip(outputs, placements)
        ]
        return pytree.tree_unflatten(wrapped_outputs, structure)

    return wrapped


def _for_each(out_placements: Any, count: int) -> list[Any]:
    """The placements of each output: a list of placements is those of the only one, a tuple has one entry for each."""
    several = isinstance(out_placements, tuple) and not (out_placements and isinstance(out_placements[0], Placement))
    listed = list(out_placements) if several else [out_placements]
    if len(listed) != count:
        raise AssertionError(
            f"[local_map] local_map requires one PlacementType be provided for each output value, received {len(listed)} "
            f"out_placements but {count} is expected!"
        )
    return listed
