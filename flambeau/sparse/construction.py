"""Making sparse tensors and taking them apart: checks of the parts, conversions between layouts.

`parts` and `with_values` are how everything else in this package reads and makes sparse tensors; both are
differentiable in the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor

__all__ = [
    "sparse_coo_tensor", "_sparse_coo_tensor_unsafe", "sparse_csr_tensor", "sparse_csc_tensor",
    "sparse_compressed_tensor",
]  # fmt: skip

COMPRESSED = (_C.sparse_csr, _C.sparse_csc)


def is_sparse(t: Any) -> bool:
    """Whether t is a tensor made of parts, of whatever layout."""
    return isinstance(t, Tensor) and t.layout is not _C.strided


# ---------------------------------------------------------------------------------------------- parts


def coordinates(t: Tensor) -> Tensor:
    """The coordinates of the elements, a column for each, whatever the layout."""
    indices = _ops._sparse_indices(t)
    if t.layout is _C.sparse_coo:
        return indices
    outer = expand_starts(_ops._sparse_starts(t), indices.shape[-1])
    pair = [outer, indices.long()]
    return fl.stack(pair if t.layout is _C.sparse_csr else pair[::-1])


def parts(t: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates and values."""
    return coordinates(t), _ops._sparse_values(t)


def with_values(t: Tensor, values: Tensor) -> Tensor:
    """The pattern of t around other values; dense dimensions may differ."""
    if t.layout is _C.sparse_coo:
        indices = _ops._sparse_indices(t)
        size = [*t.shape[: indices.shape[0]], *values.shape[1:]]
        return _ops._sparse_coo(indices, values, size, _ops._sparse_is_coalesced(t))
    columns = t.layout is _C.sparse_csc
    return _ops._sparse_compressed(_ops._sparse_starts(t), _ops._sparse_indices(t), values, t.shape, columns)


def gradient_of_values(t: Tensor, g: Tensor) -> Tensor:
    """The gradient of a sparse tensor from that of its values.

    Elements at the same place have the same gradient, since what operators make of them is their sum (operators for
    which that is not so coalesce first); the gradient of the tensor has it once.
    """
    if t.layout is not _C.sparse_coo or _ops._sparse_is_coalesced(t):
        return with_values(t, g)
    indices = _ops._sparse_indices(t)
    unique, group = _ops._sparse_groups(indices, t.shape[: indices.shape[0]])
    if unique.shape == indices.shape:
        return with_values(t, g)
    times = fl.bincount(group, minlength=unique.shape[1]).reshape(-1, *[1] * (g.dim() - 1))
    mean = fl.zeros(unique.shape[1], *g.shape[1:], dtype=g.dtype, device=g.device).index_add(0, group, g) / times
    return _ops._sparse_coo(unique, mean, t.shape, True)


def expand_starts(starts: Tensor, count: int) -> Tensor:
    """The row of each element, from the places where rows start."""
    lengths = starts.diff().long()
    return fl.repeat_interleave(fl.arange(lengths.shape[0], device=starts.device), lengths, output_size=count)


def compress(outer: Tensor, rows: int) -> Tensor:
    """The places where rows start, from the row of each element."""
    counts = fl.bincount(outer, minlength=rows)
    return fl.cat([counts.new_zeros(1), counts.cumsum(0)])


def flat_places(indices: Tensor, size: Sequence[int]) -> Tensor:
    """The number of each element in a dense tensor of this size."""
    places = fl.zeros(indices.shape[1], dtype=_C.int64, device=indices.device)
    for row, length in zip(indices, size):
        places = places * length + row
    return places


