"""Reductions over segments of different lengths."""

from __future__ import annotations

from itertools import pairwise

import flambeau as fl
from flambeau.ops.record import Scalar, composite
from flambeau.ops.recording import without_data

_EMPTY = {"sum": 0.0, "mean": float("nan"), "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _reduce(kind: str, part: fl.Tensor, initial: float | None) -> fl.Tensor:
    """One segment, along its first dimension; an initial value takes part in the reduction."""
    if part.shape[0] == 0:
        value = initial if initial is not None else _EMPTY[kind]
        return part.new_full(part.shape[1:], value)
    if kind == "sum" or kind == "mean":
        total = part.sum(0) if initial is None else part.sum(0) + initial
        return total if kind == "sum" else total / part.shape[0]
    if kind == "prod":
        return part.prod(0) if initial is None else part.prod(0) * initial
    if kind == "max":
        return part.amax(0) if initial is None else part.amax(0).clamp_min(initial)
    return part.amin(0) if initial is None else part.amin(0).clamp_max(initial)


@composite()
def segment_reduce(
    data: fl.Tensor,
    reduce: str,
    *,
    lengths: fl.Tensor | None = None,
    indices: fl.Tensor | None = None,
    offsets: fl.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Scalar | None = None,
) -> fl.Tensor:
    if reduce not in _EMPTY:
        raise RuntimeError(f"[segment_reduce] expected one of {tuple(_EMPTY)}, got {reduce!r}")
    if (lengths is None) == (offsets is None):
        raise RuntimeError("[segment_reduce] expected either lengths or offsets, got both or neither")
    if indices is not None:
        raise RuntimeError("[segment_reduce] expected lengths or offsets, got indices, which have no meaning yet")
    lengths_or_offsets = lengths if lengths is not None else offsets
    assert lengths_or_offsets is not None
    if lengths_or_offsets.dim() != axis + 1:
        raise RuntimeError(
            f"[segment_reduce] expected axis to be the last of {lengths_or_offsets.dim()} dimensions, got {axis}"
        )
    count = lengths_or_offsets.shape[-1] - (0 if lengths is not None else 1)
    rest, batch = data.shape[axis + 1 :], data.shape[:axis]
    if without_data("segment_reduce", data, lengths_or_offsets):
        return data.new_empty((*batch, count, *rest))
    rows = data.reshape(-1, data.shape[axis], *rest) if axis else data.unsqueeze(0)
    results = []
    for row, marks in zip(
        rows.unbind(0), lengths_or_offsets.reshape(-1, lengths_or_offsets.shape[-1]).tolist(), strict=True
    ):
        bounds = marks if lengths is None else [sum(marks[:i]) for i in range(len(marks) + 1)]
        if lengths is not None and not unsafe and (min(marks, default=0) < 0 or bounds[-1] != data.shape[axis]):
            raise RuntimeError(f"[segment_reduce] expected lengths that add up to {data.shape[axis]}, got {marks}")
        parts = [_reduce(reduce, row[a:b], initial) for a, b in pairwise(bounds)]  # type: ignore[arg-type]
        results.append(fl.stack(parts) if parts else row.new_empty((0, *rest)))
    return fl.stack(results).reshape(*batch, count, *rest)
