"""What operators do with sparse tensors, written on their parts.

Each function here is the kernel of some operators at the dispatch key Sparse: it is called, before autograd, when any
argument is sparse, and calls operators on the parts, which are differentiated as usual. Operators without a kernel here
refuse sparse tensors. `register` hands the table to the dispatcher.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor
from flambeau.ops import tags
from flambeau.sparse.broadcasting import broadcast_to
from flambeau.sparse.construction import (
    BLOCKED,
    COLUMNS,
    COMPRESSED,
    block_of,
    coalesce,
    compressed_form,
    coordinates,
    empty_coo,
    flat_places,
    gather,
    is_sparse,
    parts,
    to_compressed,
    to_coo,
    to_dense,
    with_values,
)

KEY = 20  # Key::Sparse of csrc/core/keys.h
KERNELS: dict[str, Callable[..., Any]] = {}


def kernel(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            KERNELS[name] = fn
        return fn

    return add


def register() -> None:
    for name, fn in KERNELS.items():
        _C._set_kernel(name, KEY, fn)


def writes(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place form of a kernel."""

    def write(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = fn(self, *args, **kwargs)
        if not is_sparse(self):
            return self.copy_(to_dense(result) if is_sparse(result) else result)
        if result.dtype != self.dtype:
            if not fl.can_cast(result.dtype, self.dtype):
                names = [
                    fl.empty(0, dtype=t.dtype).type().rpartition(".")[2].removesuffix("Tensor") for t in (result, self)
                ]
                raise RuntimeError(
                    f"[{fn.__name__}_] expected a result that fits {self.dtype}, got {result.dtype}: result type {names[0]} can't "
                    f"be cast to the desired output type {names[1]}"
                )
            result = result.to(self.dtype)
        return _ops._sparse_assign_(self, result)

    return write


def writes_out(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The out= form of a kernel."""

    def write(*args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        result = fn(*args, **kwargs)
        if not fl.can_cast(result.dtype, out.dtype):
            raise RuntimeError(
                f"[{fn.__name__}] expected an out that can hold {result.dtype}, got {out.dtype}: "
                f"result type {result.dtype} can't be cast to the desired output type {out.dtype}"
            )
        result = result if result.dtype == out.dtype else result.to(out.dtype)
        return _ops._sparse_assign_(out, result) if is_sparse(out) else out.copy_(result.to_dense())

    return write


def is_number(x: Any) -> bool:
    return not isinstance(x, Tensor) or (x.dim() == 0 and not is_sparse(x))


def same_shape(op: str, a: Tensor, b: Tensor) -> None:
    if a.shape != b.shape:
        raise RuntimeError(f"[{op}] expected sparse tensors of one shape, got {tuple(a.shape)} and {tuple(b.shape)}")


def sparse_dims(t: Tensor) -> int:
    indices = _ops._sparse_indices(t)
    return indices.shape[0] if t.layout is _C.sparse_coo else indices.dim() + 1  # batches take part


def wrapped(op: str, dim: int, dims: int) -> int:
    if not -dims <= dim < max(dims, 1):
        raise IndexError(
            f"[{op}] expected a dimension in [{-dims}, {dims - 1}], got {dim}: Dimension out of range (expected to be in range of "
            f"[{-dims}, {dims - 1}], but got {dim})"
        )
    return dim % dims if dims else 0


def like_layout(t: Tensor, other: Tensor) -> Tensor:
    """The tensor in the layout, and with the blocks, of another sparse one."""
    if other.layout is _C.sparse_coo:
        return to_coo(t)
    return compressed_form(to_coo(t), other.layout, block_of(other), t.dim() - sparse_dims(t))


def with_places_of(t: Tensor, other: Tensor) -> Tensor:
    """The compressed tensor with its places in the dtype of those of another."""
    dtype = _ops._sparse_indices(other).dtype
    if _ops._sparse_indices(t).dtype == dtype:
        return t
    starts, indices = _ops._sparse_starts(t).to(dtype), _ops._sparse_indices(t).to(dtype)
    columns, blocked = t.layout in COLUMNS, t.layout in BLOCKED
    return _ops._sparse_compressed(starts, indices, _ops._sparse_values(t), t.shape, columns, blocked)


# ---------------------------------------------------------------------------------------------- arithmetic


def add(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    if not is_sparse(self):
        return add_to_dense(self, other, alpha)
    if not is_sparse(other):
        if self.layout is not _C.sparse_coo:
            return add_to_dense(other if alpha == 1 else other * alpha, self, 1)
        raise RuntimeError("[add] expected add(dense, sparse), got add(sparse, dense)")
    same_shape("add", self, other)
    layout = self.layout
    if layout is not _C.sparse_coo or other.layout is not _C.sparse_coo:
        total = like_layout(add(to_coo(self), to_coo(other), alpha=alpha), self)
        return total if layout is _C.sparse_coo else with_places_of(total, self)
    (i, v), (j, w) = parts(self), parts(other)
    if i.shape[0] != j.shape[0]:
        raise RuntimeError(f"[add] expected as many sparse dimensions, got {i.shape[0]} and {j.shape[0]}")
    w = w if alpha == 1 else w * alpha
    if i.shape == j.shape and (i.data_ptr() == j.data_ptr() or fl.equal(i, j)):
        return with_values(self, v + w)
    both = _ops._sparse_is_coalesced(self) and _ops._sparse_is_coalesced(other)
    dtype = fl.result_type(v, w)
    total = _ops._sparse_coo(fl.cat([i, j], 1), fl.cat([v.to(dtype), w.to(dtype)]), self.shape)
    return coalesce(total) if both else total


def add_to_dense(self: Tensor, other: Tensor, alpha: Any) -> Tensor:
    if self.shape != other.shape:
        self = self.expand(fl.broadcast_shapes(self.shape, other.shape))
        same_shape("add", self, other)
    indices, values = parts(other)
    dims = indices.shape[0]
    dtype = fl.result_type(self, values)
    values = (values if alpha == 1 else values * alpha).to(dtype)
    flat = (
        self.to(dtype).reshape(math.prod(self.shape[:dims]), *self.shape[dims:])
        if dims
        else self.to(dtype).unsqueeze(0)
    )
    return flat.index_add(0, flat_places(indices, self.shape[:dims]), values).reshape(self.shape)


@kernel("add_.Tensor")
def add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    if is_sparse(self) or not self.is_contiguous() or self.requires_grad:
        return writes(add)(self, other, alpha=alpha)
    # Few elements of a large dense tensor: only they are touched.
    same_shape("add_", self, other)
    indices, values = parts(other)
    dims = indices.shape[0]
    flat = self.view(math.prod(self.shape[:dims]), *self.shape[dims:]) if dims else self.unsqueeze(0)
    flat.index_add_(0, flat_places(indices, self.shape[:dims]), values.to(self.dtype), alpha=alpha)
    return self


def sub(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    if is_sparse(self) and not is_sparse(other):
        raise RuntimeError("[sub] expected sub(dense, sparse), got sub(sparse, dense)")
    return add(self, other, alpha=-alpha)


def with_common_dense_sizes(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors of the same sparse sizes with their dense ones broadcast together."""
    dims = sparse_dims(a)
    both_coo = a.layout is _C.sparse_coo and b.layout is _C.sparse_coo
    if a.shape == b.shape or not both_coo or sparse_dims(b) != dims or a.shape[:dims] != b.shape[:dims]:
        return a, b
    shape = fl.broadcast_shapes(a.shape, b.shape)

    def expanded(t: Tensor) -> Tensor:
        indices, values = parts(t)
        values = values.expand(values.shape[0], *shape[dims:])
        return _ops._sparse_coo(indices, values, shape, _ops._sparse_is_coalesced(t))

    return expanded(a), expanded(b)


def mul(self: Tensor, other: Any) -> Tensor:
    if is_number(other):
        return with_values(self, _ops._sparse_values(self) * other)
    if is_number(self):
        return with_values(other, self * _ops._sparse_values(other))
    if not is_sparse(self) or not is_sparse(other):
        sparse, dense = (self, other) if is_sparse(self) else (other, self)
        if sparse.dim() == 0:
            return to_dense(sparse) * dense
        shape = fl.broadcast_shapes(sparse.shape, dense.shape)
        sparse, dense = broadcast_to(sparse, shape) if shape != sparse.shape else sparse, dense.expand(shape)
        indices, values = parts(sparse)
        return with_values(sparse, values * gather(dense, indices))
    if self.dim() == 0 or other.dim() == 0:
        return mul(self, to_dense(other)) if other.dim() == 0 else mul(to_dense(self), other)
    self, other = with_common_dense_sizes(self, other)
    same_shape("mul", self, other)
    (i, v), (j, w) = parts(self), parts(other)
    if i.shape == j.shape and fl.equal(i, j) and i.shape[1] == coalesce(to_coo(self))._nnz():
        return with_values(self, v * w)
    # Elements that both have.
    a, b = coalesce(to_coo(self)), coalesce(to_coo(other))
    (i, v), (j, w) = parts(a), parts(b)
    size = a.shape[: i.shape[0]]
    known, wanted = flat_places(j, size), flat_places(i, size)
    if known.numel() == 0:
        return like_layout(empty_coo(a.shape, i.shape[0], fl.result_type(v, w), v.device), self)
    at = fl.searchsorted(known, wanted).clamp(max=known.shape[0] - 1)
    common = (known[at] == wanted).nonzero().squeeze(1)
    product = v.index_select(0, common) * w.index_select(0, at[common])
    return like_layout(_ops._sparse_coo(i[:, common], product, a.shape, True), self)


def div(self: Tensor, other: Any) -> Tensor:
    if not is_sparse(self) or not is_number(other):
        raise RuntimeError("[div] expected a sparse tensor divided by a number, got another divisor")
    return with_values(self, _ops._sparse_values(self) / other)


@kernel("floor_divide")
def floor_divide(self: Tensor, other: Any) -> Tensor:
    return div_mode(self, other, rounding_mode="floor")


@kernel("div.Tensor_mode", "divide.Tensor_mode")
def div_mode(self: Tensor, other: Any, *, rounding_mode: Any) -> Tensor:
    if not is_sparse(self) or not is_number(other):
        raise RuntimeError("[div] expected a sparse tensor divided by a number, got another divisor")
    self = coalesce(to_coo(self)) if rounding_mode else self
    return with_values(self, fl.div(_ops._sparse_values(self), other, rounding_mode=rounding_mode))


kernel("add.Tensor")(add)
kernel("sub.Tensor", "subtract.Tensor")(sub)
kernel("mul.Tensor", "multiply.Tensor")(mul)
kernel("div.Tensor", "divide.Tensor", "true_divide.Tensor")(div)
kernel("sub_.Tensor", "subtract_.Tensor")(writes(sub))
kernel("mul_.Tensor", "multiply_.Tensor")(writes(mul))
kernel("div_.Tensor", "divide_.Tensor", "true_divide_.Tensor")(writes(div))
kernel("floor_divide_")(writes(floor_divide))
kernel("add.Tensor_out")(writes_out(add))
kernel("sub.Tensor_out", "subtract.Tensor_out")(writes_out(sub))
kernel("mul.Tensor_out", "multiply.Tensor_out")(writes_out(mul))
kernel("div.Tensor_out", "divide.Tensor_out", "true_divide.Tensor_out")(writes_out(div))
kernel("div.Tensor_mode_out", "divide.Tensor_mode_out")(writes_out(div_mode))
kernel("floor_divide.out")(writes_out(floor_divide))


def neg(self: Tensor) -> Tensor:
    return with_values(self, -_ops._sparse_values(self))


kernel("neg", "negative")(neg)
kernel("neg_", "negative_")(writes(neg))
kernel("neg.out", "negative.out")(writes_out(neg))


@kernel("pow.Tensor_Tensor")
def pow(self: Tensor, exponent: Any) -> Tensor:
    if not is_number(exponent) or not is_sparse(self):
        raise RuntimeError("[pow] expected a sparse tensor and a number, got another exponent")
    if not float(exponent) > 0:
        raise RuntimeError(f"[pow] expected a positive exponent, which keeps zeros, got {float(exponent)}")
    self = coalesce(self) if self.layout is _C.sparse_coo else self
    return with_values(self, _ops._sparse_values(self).pow(exponent))


kernel("pow_.Tensor_Tensor")(writes(pow))
kernel("pow.Tensor_Tensor_out")(writes_out(pow))


def keeps_zero(name: str) -> None:
    """An operator of one tensor that maps zero to zero works on the values alone."""
    base, dot, overload = name.partition(".")
    op = getattr(fl, base)

    def unary(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self = coalesce(self) if self.layout is _C.sparse_coo else self
        return with_values(self, op(_ops._sparse_values(self), *args, **kwargs))

    unary.__name__ = base
    kernel(name)(unary)
    out_name = f"{base}.{overload}_out" if overload else f"{base}.out"
    if _C._operator_exists(out_name):
        kernel(out_name)(writes_out(unary))

    def in_place(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.layout is _C.sparse_coo and not _ops._sparse_is_coalesced(self):
            raise RuntimeError(
                f"[{base}_] expected a coalesced tensor to write to, got one whose indices may repeat; coalesce() it first: "
                f"{base.replace('arc', 'a', 1)}_ requires coalesced input"
            )
        return writes(unary)(self, *args, **kwargs)

    if _C._operator_exists(f"{base}_{dot}{overload}"):
        kernel(f"{base}_{dot}{overload}")(in_place)


for _name in tags.operators("keeps_zero"):
    keeps_zero(_name)


@kernel("conj", "conj_physical")
def conj(self: Tensor) -> Tensor:
    values = _ops._sparse_values(self)
    return with_values(self, values.conj() if values.is_complex() else values)


@kernel("resolve_conj", "positive", "alias")
def same_values(self: Tensor) -> Tensor:
    return with_values(self, _ops._sparse_values(self))


kernel("conj_physical_")(writes(conj))
kernel("conj_physical.out")(writes_out(conj))

# ---------------------------------------------------------------------------------------------- reductions


@kernel("any")
def any(self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    if dim is not None:
        raise NotImplementedError("[any] expected no dimension for a sparse tensor, got one")
    return _ops._sparse_values(coalesce(to_coo(self))).any()


@kernel("norm")
def norm(self: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if dim is not None and len(dim):
        raise RuntimeError(
            f"[norm] expected no dimension for a sparse tensor, got {tuple(dim)}: norm_sparse currently only supports "
            "full reductions"
        )
    if keepdim:
        words = "norm_sparse currently does not support keepdim=True"
        raise RuntimeError(f"[norm] expected keepdim=False for a sparse tensor, got True: {words}")
    if dtype is not None and p == "fro":
        words = "dtype argument is not supported in frobenius norm"
        raise ValueError(f"[norm] expected no dtype for a sparse tensor, got {dtype}: {words}")
    if dtype is not None:
        words = "norm_sparse currently does not support 'dtype' argument"
        raise RuntimeError(f"[norm] expected no dtype for a sparse tensor, got {dtype}: {words}")
    return _ops._sparse_values(coalesce(to_coo(self))).flatten().norm(2 if p == "fro" else p, dtype=dtype)


@kernel("linalg_vector_norm")
def vector_norm(self: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return norm(self, ord, dim, keepdim, dtype=dtype)


def soften(op: str, self: Tensor, dim: int, dtype: Any) -> Tensor:
    """softmax or log_softmax along a dimension over the elements that are there."""
    self = coalesce(to_coo(self))
    indices, values = parts(self)
    values = values if dtype is None else values.to(dtype)
    dim, split = wrapped(op, dim, self.dim()), indices.shape[0]
    function = fl.softmax if op == "softmax" else fl.log_softmax
    if dim >= split:
        return with_values(self, function(values, dim - split + 1))
    others = [d for d in range(split) if d != dim]
    lines, group = _ops._sparse_groups(
        indices[others].reshape(len(others), indices.shape[1]), [self.shape[d] for d in others]
    )
    places = group.reshape(-1, *[1] * (values.dim() - 1)).expand(values.shape)
    lowest = fl.full((lines.shape[1], *values.shape[1:]), float("-inf"), dtype=values.dtype, device=values.device)
    largest = lowest.scatter_reduce(0, places, values.detach(), "amax")
    shifted = values - largest.index_select(0, group)
    exponentials = shifted.exp()
    total = fl.zeros_like(lowest).index_add(0, group, exponentials)
    if op == "softmax":
        return with_values(self, exponentials / total.index_select(0, group))
    return with_values(self, shifted - total.log().index_select(0, group))


@kernel("softmax.int")
def softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return soften("softmax", self, dim, dtype)


@kernel("log_softmax.int")
def log_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return soften("log_softmax", self, dim, dtype)


# ---------------------------------------------------------------------------------------------- products


def check_product(op: str, a: Tensor, b: Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"[{op}] expected (m, k) @ (k, n), got {tuple(a.shape)} @ {tuple(b.shape)}: mat1 and mat2 shapes cannot be multiplied "
            f"({'x'.join(map(str, a.shape))} and {'x'.join(map(str, b.shape))})"
        )
    for t in (a, b):
        if is_sparse(t) and sparse_dims(t) != 2:
            raise RuntimeError(f"[{op}] expected matrices without dense dimensions, got one with some")


@kernel("mm")
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    check_product("mm", self, mat2)
    if is_sparse(self) and is_sparse(mat2):
        product = mm_sparse(self, mat2)
        return to_compressed(product, _C.sparse_csr) if self.layout is _C.sparse_csc else like_layout(product, self)
    if is_sparse(self):
        (rows, columns), values = parts(self)
        return _ops._sparse_mm(rows, columns, values, mat2, self.shape[0])
    (rows, columns), values = parts(mat2)
    return _ops._sparse_mm(columns, rows, values, self.t(), mat2.shape[1]).t()


def mm_sparse(a: Tensor, b: Tensor) -> Tensor:
    """Every element of a meets the elements of that row of b; what falls on one place is added."""
    b = to_compressed(b, _C.sparse_csr)
    (rows, columns), v = parts(to_coo(a))
    starts, w = _ops._sparse_starts(b).long(), _ops._sparse_values(b)
    inner = _ops._sparse_indices(b).long()
    lengths = starts.diff()[columns]
    left = fl.repeat_interleave(fl.arange(lengths.shape[0], device=v.device), lengths)
    first = lengths.cumsum(0) - lengths
    right = fl.arange(left.shape[0], device=v.device) - first[left] + starts[columns][left]
    products = v.index_select(0, left) * w.index_select(0, right)
    return coalesce(_ops._sparse_coo(fl.stack([rows[left], inner[right]]), products, (a.shape[0], b.shape[1])))


@kernel("mv")
def mv(self: Tensor, vec: Tensor) -> Tensor:
    if vec.dim() != 1:
        raise RuntimeError(f"[mv] expected a vector, got {vec.dim()} dimensions")
    return mm(self, vec.unsqueeze(1)).squeeze(1)


@kernel("bmm")
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    if not is_sparse(self) or is_sparse(mat2) or self.dim() != 3 or mat2.dim() != 3:
        raise NotImplementedError("[bmm] expected a batch of sparse matrices and a dense batch, got others")
    if self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1]:
        raise RuntimeError(f"[bmm] expected (b, m, k) @ (b, k, n), got {tuple(self.shape)} @ {tuple(mat2.shape)}")
    (batch, rows, columns), values = parts(self)
    count, m, k = self.shape
    out = _ops._sparse_mm(batch * m + rows, batch * k + columns, values, mat2.reshape(-1, mat2.shape[2]), count * m)
    return out.reshape(count, m, -1)


@kernel("matmul")
def matmul(self: Tensor, other: Tensor) -> Tensor:
    if self.dim() == 2 and other.dim() == 2:
        return mm(self, other)
    if self.dim() == 2 and other.dim() == 1:
        return mv(self, other)
    if self.dim() == 1 and other.dim() == 2:
        return mm(self.unsqueeze(0), other).squeeze(0)
    return bmm(self, other)


@kernel("addmm")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # what self holds, NaN as well, takes no part
        return product
    if is_sparse(self) == is_sparse(product):
        return (self if beta == 1 else self * beta) + product
    dense, sparse = (product, self * beta) if is_sparse(self) else (self * beta, product)
    return dense + sparse


kernel("addmm_")(writes(addmm))


# ---------------------------------------------------------------------------------------------- shapes


@kernel("permute")
def permute(self: Tensor, dims: Sequence[int]) -> Tensor:
    order = [wrapped("permute", d, self.dim()) for d in dims]
    if sorted(order) != list(range(self.dim())):
        words = (
            "number of dimensions in the tensor input does not match the length of the desired ordering of dimensions"
        )
        if len(order) == self.dim():
            words = "duplicate dims are not allowed"
        raise RuntimeError(f"[permute] expected each of {self.dim()} dimensions once, got {tuple(dims)}: {words}")
    split = sparse_dims(self)
    if set(order[:split]) != set(range(split)):
        raise RuntimeError(
            "[permute] expected sparse dimensions to stay before dense ones, got them mixed: transpositions between sparse and dense "
            "dimensions are not allowed"
        )
    if list(dims) == list(range(self.dim())):
        return self
    if self.layout is not _C.sparse_coo:
        return _permute_compressed(self, order)
    indices, values = parts(self)
    inside = [0, *[d - split + 1 for d in order[split:]]]
    coalesced = self.is_coalesced() and dims[0] == 0  # and not its negative, as in PyTorch
    permuted = _ops._sparse_coo(indices[order[:split]], values.permute(inside), [self.shape[d] for d in order])
    if not coalesced and indices.shape[1] < 2:  # which PyTorch's permute says of no tensor that it reorders
        with fl.no_grad():
            _ops._sparse_coalesced_(permuted, False)
    return coalesce(permuted) if coalesced else permuted


def _permute_compressed(self: Tensor, order: list[int]) -> Tensor:
    starts, indices, values = _ops._sparse_starts(self), _ops._sparse_indices(self), _ops._sparse_values(self)
    batch, blocked = indices.dim() - 1, self.layout in BLOCKED
    if set(order[:batch]) != set(range(batch)):
        raise RuntimeError("[permute] expected batches to stay before rows and columns, got them mixed")
    swapped = order[batch] > order[batch + 1]
    leading = order[:batch]
    block = [batch + 2, batch + 1] if swapped else [batch + 1, batch + 2]
    inside = [d - batch - 2 + values.dim() - (self.dim() - batch - 2) for d in order[batch + 2 :]]
    values = values.permute([*leading, batch, *(block if blocked else []), *inside])
    columns = (self.layout in COLUMNS) != swapped
    size = [self.shape[d] for d in order]
    return _ops._sparse_compressed(
        starts.permute([*leading, batch]), indices.permute([*leading, batch]), values, size, columns, blocked
    )


@kernel("transpose")
def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    order = list(range(self.dim()))
    a, b = wrapped("transpose", dim0, self.dim()), wrapped("transpose", dim1, self.dim())
    order[a], order[b] = b, a
    transposed = permute(self, order)
    if self.layout is _C.sparse_coo and _ops._sparse_indices(self).shape[1] < 2:
        with fl.no_grad():
            _ops._sparse_coalesced_(transposed, True)
    return transposed


kernel("transpose_")(writes(transpose))
kernel("t_")(writes(lambda self: transpose(self, 0, 1)))


@kernel("unsqueeze")
def unsqueeze(self: Tensor, dim: int) -> Tensor:
    self = to_coo(self)
    dim, split = wrapped("unsqueeze", dim, self.dim() + 1), sparse_dims(self)
    indices, values = parts(self)
    size = [*self.shape[:dim], 1, *self.shape[dim:]]
    if dim > split:
        return _ops._sparse_coo(indices, values.unsqueeze(dim - split + 1), size, self.is_coalesced())
    row = fl.zeros(1, indices.shape[1], dtype=_C.int64, device=indices.device)
    return _ops._sparse_coo(fl.cat([indices[:dim], row, indices[dim:]]), values, size, self.is_coalesced())


@kernel("squeeze.dim")
def squeeze(self: Tensor, dim: int) -> Tensor:
    dim = wrapped("squeeze", dim, self.dim())
    return select(self, dim, 0) if self.shape[dim] == 1 else self


@kernel("select")
def select(self: Tensor, dim: int, index: int) -> Tensor:
    dim = wrapped("select", dim, self.dim())
    length = self.shape[dim]
    if not -length <= index < length:
        raise IndexError(
            f"[select] expected an index in [{-length}, {length - 1}], got {index}: select(): index {index} out of range for tensor of "
            f"size {list(self.shape)} at dimension {dim}"
        )
    if self.layout in COMPRESSED:
        batches = _ops._sparse_indices(self).dim() - 1
        if batches and batches <= dim < batches + 2:
            raise RuntimeError(
                f"[select] expected a dimension of batches or a dense one, got {dim}: selecting sparse dimensions is not "
                "supported for batched sparse compressed tensors. Select the batches first"
            )
        if not batches <= dim < batches + 2:
            return _selected_in_compressed(self, dim, index, batches)
    self = coalesce(to_coo(self))
    indices, values = parts(self)
    split = indices.shape[0]
    size = [*self.shape[:dim], *self.shape[dim + 1 :]]
    if dim >= split:
        return _ops._sparse_coo(indices, values.select(dim - split + 1, index), size, True)
    matching = (indices[dim] == index % length).nonzero().squeeze(1)
    chosen = values.index_select(0, matching)
    if split == 1:
        return chosen.sum(0, dtype=chosen.dtype)
    rest = fl.cat([indices[:dim], indices[dim + 1 :]])[:, matching]
    return _ops._sparse_coo(rest, chosen, size, True)


def _selected_in_compressed(self: Tensor, dim: int, index: int, batches: int) -> Tensor:
    """One of the matrices, or one of the elements in a dense dimension, in the layout of the tensor."""
    starts, indices, values = _ops._sparse_starts(self), _ops._sparse_indices(self), _ops._sparse_values(self)
    if dim < batches:
        starts, indices, values = (part.select(dim, index) for part in (starts, indices, values))
    else:
        values = values.select(dim - self.dim(), index)
    size = [*self.shape[:dim], *self.shape[dim + 1 :]]
    return _ops._sparse_compressed(starts, indices, values, size, self.layout in COLUMNS, self.layout in BLOCKED)


@kernel("unbind.int")
def unbind(self: Tensor, dim: int = 0) -> list[Tensor]:
    return [select(self, dim, i) for i in range(self.shape[wrapped("unbind", dim, self.dim())])]


@kernel("cat")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    for t in tensors:
        if not is_sparse(t):
            raise RuntimeError("[cat] expected sparse tensors only, got a strided one among them")
    tensors = [to_coo(t) for t in tensors]
    first = tensors[0]
    dim, split = wrapped("cat", dim, first.dim()), sparse_dims(first)
    for t in tensors:
        if sparse_dims(t) != split or [*t.shape[:dim], *t.shape[dim + 1 :]] != [
            *first.shape[:dim],
            *first.shape[dim + 1 :],
        ]:
            raise RuntimeError(
                f"[cat] expected shapes equal but for dimension {dim}, got {[tuple(t.shape) for t in tensors]}: All tensors must have "
                f"the same shape: {' and '.join(str(list(t.shape)) for t in tensors)} differ elsewhere"
            )
    size = list(first.shape)
    size[dim] = 0
    rows, values = [], []
    for t in tensors:
        i, v = parts(t)
        if dim < split:
            i = fl.cat([i[:dim], i[dim : dim + 1] + size[dim], i[dim + 1 :]])
        else:  # the other tensors have nothing there
            before = fl.zeros(*v.shape[: dim - split + 1], size[dim], *v.shape[dim - split + 2 :], dtype=v.dtype)
            total = 0
            for other in tensors:
                total += other.shape[dim]
            after_size = total - size[dim] - t.shape[dim]
            after = fl.zeros(*v.shape[: dim - split + 1], after_size, *v.shape[dim - split + 2 :], dtype=v.dtype)
            v = fl.cat([before, v, after], dim - split + 1)
        rows.append(i)
        values.append(v)
        size[dim] += t.shape[dim]
    return _ops._sparse_coo(fl.cat(rows, 1), fl.cat(values), size)


@kernel("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dim = wrapped("stack", dim, tensors[0].dim() + 1)
    return cat([unsqueeze(t, dim) for t in tensors], dim)


# ---------------------------------------------------------------------------------------------- copies


@kernel("clone")
def clone(self: Tensor, *, memory_format: Any = None) -> Tensor:
    return rebuilt(self, lambda t: t.clone())


def rebuilt(self: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The tensor with each of its parts changed alike."""
    if self.layout is _C.sparse_coo:
        indices, values = change(_ops._sparse_indices(self)), change(_ops._sparse_values(self))
        return _ops._sparse_coo(indices, values, self.shape, _ops._sparse_is_coalesced(self))
    starts, indices = change(_ops._sparse_starts(self)), change(_ops._sparse_indices(self))
    values = change(_ops._sparse_values(self))
    return _ops._sparse_compressed(starts, indices, values, self.shape, self.layout in COLUMNS, self.layout in BLOCKED)


@kernel("detach")
def detach(self: Tensor) -> Tensor:
    return with_values(self, _ops._sparse_values(self).detach())


@kernel("_to_copy")
def to_copy(self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any) -> Tensor:
    out = self if layout is None or layout is self.layout else _to_layout(self, layout)
    if not is_sparse(out):
        return out.to(device=device, dtype=dtype)
    moved = rebuilt(out, lambda t: t.to(device) if device is not None else t.clone())
    return moved if dtype is None else with_values(moved, _ops._sparse_values(moved).to(dtype))


def _to_layout(self: Tensor, layout: Any) -> Tensor:
    from flambeau.sparse.construction import to_sparse

    return to_sparse(self, layout=layout)


@kernel("copy_")
def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if not is_sparse(self) or not is_sparse(src):
        raise RuntimeError("[copy_] expected both tensors sparse or both strided, got one of each; use to_dense()")
    if self.shape != src.shape:
        raise RuntimeError(f"[copy_] expected shape {tuple(self.shape)}, got {tuple(src.shape)}")
    return _ops._sparse_assign_(self, clone(src if src.dtype == self.dtype else src.to(self.dtype)))


@kernel("zero_")
def zero_(self: Tensor) -> Tensor:
    return _ops._sparse_assign_(self, zeros_like(self))


@kernel("empty_like")
def empty_like(self: Tensor, *, layout: Any = None, memory_format: Any = None, **options: Any) -> Tensor:
    if layout is _C.strided:
        return fl.empty_like(to_dense(self), memory_format=memory_format or _C.preserve_format, **options)
    if memory_format is not None:
        raise RuntimeError(
            f"[empty_like] expected no memory format for a sparse tensor, got {memory_format}: memory format option is only supported by "
            "strided tensors"
        )
    if self.layout in COMPRESSED and layout not in (None, self.layout):
        raise RuntimeError(
            f"[empty_like] expected the layout {self.layout} of the tensor, got {layout}: empty_like with different sparse "
            "layout is not supported; use zeros_like, or to_sparse(layout=) of the tensor"
        )
    if self.layout in COMPRESSED:  # elements in the same places, whose values are anything
        return with_values(self, fl.empty_like(_ops._sparse_values(self), **options))
    return zeros_like(self, layout=layout, **options)


@kernel("zeros_like")
def zeros_like(self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any) -> Tensor:
    if layout is _C.strided:
        return fl.zeros(self.shape, dtype=dtype or self.dtype, device=device or self.device)
    dtype, device, layout = dtype or self.dtype, device or self.device, layout or self.layout
    if layout is _C.sparse_coo or self.layout is _C.sparse_coo:
        empty = empty_coo(self.shape, sparse_dims(self), dtype, device)
        return empty if layout is _C.sparse_coo else compressed_form(empty, layout, (), self.dim() - sparse_dims(self))
    if (layout in COLUMNS) != (self.layout in COLUMNS) or (layout in BLOCKED) != (self.layout in BLOCKED):
        empty = empty_coo(self.shape, sparse_dims(self), dtype, device)
        return compressed_form(
            empty, layout, block_of(self) or ((1, 1) if layout in BLOCKED else ()), self.dim() - sparse_dims(self)
        )
    starts, indices, values = _ops._sparse_starts(self), _ops._sparse_indices(self), _ops._sparse_values(self)
    count = indices.dim() - 1
    plain = fl.zeros([*indices.shape[:-1], 0], dtype=indices.dtype, device=device)
    stored = fl.zeros([*values.shape[:count], 0, *values.shape[count + 1 :]], dtype=dtype, device=device)
    return _ops._sparse_compressed(
        fl.zeros_like(starts, device=device), plain, stored, self.shape, layout in COLUMNS, layout in BLOCKED
    )


# ---------------------------------------------------------------------------------------------- optimizer steps


@kernel("_update_sgd_")
def update_sgd_(
    param: Sequence[Tensor], grad: Sequence[Tensor], *, lr: float, weight_decay: float, maximize: bool
) -> None:
    """Rows that have no gradient stay as they are, unless weights decay."""
    for p, g in zip(param, grad):
        if is_sparse(g) and weight_decay == 0:
            p.add_(g, alpha=lr if maximize else -lr)
        else:
            _ops._update_sgd_([p], [to_dense(g)], lr=lr, weight_decay=weight_decay, maximize=maximize)


def takes_dense(name: str) -> None:
    """A step that is the same with the zeros of the gradient written out."""

    def step(param: Sequence[Tensor], grad: Sequence[Tensor], *state: Any, **numbers: Any) -> None:
        lists = [[to_dense(t) for t in each] for each in (param, grad, *state)]
        getattr(_ops, name)(*lists, **numbers)

    kernel(name)(step)


takes_dense("_update_sgd_momentum_")
takes_dense("_update_adagrad_")


__all__ = ["KERNELS", "coordinates", "register", "to_dense"]
