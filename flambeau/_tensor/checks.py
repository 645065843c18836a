"""`_check` and its relatives: assertions on booleans, sizes and tensors, by the type of the error they raise."""

from __future__ import annotations

from typing import Any

import flambeau


def _check_with(error: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise an error of the given type, with the message that a function returns, unless the condition holds."""
    if not isinstance(cond, (bool, flambeau.SymBool)):
        raise TypeError(f"[check] expected a bool, got {type(cond).__name__}: cond must be a bool")
    if isinstance(cond, flambeau.SymBool) and cond.hint is None:
        holds = cond.env.assume(cond)
    else:
        holds = bool(cond)
    if not holds:
        raise error("Expected cond to be True, but got False." if message is None else str(_text(message)))


def _text(message: Any) -> Any:
    if not callable(message):
        raise TypeError(
            f"[check] expected a function that returns the message, got {type(message).__name__}: message must be a callable"
        )
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
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error: type[Exception], cond: Any, message: Any = None) -> None:
    if not isinstance(cond, flambeau.Tensor) or cond.dtype != flambeau.bool:
        rule = (
            "cond tensor must have dtype torch.bool" if isinstance(cond, flambeau.Tensor) else "cond must be a tensor"
        )
        raise TypeError(f"[check] expected a tensor of bool, got {getattr(cond, 'dtype', type(cond).__name__)}: {rule}")
    _check_with(error, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    _check_tensor_all_with(RuntimeError, cond, message)
