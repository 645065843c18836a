"""Products of several matrices whose sizes differ from group to group, as mixtures of experts need."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.record import composite
from flambeau.ops.recording import without_data

OP = "grouped_mm"


def check_groups(a: fl.Tensor, b: fl.Tensor, offs: fl.Tensor | None, bias: fl.Tensor | None, out_dtype: Any) -> None:
    for name, x in (("mat_a", a), ("mat_b", b)):
        if x.dtype not in (fl.float32, fl.bfloat16, fl.float16):
            raise RuntimeError(f"[{OP}] expected {name} of float32, bfloat16 or float16, got {x.dtype}")
        if x.dim() not in (2, 3):
            raise RuntimeError(f"[{OP}] expected {name} of 2 or 3 dimensions, got shape {tuple(x.shape)}")
    if a.dtype != b.dtype:
        raise RuntimeError(f"[{OP}] expected matrices of one dtype, got {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"[{OP}] expected matrices that can be multiplied, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if (offs is None) != (a.dim() == b.dim() == 3):
        raise RuntimeError(f"[{OP}] expected offs exactly when a matrix has 2 dimensions, got offs={offs is not None}")
    if offs is not None and (offs.dtype != fl.int32 or offs.dim() != 1):
        raise RuntimeError(
            f"[{OP}] expected offs of int32 and 1 dimension, got {offs.dtype} and {offs.dim()} dimensions"
        )
    groups = [x.shape[0] for x in (a, b) if x.dim() == 3] + ([] if offs is None else [offs.shape[0]])
    if not groups or any(count != groups[0] for count in groups):
        raise RuntimeError(f"[{OP}] expected one number of groups, got {groups}")
    if bias is not None:
        raise RuntimeError(f"[{OP}] expected no bias, which is not supported, got one")
    if out_dtype is not None and out_dtype != a.dtype:
        raise RuntimeError(f"[{OP}] expected out_dtype {a.dtype} as of the matrices, got {out_dtype}")


def bounds(offs: fl.Tensor, size: int) -> list[tuple[int, int]]:
    """Where each group starts and ends."""
    ends = offs.tolist()
    starts = [0, *ends[:-1]]
    if any(s > e for s, e in zip(starts, ends)) or (ends and ends[-1] > size):
        raise RuntimeError(f"[{OP}] expected offs that rise to at most {size}, got {ends}")
    return list(zip(starts, ends))


@composite(module="nn.functional")
def grouped_mm(
    mat_a: fl.Tensor,
    mat_b: fl.Tensor,
    *,
    offs: fl.Tensor | None = None,
    bias: fl.Tensor | None = None,
    out_dtype: fl.dtype | None = None,
) -> fl.Tensor:
    check_groups(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return fl.bmm(mat_a, mat_b)
    # What is divided into groups: rows of a against a stack of b, columns of b against a stack of a, or the summed dimension of both.
    rows, columns = mat_a.shape[-2], mat_b.shape[-1]
    both = mat_a.dim() == mat_b.dim() == 2
    if without_data("grouped_mm", mat_a):
        shape = [offs.shape[0], rows, columns] if both else [rows, columns]
        return fl.empty(shape, dtype=mat_a.dtype, device="meta")
    if both:
        parts = [fl.mm(mat_a[:, s:e], mat_b[s:e]) for s, e in bounds(offs, mat_a.shape[1])]
        return fl.stack(parts) if parts else mat_a.new_zeros((0, rows, columns))
    by_rows = mat_a.dim() == 2
    total = rows if by_rows else columns
    places = bounds(offs, total)
    if by_rows:
        parts = [fl.mm(mat_a[s:e], mat_b[i]) for i, (s, e) in enumerate(places)]
    else:
        parts = [fl.mm(mat_a[i], mat_b[:, s:e]) for i, (s, e) in enumerate(places)]
    # Rows or columns that belong to no group are zero.
    left = total - (places[-1][1] if places else 0)
    if left:
        parts.append(mat_a.new_zeros((left, columns) if by_rows else (rows, left)))
    return fl.cat(parts, 0 if by_rows else 1) if parts else mat_a.new_zeros((rows, columns))