def gather(t: Tensor, indices: Tensor) -> Tensor:
    """The elements of a dense or sparse tensor at some coordinates; those that a sparse one lacks are zero."""
    dims = indices.shape[0]
    if not is_sparse(t):
        flat = t.reshape(-1, *t.shape[dims:]) if dims else t.unsqueeze(0)
        return flat.index_select(0, flat_places(indices, t.shape[:dims]))
    own, values = parts(t)
    if own.shape == indices.shape and own.data_ptr() == indices.data_ptr():
        return values
    t = coalesce(to_coo(t))
    own, values = parts(t)
    if own.shape[1] == 0:
        return values.new_zeros(indices.shape[1], *values.shape[1:])
    known, wanted = flat_places(own, t.shape[:dims]), flat_places(indices, t.shape[:dims])
    at = fl.searchsorted(known, wanted).clamp(max=known.shape[0] - 1)
    is_present = (known[at] == wanted).reshape(-1, *[1] * (values.dim() - 1))
    return fl.where(is_present, values.index_select(0, at), 0)


# ---------------------------------------------------------------------------------------------- making


def _as_indices(indices: Any, device: Any) -> Tensor:
    indices = fl.as_tensor(indices, device=device)
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == _C.bool:
        indices = indices.to(_C.int64)
    return indices


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:  # fmt: skip
    """A sparse tensor with values at coordinates; coordinates that occur more than once add up."""
    if values is None and (size is None or indices is None):
        size = indices if size is None else size
        out = empty_coo(size, dtype=dtype, device=device)
        return out.requires_grad_() if requires_grad else out
    values = fl.as_tensor(values, dtype=dtype, device=device)
    indices = _as_indices(indices, values.device).long()
    if indices.dim() == 1 and indices.numel() == 0:
        indices = indices.reshape(1, 0)
    elif indices.dim() == 1:
        indices = indices.unsqueeze(1)  # one coordinate for each dimension
    if indices.dim() != 2:
        raise RuntimeError(f"[sparse_coo_tensor] expected a matrix of indices, got shape {tuple(indices.shape)}")
    if values.dim() == 0:
        values = values.expand(indices.shape[1])
    dims, count = indices.shape
    if values.shape[0] != count:
        raise RuntimeError(f"[sparse_coo_tensor] expected {count} values for the indices, got {values.shape[0]}")
    if size is None:
        if count == 0 and dims:
            raise RuntimeError("[sparse_coo_tensor] expected a size beside no indices, got none")
        largest = [int(row.max()) + 1 for row in indices]
        size = [*largest, *values.shape[1:]]
    size = [int(length) for length in size]
    if len(size) != dims + values.dim() - 1:
        raise RuntimeError(
            f"[sparse_coo_tensor] expected {dims} sparse and {values.dim() - 1} dense dimensions, got size {tuple(size)}"
        )
    if any(length < 0 for length in size):
        raise RuntimeError(f"[sparse_coo_tensor] expected sizes that are not negative, got {tuple(size)}")
    if list(values.shape[1:]) != size[dims:]:
        raise RuntimeError(
            f"[sparse_coo_tensor] expected values of shape {(count, *size[dims:])}, got {tuple(values.shape)}"
        )
    check_bounds("sparse_coo_tensor", indices, size)
    if is_coalesced and check_invariants:
        check_sorted(indices, size)
    if requires_grad and values.requires_grad:
        values = values.detach()
    out = _ops._sparse_coo(indices, values, size, bool(is_coalesced))
    return out.requires_grad_() if requires_grad else out


def check_bounds(op: str, indices: Tensor, size: Sequence[int]) -> None:
    if indices.is_meta or indices.numel() == 0:
        return
    for dim, (row, length) in enumerate(zip(indices, size)):
        low, high = row.aminmax()
        if int(low) < 0 or int(high) >= length:
            raise RuntimeError(
                f"[{op}] expected indices in [0, {length}) in dimension {dim}, got {int(low)} to {int(high)}"
            )


def check_sorted(indices: Tensor, size: Sequence[int]) -> None:
    places = flat_places(indices, size[: indices.shape[0]])
    if bool((places.diff() <= 0).any()):
        raise RuntimeError(
            "[sparse_coo_tensor] expected sorted and distinct indices with is_coalesced=True, got others"
        )


