"""Backwards of the user's own functions that look at values: one call of the record, which runs them as they are.

The derivative of an autograd.Function or of an operator of `library` is ordinary Python. Where it cannot run on tensors
without data (it loops over the sizes of groups, say), what the recorder saw of it is dropped and a call of one private
operator entered instead. Its arguments are the tensors that the context holds and the gradients of the results; it gives
the gradients of all inputs that want one, laid out as the inputs are.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import flambeau as fl
from flambeau.library import Library

_NAME = "flambeau_opaque::backward"
_OWN = frozenset(("_geometry", "_node", "_outputs", "_positions", "_saved", "to_save"))  # of contexts
_number = itertools.count()


class Slot(NamedTuple):
    """Where a tensor of a context was."""

    place: int


class Derivative(NamedTuple):
    """What a call needs besides tensors."""

    context: type
    function: Any
    attributes: dict[str, Any]
    saved: tuple[Any, ...]
    grads: tuple[Any, ...]
    wanted: tuple[Any, ...]  # of each input: the geometry of its gradient, or None


_derivatives: dict[int, Derivative] = {}


def enter(ctx: Any, function: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of the inputs of a function of the user's, by a call of the operator."""
    operator = _operator()
    tensors: list[Any] = []

    def take(value: Any) -> Any:
        if isinstance(value, fl.Tensor):
            tensors.append(value)
            return Slot(len(tensors) - 1)
        return _within(value, take)

    attributes = {k: take(v) for k, v in vars(ctx).items() if k not in _OWN}
    wanted = tuple(g if needed else None for g, needed in zip(ctx._geometry, ctx.needs_input_grad))
    derivative = Derivative(type(ctx), function, attributes, take(ctx.saved_tensors), take(grads), wanted)
    number = next(_number)
    _derivatives[number] = derivative
    gradients = iter(operator(number, tensors))
    return tuple(None if geometry is None else next(gradients) for geometry in wanted)


def _within(value: Any, function: Any) -> Any:
    if isinstance(value, dict):
        return {k: function(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(function(v) for v in value)
    return value


def _shapes(number: int, tensors: list[Any]) -> list[Any]:
    return [fl.empty_strided(*g[:2], dtype=g[2], device="meta") for g in _derivatives[number].wanted if g is not None]


def _run(number: int, tensors: list[Any]) -> list[Any]:
    derivative = _derivatives[number]

    def put(value: Any) -> Any:
        return tensors[value.place] if isinstance(value, Slot) else _within(value, put)

    ctx = derivative.context()
    vars(ctx).update({k: put(v) for k, v in derivative.attributes.items()})
    ctx.to_save = put(derivative.saved)
    grads = put(derivative.grads)
    device = next(g.device for g in grads if g is not None)
    gradients = derivative.function(ctx, *grads)
    gradients = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
    return [_laid_out(g, geometry, device) for g, geometry in zip(gradients, derivative.wanted) if geometry is not None]


def _laid_out(grad: Any, geometry: tuple[Any, ...], device: Any) -> Any:
    size, stride, dtype = geometry
    if grad is not None and (tuple(grad.shape), grad.stride(), grad.dtype) == geometry:
        return grad.clone() if grad._is_view() else grad
    laid_out = fl.empty_strided(size, stride, dtype=dtype, device=device)
    return laid_out.zero_() if grad is None else laid_out.copy_(grad)


@functools.cache
def _operator() -> Any:
    namespace, name = _NAME.split("::")
    library = Library(namespace, "FRAGMENT")
    library.define(f"{name}(int number, Tensor[] tensors) -> Tensor[]")
    library.impl(name, _run, "CompositeExplicitAutograd")
    library.impl(name, _shapes, "Meta")
    _libraries.append(library)
    from flambeau import _C

    return _C._operator_object(_NAME)


_libraries: list[Library] = []  # whose operators go with them
