"""Methods that only sparse tensors have (`t.coalesce()`, `t.crow_indices()`), and those that lead to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor
from flambeau.sparse import construction
from flambeau.sparse.construction import coalesce as coalesced
from flambeau.sparse.construction import gather, is_sparse, parts, with_values


def _coo(op: str, t: Tensor) -> None:
    if t.layout is not _C.sparse_coo:
        raise RuntimeError(
            f"[{op}] expected a sparse coordinate tensor, got layout {t.layout}: {op} expected sparse coordinate tensor layout but got "
            f"{construction.layout_name(t.layout)}"
        )


def coalesce(self: Tensor) -> Tensor:
    _coo("coalesce", self)
    return coalesced(self)


def is_coalesced(self: Tensor) -> bool:
    _coo("is_coalesced", self)
    return _ops._sparse_is_coalesced(self)


def indices(self: Tensor) -> Tensor:
    _coo("indices", self)
    if not _ops._sparse_is_coalesced(self):
        raise RuntimeError(
            "[indices] expected a coalesced tensor, got an uncoalesced one: Cannot get indices on an uncoalesced tensor, please call "
            ".coalesce() first"
        )
    return _ops._sparse_indices(self)


def values(self: Tensor) -> Tensor:
    if self.layout is _C.sparse_coo and not _ops._sparse_is_coalesced(self):
        raise RuntimeError(
            "[values] expected a coalesced tensor, got an uncoalesced one: Cannot get values on an uncoalesced tensor, please call "
            ".coalesce() first"
        )
    return _ops._sparse_values(self)


def _indices(self: Tensor) -> Tensor:
    _coo("_indices", self)
    return _ops._sparse_indices(self)


def _values(self: Tensor) -> Tensor:
    """The values without history, as PyTorch has it."""
    return _ops._sparse_values(self).detach()


def _nnz(self: Tensor) -> int:
    return _ops._sparse_indices(self).shape[-1]


def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    return _ops._sparse_coalesced_(self, coalesced)


def sparse_dim(self: Tensor) -> int:
    return _ops._sparse_indices(self).shape[0] if self.layout is _C.sparse_coo else 2


def dense_dim(self: Tensor) -> int:
    if self.layout is _C.sparse_coo:
        return self.dim() - sparse_dim(self)
    return self.dim() - _ops._sparse_indices(self).dim() - 1


def _compressed(op: str, t: Tensor, columns: bool) -> None:
    if t.layout not in construction.COMPRESSED or (t.layout in construction.COLUMNS) != columns:
        kinds, layout_name = "column" if columns else "row", construction.layout_name(t.layout)
        raise RuntimeError(
            f"[{op}] expected a tensor compressed by {'columns' if columns else 'rows'}, got layout {t.layout}: {op} expected sparse "
            f"{kinds} compressed tensor layout but got {layout_name}"
        )


def crow_indices(self: Tensor) -> Tensor:
    _compressed("crow_indices", self, False)
    return _ops._sparse_starts(self)


def col_indices(self: Tensor) -> Tensor:
    _compressed("col_indices", self, False)
    return _ops._sparse_indices(self)


def ccol_indices(self: Tensor) -> Tensor:
    _compressed("ccol_indices", self, True)
    return _ops._sparse_starts(self)


def row_indices(self: Tensor) -> Tensor:
    _compressed("row_indices", self, True)
    return _ops._sparse_indices(self)


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements of a tensor at the coordinates of a sparse one."""
    if not is_sparse(mask):
        raise RuntimeError("[sparse_mask] expected a sparse mask, got a strided one")
    if self.shape != mask.shape:
        raise RuntimeError(f"[sparse_mask] expected a mask of shape {tuple(self.shape)}, got {tuple(mask.shape)}")
    return with_values(mask, gather(self, construction.coordinates(mask)))


