"""Small functions at the top of the library that programs and libraries reach for: checks, control flow, tags."""

from __future__ import annotations

import enum
from typing import Any

import flambeau

__all__ = [
    "Tag", "_check", "_check_index", "_check_is_size", "_check_not_implemented", "_check_tensor_all",
    "_check_tensor_all_with", "_check_type", "_check_value", "_check_with", "cond", "while_loop",
]  # fmt: skip


class Tag(enum.Enum):
    """What is known of an operator."""

    (
        core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, flexible_layout, generated, inplace,
        inplace_view, maybe_aliasing_or_mutating, needs_contiguous_strides, needs_exact_strides,
        needs_fixed_stride_order, nondeterministic_bitwise, nondeterministic_seeded, out, out_variant, pointwise,
        pt2_compliant_tag, reduction, view_copy,
    ) = range(20)  # fmt: skip


# ---------------------------------------------------------------------------------------------- checks


def _check_with(error: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise an error of the given type, with the message that a function returns, unless the condition holds."""
    if not isinstance(cond, (bool, flambeau.SymBool)):
        raise TypeError(f"[check] expected a bool, got {type(cond).__name__}")
    if not cond:
        raise error("Expected cond to be True, but got False." if message is None else str(_text(message)))


def _text(message: Any) -> Any:
    if not callable(message):
        raise TypeError(f"[check] expected a function that returns the message, got {type(message).__name__}")
    return message()


def _check(cond: Any, message: Any = None) -> None:
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    _check(bool(i >= 0), message)
    if max is not None:
        _check(bool(i <= max), message)


def _check_tensor_all_with(error: type[Exception], cond: Any, message: Any = None) -> None:
    if not isinstance(cond, flambeau.Tensor) or cond.dtype != flambeau.bool:
        raise TypeError(f"[check] expected a tensor of bool, got {getattr(cond, 'dtype', type(cond).__name__)}")
    _check_with(error, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    _check_tensor_all_with(RuntimeError, cond, message)


# ---------------------------------------------------------------------------------------------- control flow


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """One of two functions, chosen by a condition."""
    if not isinstance(pred, (bool, flambeau.Tensor, flambeau.SymBool)):
        raise RuntimeError(f"[cond] expected a bool or a tensor of one, got {type(pred).__name__}")
    if isinstance(pred, flambeau.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"[cond] expected a tensor with one element, got {tuple(pred.shape)}")
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """A function applied to values again and again, as long as a condition on them holds."""
    values = tuple(carried_inputs)
    while cond_fn(*values):
        values = body_fn(*values)
        values = values if isinstance(values, tuple) else tuple(values) if isinstance(values, list) else (values,)
    return values
