"""`make_tensor`: random tensors of any dtype, with values and memory layout that tests ask for."""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor with values drawn uniformly from [low, high).

    The default interval is [0, 2) for booleans, [0, 10) for unsigned and [-9, 10) for signed integers, [-9, 9) for the
    rest. noncontiguous: every second element of a larger tensor. exclude_zero: zeros are replaced by the smallest
    positive number.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got {noncontiguous=} and "
            f"{memory_format=}"
        )
    inexact = dtype.is_floating_point or dtype.is_complex
    if requires_grad and not inexact:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")

    low, high = _interval(low, high, dtype)
    spread = noncontiguous and math.prod(shape) > 1
    if spread:
        shape = (*shape[:-1], 2 * shape[-1])
    if dtype.is_complex:
        result = flambeau.empty(shape, dtype=dtype, device=device)
        _uniform(flambeau.view_as_real(result), low, high)
    elif dtype.is_floating_point:
        result = _uniform(flambeau.empty(shape, dtype=dtype, device=device), low, high)
    else:
        result = flambeau.randint(int(low), int(high), shape, dtype=dtype, device=device)

    if exclude_zero:
        smallest = flambeau.finfo(dtype).tiny if inexact else 1
        result[result == 0] = smallest
    if spread:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if requires_grad:
        result.requires_grad_(True)
    return result


def _uniform(tensor: Any, low: float, high: float) -> Any:
    """Fill in place. An interval wider than the dtype's largest number is drawn at half its width."""
    if high - low >= flambeau.finfo(tensor.dtype).max:
        return tensor.uniform_(low / 2, high / 2).mul_(2)
    return tensor.uniform_(low, high)


def _interval(low: float | None, high: float | None, dtype: Any) -> tuple[float, float]:
    """The interval to draw from: the caller's bounds, or the dtype's defaults, within what the dtype can hold."""
    if dtype == flambeau.bool:
        default, limits = (0, 2), (0, 2)
    elif dtype.is_floating_point or dtype.is_complex:
        largest = flambeau.finfo(dtype).max
        default, limits = (-9, 9), (-largest, largest)
    else:
        info = flambeau.iinfo(dtype)
        default = (0, 10) if info.min == 0 else (-9, 10)
        # The generator takes its exclusive bound as a 64-bit integer.
        limits = (info.min, min(info.max, 2**63 - 2) + 1)
    low = default[0] if low is None else low
    high = default[1] if high is None else high

    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and (dtype.is_floating_point or dtype.is_complex):
        warnings.warn(
            "Passing `low==high` to make_tensor for floating-point or complex dtypes is deprecated; use full instead",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ValueError(f"[make_tensor] expected low < high, got {low} and {high}")
    if high < limits[0] or low >= limits[1]:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports "
            f"[{limits[0]}, {limits[1]})"
        )
    low, high = max(low, limits[0]), min(high, limits[1])
    if dtype.is_floating_point or dtype.is_complex:
        return low, high
    return math.ceil(low), math.ceil(high)