def _sparse_coo_tensor_unsafe(
    indices: Tensor, values: Tensor, size: Sequence[int], dtype: Any = None, device: Any = None,
    requires_grad: bool = False, is_coalesced: bool | None = None, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """The same without a size to be found; the parts are checked all the same."""
    return sparse_coo_tensor(
        indices, values, size, dtype=dtype, device=device, requires_grad=requires_grad, is_coalesced=is_coalesced
    )


def empty_coo(size: Any, sparse_dim: int | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    """A sparse tensor without elements."""
    size = [int(length) for length in size]
    dims = len(size) if sparse_dim is None else sparse_dim
    indices = fl.empty((dims, 0), dtype=_C.int64, device=device)
    return _ops._sparse_coo(indices, fl.empty((0, *size[dims:]), dtype=dtype, device=device), size, True)


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """A sparse matrix with its elements row by row (sparse_csr) or column by column (sparse_csc)."""
    if layout not in COMPRESSED:
        raise RuntimeError(f"[sparse_compressed_tensor] expected layout sparse_csr or sparse_csc, got {layout}")
    op = "sparse_csr_tensor" if layout is _C.sparse_csr else "sparse_csc_tensor"
    values = fl.as_tensor(values, dtype=dtype, device=device)
    starts = _as_indices(compressed_indices, values.device)
    indices = _as_indices(plain_indices, values.device)
    for name, part in (("compressed indices", starts), ("indices", indices), ("values", values)):
        if part.dim() != 1:
            raise RuntimeError(f"[{op}] expected {name} of one dimension, got shape {tuple(part.shape)}")
    if starts.dtype != indices.dtype or starts.dtype not in (_C.int32, _C.int64):
        raise RuntimeError(
            f"[{op}] expected both indices in int64 or both in int32, got {starts.dtype} and {indices.dtype}"
        )
    if starts.numel() == 0 or indices.shape != values.shape:
        raise RuntimeError(
            f"[{op}] expected as many indices as values, got {starts.numel()}, {indices.numel()} and {values.numel()}"
        )
    outer = starts.shape[0] - 1
    if size is None:
        inner = int(indices.max()) + 1 if indices.numel() else 0
        size = (outer, inner) if layout is _C.sparse_csr else (inner, outer)
    size = [int(length) for length in size]
    if len(size) != 2:
        raise RuntimeError(f"[{op}] expected two dimensions, got size {tuple(size)}")
    inner = size[1] if layout is _C.sparse_csr else size[0]
    if outer != (size[0] if layout is _C.sparse_csr else size[1]):
        raise RuntimeError(f"[{op}] expected one start more than rows, got {outer + 1} starts for size {tuple(size)}")
    if not starts.is_meta:
        lengths = starts.diff()
        if int(starts[0]) != 0 or int(starts[-1]) != values.shape[0] or bool((lengths < 0).any()):
            raise RuntimeError(f"[{op}] expected starts that grow from 0 to {values.shape[0]}, got others")
        check_bounds(op, indices.unsqueeze(0), [inner])
    if requires_grad and values.requires_grad:
        values = values.detach()
    out = _ops._sparse_compressed(starts, indices, values, size, layout is _C.sparse_csc)
    return out.requires_grad_() if requires_grad else out


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """A sparse matrix with its elements row by row."""
    options.pop("layout", None)
    return sparse_compressed_tensor(crow_indices, col_indices, values, size, layout=_C.sparse_csr, **options)


def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """A sparse matrix with its elements column by column."""
    options.pop("layout", None)
    return sparse_compressed_tensor(ccol_indices, row_indices, values, size, layout=_C.sparse_csc, **options)


# ---------------------------------------------------------------------------------------------- conversions


def coalesce(t: Tensor) -> Tensor:
    """Sorted and distinct coordinates; values at the same place are added."""
    if _ops._sparse_is_coalesced(t):
        return t
    indices, values = parts(t)
    unique, group = _ops._sparse_groups(indices, t.shape[: indices.shape[0]])
    zeros = fl.zeros(unique.shape[1], *values.shape[1:], dtype=values.dtype, device=values.device)
    if values.dtype == _C.bool:
        summed = zeros.int().index_add(0, group, values.int()) != 0
    else:
        summed = zeros.index_add(0, group, values)
    return _ops._sparse_coo(unique, summed, t.shape, True)


def to_coo(t: Tensor) -> Tensor:
    """The same elements by coordinates."""
    if t.layout is _C.sparse_coo:
        return t
    indices, values = parts(t)
    return _ops._sparse_coo(indices, values, t.shape, t.layout is _C.sparse_csr)


def to_dense(t: Tensor, dtype: Any = None) -> Tensor:
    """The strided tensor with these elements."""
    if not is_sparse(t):
        return t if dtype is None else t.to(dtype)
    indices, values = parts(t)
    dims = indices.shape[0]
    places = flat_places(indices, t.shape[:dims])
    rows = 1
    for length in t.shape[:dims]:
        rows *= length
    zeros = fl.zeros(rows, *values.shape[1:], dtype=values.dtype, device=values.device)
    if values.dtype == _C.bool:
        out = zeros.int().index_add(0, places, values.int()) != 0
    else:
        out = zeros.index_add(0, places, values)
    out = out.reshape(t.shape)
    return out if dtype is None else out.to(dtype)


def to_sparse(
    t: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> Tensor:
    """The elements of a strided tensor that are not zero, or another layout of a sparse one."""
    if isinstance(sparse_dim, type(_C.strided)):
        layout, sparse_dim = sparse_dim, None
    if blocksize is not None:
        raise NotImplementedError("[to_sparse] expected a layout without blocks, got a blocksize")
    if layout in COMPRESSED:
        return to_compressed(t, layout)
    if layout is _C.strided:
        return to_dense(t)
    if is_sparse(t):
        return to_coo(t)
    dims = t.dim() if sparse_dim is None else int(sparse_dim)
    if not 0 <= dims <= t.dim() or (dims == 0 and t.dim() > 0):
        raise RuntimeError(f"[to_sparse] expected from 1 to {t.dim()} sparse dimensions, got {dims}")
    if t.dim() == 0:
        count = int(t.detach() != 0)
        return _ops._sparse_coo(fl.empty((0, count), dtype=_C.int64, device=t.device), t.reshape(1)[:count], (), True)
    with fl.no_grad():
        mask = t != 0
        if dims < t.dim():
            mask = mask.flatten(dims).any(-1)
        indices = mask.nonzero().t().contiguous()
    flat = t.reshape(-1, *t.shape[dims:])
    values = flat.index_select(0, flat_places(indices, t.shape[:dims]))
    return _ops._sparse_coo(indices, values, t.shape, True)


def to_compressed(t: Tensor, layout: Any) -> Tensor:
    """A matrix with its elements row by row or column by column."""
    if t.layout is layout:
        return t
    if t.dim() != 2:
        raise RuntimeError(f"[to_sparse] expected a matrix for layout {layout}, got {t.dim()} dimensions")
    coo = coalesce(to_coo(t) if is_sparse(t) else to_sparse(t))
    indices, values = parts(coo)
    if values.dim() != 1:
        raise RuntimeError(f"[to_sparse] expected a matrix without dense dimensions, got {values.dim() - 1}")
    rows, columns = indices
    if layout is _C.sparse_csr:
        return _ops._sparse_compressed(compress(rows, t.shape[0]), columns.contiguous(), values, t.shape, False)
    order = fl.argsort(columns, stable=True)
    starts = compress(columns, t.shape[1])
    return _ops._sparse_compressed(starts, rows[order], values.index_select(0, order), t.shape, True)
