"""Names of reductions of losses: as integers for operators, and from the two deprecated flags."""

from __future__ import annotations

import warnings

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number by which operators know a reduction."""
    if reduction == "elementwise_mean":
        warnings.warn("reduction='elementwise_mean' is deprecated; use reduction='mean'", stacklevel=2)
        return 1
    if reduction not in _NUMBERS:
        raise ValueError(f"[reduction] expected 'none', 'mean' or 'sum', got {reduction!r}")
    return _NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction meant by the deprecated flags."""
    average = True if size_average is None else size_average
    if not (True if reduce is None else reduce):
        meant = "none"
    else:
        meant = "mean" if average else "sum"
    if emit_warning:
        warnings.warn(f"size_average and reduce are deprecated; use reduction={meant!r}", stacklevel=3)
    return meant


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """The number of the reduction meant by the deprecated flags."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
