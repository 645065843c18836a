"""Making sparse tensors and taking them apart: checks of the parts, conversions between layouts.

`parts` and `with_values` are how everything else in this package reads and makes sparse tensors; both are
differentiable in the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor

__all__ = [
    "sparse_coo_tensor", "_sparse_coo_tensor_unsafe", "sparse_csr_tensor", "sparse_csc_tensor",
    "sparse_bsr_tensor", "sparse_bsc_tensor", "sparse_compressed_tensor",
]  # fmt: skip

COMPRESSED = (_C.sparse_csr, _C.sparse_csc, _C.sparse_bsr, _C.sparse_bsc)
COLUMNS = (_C.sparse_csc, _C.sparse_bsc)  # element after element, or block after block, down the columns
BLOCKED = (_C.sparse_bsr, _C.sparse_bsc)  # of blocks of elements


def layout_name(layout: Any) -> str:
    """A layout as PyTorch's errors call it."""
    name = str(layout).rpartition(".")[2]
    return "Strided" if name == "strided" else "Sparse" + name.removeprefix("sparse_").removesuffix("coo").capitalize()


def is_sparse(t: Any) -> bool:
    """Whether t is a tensor made of parts, of whatever layout."""
    return isinstance(t, Tensor) and t.layout is not _C.strided


# ---------------------------------------------------------------------------------------------- parts


def coordinates(t: Tensor) -> Tensor:
    """The coordinates of the elements, a column for each, whatever the layout."""
    indices = _ops._sparse_indices(t)
    if t.layout is _C.sparse_coo:
        return indices
    return compressed_coordinates(_ops._sparse_starts(t), indices, block_of(t), t.layout in COLUMNS)


def block_of(t: Tensor) -> tuple[int, ...]:
    """The size of the blocks of a blocked layout; () for the others."""
    if t.layout not in BLOCKED:
        return ()
    at = _ops._sparse_indices(t).dim()
    return tuple(_ops._sparse_values(t).shape[at : at + 2])


def compressed_coordinates(starts: Tensor, indices: Tensor, block: Sequence[int], columns: bool) -> Tensor:
    """The coordinates of all elements of a compressed layout: batch, row and column, in the order of the values."""
    batch, count = indices.shape[:-1], indices.shape[-1]
    rows = starts.shape[-1] - 1
    items = math.prod(batch)
    lengths = starts.reshape(-1, rows + 1).diff(dim=1).long().reshape(-1)
    outer = fl.arange(rows, device=starts.device).repeat(items)
    outer = fl.repeat_interleave(outer, lengths, output_size=items * count)
    inner = indices.reshape(-1).long()
    row, column = (inner, outer) if columns else (outer, inner)
    places = [fl.arange(items, device=starts.device).repeat_interleave(count)] if batch else []
    leading = []  # type: ignore[var-annotated]
    for length in reversed(batch):
        leading.insert(0, places[0] % length)
        places[0] = places[0] // length
    coordinates = [*leading, row, column]
    if block:
        high, wide = block
        each = high * wide
        coordinates = [x.repeat_interleave(each) for x in coordinates]
        within = fl.arange(each, device=starts.device).repeat(items * count)
        coordinates[-2] = coordinates[-2] * high + within // wide
        coordinates[-1] = coordinates[-1] * wide + within % wide
    return fl.stack(coordinates)


def stored_values(values: Tensor, indices_shape: Sequence[int], block: Sequence[int]) -> Tensor:
    """Values one after the other, as (values, dense...), in the shape in which a compressed layout stores them."""
    return values.reshape(*indices_shape, *block, *values.shape[1:])