def sparse_resize_(self: Tensor, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Tensor:
    """Another size, which must hold the elements that there are."""
    _coo("sparse_resize_", self)
    i, v = parts(self)
    if len(size) != sparse_dim + dense_dim:
        raise RuntimeError(f"[sparse_resize_] expected {sparse_dim + dense_dim} sizes, got {tuple(size)}")
    if i.shape[1] and (sparse_dim != i.shape[0] or dense_dim != v.dim() - 1):
        raise RuntimeError(
            "[sparse_resize_] expected the same sparse and dense dimensions for elements that exist, got others"
        )
    if i.shape[1] and any(new < old for new, old in zip(size, self.shape)):
        raise RuntimeError(f"[sparse_resize_] expected sizes of at least {tuple(self.shape)}, got {tuple(size)}")
    if i.shape[1] == 0:
        return sparse_resize_and_clear_(self, size, sparse_dim, dense_dim)
    wide = fl.nn.functional.pad(
        v, [p for new, old in zip(size[: -dense_dim - 1 : -1], reversed(v.shape[1:])) for p in (0, new - old)]
    )
    return _ops._sparse_assign_(self, _ops._sparse_coo(i, wide, list(size), _ops._sparse_is_coalesced(self)))


def sparse_resize_and_clear_(self: Tensor, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Tensor:
    if len(size) != sparse_dim + dense_dim:
        raise RuntimeError(f"[sparse_resize_] expected {sparse_dim + dense_dim} sizes, got {tuple(size)}")
    return _ops._sparse_assign_(self, construction.empty_coo(size, sparse_dim, self.dtype, self.device))


def resize_as_sparse_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """The size and the sparse dimensions of another tensor; elements stay as long as they fit."""
    _coo("resize_as_sparse_", self)
    dims = sparse_dim(the_template)
    if self.shape == the_template.shape and sparse_dim(self) == dims:
        return self
    return sparse_resize_(self, the_template.shape, dims, the_template.dim() - dims)


def to_sparse(self: Tensor, *args: Any, **options: Any) -> Tensor:
    return construction.to_sparse(self, *args, **options)


def to_sparse_coo(self: Tensor) -> Tensor:
    return construction.to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: Any = None) -> Tensor:
    return construction.to_compressed(self, _C.sparse_csr, None, dense_dim)


def to_sparse_csc(self: Tensor, dense_dim: Any = None) -> Tensor:
    return construction.to_compressed(self, _C.sparse_csc, None, dense_dim)


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    return construction.to_compressed(self, _C.sparse_bsr, blocksize, dense_dim)


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    return construction.to_compressed(self, _C.sparse_bsc, blocksize, dense_dim)


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    return construction.to_dense(self, dtype)


def data_of(self: Tensor) -> tuple[Any, ...]:
    """What pickle keeps of a sparse tensor."""
    values = _ops._sparse_values(self).detach()
    if self.layout is _C.sparse_coo:
        return (_ops._sparse_indices(self), values, self.shape, _ops._sparse_is_coalesced(self))
    return (_ops._sparse_starts(self), _ops._sparse_indices(self), values, self.shape)


def rebuild(layout: Any, data: tuple[Any, ...]) -> Tensor:
    """The tensor whose `data_of` this is, its parts checked again."""
    if layout is not _C.sparse_coo:
        return construction.sparse_compressed_tensor(*data, layout=layout)
    indices, values, size = data[:3]
    coalesced = bool(data[3]) if len(data) > 3 else None
    return construction.sparse_coo_tensor(indices, values, size, is_coalesced=coalesced, check_invariants=True)


def text(self: Tensor) -> str:
    """repr() of a sparse tensor."""
    from flambeau._tensor import printing

    with fl.no_grad():
        if self.layout is _C.sparse_coo:
            named = [("indices", _ops._sparse_indices(self))]
        else:
            by_columns = self.layout in construction.COLUMNS
            names = ("ccol_indices", "row_indices") if by_columns else ("crow_indices", "col_indices")
            named = list(zip(names, (_ops._sparse_starts(self), _ops._sparse_indices(self))))
        named.append(("values", _ops._sparse_values(self)))
        lines = []
        for name, part in named:
            inner = printing.values_text(part, 7 + len(name) + 1 + 7) if part.numel() else "[]"
            if part.numel() == 0:
                inner += f", size={tuple(part.shape)}"
            lines.append(f"{name}=tensor({inner})")
    suffixes = [f"size={tuple(self.shape)}", f"nnz={_nnz(self)}"]
    if self.device.type != "cpu":
        suffixes.insert(0, f"device='{self.device}'")
    if self.dtype not in printing.default_dtypes():
        suffixes.append(f"dtype={self.dtype}")
    suffixes.append(f"layout={self.layout}")
    if gradient := printing.gradient_suffix(self):
        suffixes.append(gradient)
    if self.layout is _C.sparse_coo:  # what follows the parts has a line of its own
        lines, suffixes = [*lines, suffixes[0]], suffixes[1:]
    return printing.with_suffixes("tensor(" + ",\n       ".join(lines), suffixes, 7)