def parts(t: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates and values, an element after the other."""
    values = _ops._sparse_values(t)
    if t.layout in COMPRESSED:
        leading = _ops._sparse_indices(t).dim() + len(block_of(t))
        values = values.reshape(-1, *values.shape[leading:]) if leading > 1 else values
    return coordinates(t), values


def with_values(t: Tensor, values: Tensor) -> Tensor:
    """The pattern of t around other values; dense dimensions may differ."""
    if t.layout is _C.sparse_coo:
        indices = _ops._sparse_indices(t)
        size = [*t.shape[: indices.shape[0]], *values.shape[1:]]
        return _ops._sparse_coo(indices, values, size, _ops._sparse_is_coalesced(t))
    indices, block = _ops._sparse_indices(t), block_of(t)
    if values.shape[: indices.dim()] != indices.shape or values.dim() < indices.dim() + len(block):
        values = stored_values(values, indices.shape, block)
    size = [*t.shape[: indices.dim() + 1], *values.shape[indices.dim() + len(block) :]]
    return _ops._sparse_compressed(
        _ops._sparse_starts(t), indices, values, size, t.layout in COLUMNS, t.layout in BLOCKED
    )


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
        flat = t.reshape(math.prod(t.shape[:dims]), *t.shape[dims:]) if dims else t.unsqueeze(0)
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
    """A sparse tensor with values at coordinates; coordinates that occur more than once add up.

    >>> flambeau.sparse_coo_tensor([[0, 1], [1, 0]], [3.0, 4.0], (2, 2)).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
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
        raise RuntimeError(
            f"[sparse_coo_tensor] expected {count} values for the indices, got {values.shape[0]}: indices and values must have same nnz, "
            f"but got nnz from indices: {count}, nnz from values: {values.shape[0]}"
        )
    if size is None:
        largest = [int(row.max()) + 1 if count else 0 for row in indices]
        size = [*largest, *values.shape[1:]]
    size = [int(length) for length in size]
    if len(size) != dims + values.dim() - 1:
        raise RuntimeError(
            f"[sparse_coo_tensor] expected {dims} sparse and {values.dim() - 1} dense dimensions, got size {tuple(size)}: "
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {dims}, dense_dim = "
            f"{values.dim() - 1}"
        )
    if any(length < 0 for length in size):
        raise RuntimeError(f"[sparse_coo_tensor] expected sizes that are not negative, got {tuple(size)}")
    if list(values.shape[1:]) != size[dims:]:
        raise RuntimeError(
            f"[sparse_coo_tensor] expected values of shape {(count, *size[dims:])}, got {tuple(values.shape)}: values has incorrect size, "
            f"expected {[count, *size[dims:]]}, got {list(values.shape)}"
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
                f"[{op}] expected indices in [0, {length}) in dimension {dim}, got {int(low)} to {int(high)}: "
                + (
                    f"found negative index {int(low)} for dim {dim}"
                    if int(low) < 0
                    else f"size is inconsistent with indices: for dim {dim}, size is {length} but found index {int(high)}"
                )
            )


def check_sorted(indices: Tensor, size: Sequence[int]) -> None:
    places = flat_places(indices, size[: indices.shape[0]])
    if bool((places.diff() <= 0).any()):
        raise RuntimeError(
            "[sparse_coo_tensor] expected sorted and distinct indices with is_coalesced=True, got others: cannot set is_coalesced to "
            "true if indices correspond to uncoalesced COO tensor"
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
    """Sparse matrices with their elements, or blocks of them, row by row (sparse_csr, sparse_bsr) or column by column
    (sparse_csc, sparse_bsc). Dimensions before the last of the indices are batches, those after the elements dense.

    >>> flambeau.sparse_compressed_tensor([0, 1], [1], [5.0], (1, 2), layout=flambeau.sparse_csr).to_dense()
    tensor([[0., 5.]])
    """
    if layout not in COMPRESSED:
        raise RuntimeError(f"[sparse_compressed_tensor] expected a compressed sparse layout, got {layout}")
    values = fl.as_tensor(values, dtype=dtype, device=device)
    starts = _as_indices(compressed_indices, values.device)
    indices = _as_indices(plain_indices, values.device)
    if size is None:
        size = _size_of_parts(starts, indices, values, layout)
    size = [int(length) for length in size]
    check_compressed(starts, indices, values, size, layout)
    if requires_grad and values.requires_grad:
        values = values.detach()
    out = _ops._sparse_compressed(starts, indices, values, size, layout in COLUMNS, layout in BLOCKED)
    return out.requires_grad_() if requires_grad else out


def _size_of_parts(starts: Tensor, indices: Tensor, values: Tensor, layout: Any) -> list[int]:
    """The smallest size that the parts of a compressed layout fit in."""
    block = list(values.shape[indices.dim() : indices.dim() + 2]) if layout in BLOCKED else []
    outer = starts.shape[-1] - 1
    inner = int(indices.max()) + 1 if indices.numel() else 0
    pair = [inner, outer] if layout in COLUMNS else [outer, inner]
    if block:
        pair = [length * step for length, step in zip(pair, block)]
    return [*indices.shape[:-1], *pair, *values.shape[indices.dim() + len(block) :]]


def check_compressed(starts: Tensor, indices: Tensor, values: Tensor, size: Sequence[int], layout: Any) -> None:
    """Raises where parts do not make a sparse tensor of a compressed layout."""
    op = f"sparse_{str(layout).rpartition('_')[2]}_tensor"
    if starts.dim() == 0 or starts.dim() != indices.dim():
        raise RuntimeError(
            f"[{op}] expected indices of one dimension and of batches, got shapes {tuple(starts.shape)} and {tuple(indices.shape)}"
        )
    if starts.dtype != indices.dtype or starts.dtype not in (_C.int32, _C.int64):
        raise RuntimeError(
            f"[{op}] expected both indices in int64 or both in int32, got {starts.dtype} and {indices.dtype}"
        )
    batch, blocked = indices.dim() - 1, layout in BLOCKED
    dense = values.dim() - batch - 1 - 2 * blocked
    if dense < 0 or starts.shape[-1] == 0 or values.shape[: batch + 1] != indices.shape:
        raise RuntimeError(
            f"[{op}] expected as many indices as values, got shapes {tuple(starts.shape)}, {tuple(indices.shape)} and "
            f"{tuple(values.shape)}"
        )
    if len(size) != batch + 2 + dense:
        raise RuntimeError(f"[{op}] expected {batch + 2 + dense} dimensions, got size {tuple(size)}")
    block = values.shape[batch + 1 : batch + 3] if blocked else (1, 1)
    pair = size[batch : batch + 2]
    if any(step <= 0 or length % step for length, step in zip(pair, block)):
        raise RuntimeError(f"[{op}] expected a size of whole blocks {tuple(block)}, got {tuple(size)}")
    rows, columns = (length // step for length, step in zip(pair, block))
    outer, inner = (columns, rows) if layout in COLUMNS else (rows, columns)
    if starts.shape[-1] - 1 != outer:
        raise RuntimeError(
            f"[{op}] expected one start more than rows, got {starts.shape[-1]} starts for size {tuple(size)}"
        )
    if list(size[:batch]) != list(indices.shape[:-1]) or starts.shape[:-1] != indices.shape[:-1]:
        raise RuntimeError(
            f"[{op}] expected parts with batches of {tuple(size[:batch])}, got shapes {tuple(starts.shape)}, "
            f"{tuple(indices.shape)} and {tuple(values.shape)}"
        )
    if list(values.shape[values.dim() - dense :]) != list(size[len(size) - dense :]):
        raise RuntimeError(f"[{op}] expected dense dimensions of {tuple(size)}, got values of {tuple(values.shape)}")
    if not starts.is_meta and starts.numel():
        count = indices.shape[-1]
        if (
            bool((starts[..., 0] != 0).any())
            or bool((starts[..., -1] != count).any())
            or bool((starts.diff() < 0).any())
        ):
            raise RuntimeError(f"[{op}] expected starts that grow from 0 to {count}, got others")
        check_bounds(op, indices.reshape(1, -1), [inner])


def _compressed_like(layout: Any) -> Any:
    def make(compressed: Any, plain: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
        options.pop("layout", None)
        return sparse_compressed_tensor(compressed, plain, values, size, layout=layout, **options)

    return make


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """Sparse matrices with their elements row by row.

    >>> flambeau.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2)).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    return _compressed_like(_C.sparse_csr)(crow_indices, col_indices, values, size, **options)


def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """Sparse matrices with their elements column by column.

    >>> flambeau.sparse_csc_tensor([0, 1, 2], [1, 0], [4.0, 3.0], (2, 2)).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    return _compressed_like(_C.sparse_csc)(ccol_indices, row_indices, values, size, **options)


def sparse_bsr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """Sparse matrices with blocks of elements row by row.

    >>> flambeau.sparse_bsr_tensor([0, 1], [1], [[[1.0], [2.0]]], (2, 2)).to_dense()
    tensor([[0., 1.],
            [0., 2.]])
    """
    return _compressed_like(_C.sparse_bsr)(crow_indices, col_indices, values, size, **options)


def sparse_bsc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """Sparse matrices with blocks of elements column by column.

    >>> flambeau.sparse_bsc_tensor([0, 0, 1], [0], [[[1.0], [2.0]]], (2, 2)).to_dense()
    tensor([[0., 1.],
            [0., 2.]])
    """
    return _compressed_like(_C.sparse_bsc)(ccol_indices, row_indices, values, size, **options)


def _validate_sparse_compressed_tensor_args(
    compressed: Tensor, plain: Tensor, values: Tensor, size: Any, layout: Any
) -> None:
    check_compressed(compressed, plain, values, list(size), layout)


def _validate_compressed_sparse_indices(
    is_crow: bool, compressed_idx: Tensor, plain_idx: Tensor, cdim: int, dim: int, nnz: int
) -> None:
    values, size = fl.ones(plain_idx.shape, device=plain_idx.device), [cdim, dim] if is_crow else [dim, cdim]
    layout = _C.sparse_csr if is_crow else _C.sparse_csc
    check_compressed(compressed_idx, plain_idx, values, [*plain_idx.shape[:-1], *size], layout)
    if plain_idx.shape[-1] != nnz:
        raise RuntimeError(f"[sparse] expected {nnz} indices, got {plain_idx.shape[-1]}")


def _convert_indices_from_coo_to_csr(self: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows starts, from the rows of elements in order."""
    return fl.searchsorted(self, fl.arange(size + 1, dtype=self.dtype, device=self.device), out_int32=out_int32)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The places of elements, from the starts of rows and the columns; of batches, those come first."""
    dtype = _C.int32 if out_int32 else _C.int64
    batch, count, rows = crow_indices.shape[:-1], col_indices.shape[-1], crow_indices.shape[-1] - 1
    starts = crow_indices.reshape(math.prod(batch), rows + 1)
    row = (
        fl.arange(rows, device=starts.device).repeat(starts.shape[0]).repeat_interleave(starts.diff(dim=-1).reshape(-1))
    )
    places = [row, col_indices.reshape(-1)]
    outer = fl.ones(batch, device=starts.device).nonzero().t().repeat_interleave(count, 1) if batch else None
    pair = fl.stack([p.to(dtype) for p in (places[::-1] if transpose else places)])
    return pair if outer is None else fl.cat([outer.to(dtype), pair])


def _validate_sparse_coo_tensor_args(
    indices: Tensor, values: Tensor, size: Any, is_coalesced: bool | None = None
) -> None:
    sparse_coo_tensor(indices, values, size, is_coalesced=is_coalesced, check_invariants=True)


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
    if t.layout is _C.sparse_csr:
        return _ops._sparse_coo(indices, values, t.shape, True)
    order = fl.argsort(flat_places(indices, t.shape[: indices.shape[0]]), stable=True)
    return _ops._sparse_coo(indices[:, order], values.index_select(0, order), t.shape, True)


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
    if blocksize is not None and len(blocksize) != 2:
        raise RuntimeError(
            f"[to_sparse] expected a height and a width as blocksize, got {tuple(blocksize)}: blocksize needs to be a tuple "
            f"of size 2, but got {len(blocksize)}"
        )
    if layout in COMPRESSED:
        return to_compressed(t, layout, blocksize, dense_dim)
    if blocksize is not None and layout is None and not (is_sparse(t) and t.layout in BLOCKED):
        raise RuntimeError(f"[to_sparse] expected a layout with blocks for blocksize {tuple(blocksize)}, got none")
    if layout is _C.strided:
        return to_dense(t)
    if is_sparse(t):
        return to_coo(t)
    dims = (t.dim() - int(dense_dim or 0)) if sparse_dim is None else int(sparse_dim)
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
    flat = t.reshape(math.prod(t.shape[:dims]), *t.shape[dims:])
    values = flat.index_select(0, flat_places(indices, t.shape[:dims]))
    return _ops._sparse_coo(indices, values, t.shape, True)


def to_compressed(t: Tensor, layout: Any, blocksize: Any = None, dense_dim: Any = None) -> Tensor:
    """Matrices, perhaps in batches and with dense dimensions, in a compressed layout."""
    op = f"to_sparse_{str(layout).rpartition('_')[2]}"
    if layout in BLOCKED:
        block = _checked_block(op, t, blocksize)
        if t.layout is layout and block == block_of(t):
            return t
    else:
        block = ()
        if blocksize is not None:
            raise RuntimeError(
                f"[{op}] expected no blocksize for a layout without blocks, got {tuple(blocksize)}: to_sparse for {layout} "
                "conversion does not use specified blocksize"
            )
        if t.layout is layout:
            return t
    dense = _dense_dims(op, t, dense_dim)
    if t.dim() - dense < 2:
        raise RuntimeError(
            f"[to_sparse] expected a matrix for layout {layout}, got {t.dim()} dimensions and {dense} dense ones"
        )
    _check_conversion(op, t, t.dim() - dense - 2, layout)
    return compressed_form(t, layout, block, dense)


def compressed_form(t: Tensor, layout: Any, block: tuple[int, ...], dense: int) -> Tensor:
    """A tensor of any layout in a compressed one; the sparse dimensions of a tensor by coordinates before the last two are
    batches."""
    batch = t.dim() - dense - 2
    coo = coalesce(to_coo(t)) if is_sparse(t) else to_sparse(t, batch + 2)
    index_dtype = _ops._sparse_indices(t).dtype if is_sparse(t) else _C.int64
    return _compressed_from(coo, batch, list(t.shape), block, layout, index_dtype)


def _check_conversion(op: str, t: Tensor, batch: int, layout: Any) -> None:
    """Conversions that PyTorch refuses, where programs may rely on that."""

    def name_of(kind: Any) -> str:
        return "Sparse" + str(kind).rpartition("_")[2].capitalize()

    if t.layout is _C.sparse_coo and batch:
        raise RuntimeError(
            f"[{op}] expected two sparse dimensions, got {batch + 2}: conversion from Sparse to {name_of(layout)} for input tensors "
            "with sparse_dim()!=2 is not supported"
        )
    if t.layout in (_C.sparse_csr, _C.sparse_csc) and layout in BLOCKED and batch:
        raise RuntimeError(
            f"[{op}] expected a single matrix, got batches: conversion from {name_of(t.layout)} to {name_of(layout)} for batched "
            "inputs is not supported"
        )


def _dense_dims(op: str, t: Tensor, dense_dim: Any) -> int:
    if not is_sparse(t):
        return int(dense_dim or 0)
    own = _ops._sparse_values(t).dim() - 1
    if t.layout in COMPRESSED:
        own -= _ops._sparse_indices(t).dim() - 1 + len(block_of(t))
    if dense_dim is not None and int(dense_dim) != own:
        raise RuntimeError(f"[{op}] expected the dense dimensions of the sparse tensor, {own}, got {dense_dim}")
    return own


def _checked_block(op: str, t: Tensor, blocksize: Any) -> tuple[int, ...]:
    if blocksize is None:
        own = block_of(t) if is_sparse(t) else ()
        if own:
            return own
        raise RuntimeError(f"[{op}] expected a blocksize, got none: {op} requires blocksize")
    block = tuple(int(length) for length in blocksize)
    if len(block) != 2:
        raise RuntimeError(
            f"[{op}] expected blocks of two sizes, got {block}: {op}: blocksize should have two elements, but got {len(block)}"
        )
    if any(length <= 0 for length in block):
        raise RuntimeError(f"[{op}] expected blocks of positive sizes, got {block}: blocksize must be positive")
    return block


def _compressed_from(
    coo: Tensor, batch: int, size: list[int], block: tuple[int, ...], layout: Any, index_dtype: Any
) -> Tensor:
    """A coalesced tensor in a compressed layout. All matrices of a batch have as many elements as the one with most has
    distinct places, so their patterns are joined where they differ in number."""
    indices, values = parts(coo)
    high, wide = block or (1, 1)
    if size[batch] % high or size[batch + 1] % wide:
        raise RuntimeError(
            f"[to_sparse] expected a matrix of whole blocks {block}, got {tuple(size)}: Tensor size({size[batch]}, "
            f"{size[batch + 1]}) needs to be divisible by blocksize {block}"
        )
    rows, columns = size[batch] // high, size[batch + 1] // wide
    items = math.prod(size[:batch])
    item = flat_places(indices[:batch], size[:batch]) if batch else fl.zeros_like(indices[0])
    row, column = indices[batch], indices[batch + 1]
    by_columns = layout in COLUMNS
    outer, inner = (column // wide, row // high) if by_columns else (row // high, column // wide)
    lines, length = (columns, rows) if by_columns else (rows, columns)
    with fl.no_grad():
        cell = (item * lines + outer) * length + inner
        cells = fl.unique(cell)
        counts = fl.bincount(cells // max(lines * length, 1), minlength=items)
        if items > 1 and bool((counts != counts[0]).any()):
            within = fl.unique(cells % (lines * length))
            cells = (fl.arange(items, device=cells.device)[:, None] * (lines * length) + within).reshape(-1)
            counts = fl.full_like(counts, within.shape[0])
        count = int(counts[0]) if items else 0
        place = fl.searchsorted(cells, cell) * (high * wide) + (row % high) * wide + column % wide
        line = (cells // max(length, 1)) % max(lines, 1) + cells // max(lines * length, 1) * lines
        ends = fl.bincount(line, minlength=items * lines).reshape(items, lines).cumsum(1)
        starts = fl.cat([ends.new_zeros(items, 1), ends], 1).reshape(*size[:batch], lines + 1)
        plain = (cells % max(length, 1)).reshape(*size[:batch], count)
    dense = values.shape[1:]
    zeros = fl.zeros(items * count * high * wide, *dense, dtype=values.dtype, device=values.device)
    stored = zeros.index_copy(0, place, values) if values.shape[0] else zeros
    stored = stored.reshape(*size[:batch], count, *block, *dense)
    return _ops._sparse_compressed(starts.to(index_dtype), plain.to(index_dtype), stored, size, by_columns, bool(block))
