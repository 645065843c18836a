"""Sparse tensors: `torch.sparse` and what makes tensors of the layouts sparse_coo, sparse_csr and sparse_csc work.

construction.py   making sparse tensors and taking them apart
kernels.py        what operators do with them, written on their parts
factories.py      zeros, and tensors like other sparse ones
products.py       products beyond mm: layers, sums with products, triangular systems
complex_parts.py  complex elements as pairs of numbers, and back
methods.py        methods that only they have
semi_structured.py  matrices of which two of every four elements are there
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor
from flambeau.sparse import complex_parts, construction, factories, kernels, products, selecting, summing  # noqa: F401 (registers kernels)
from flambeau.sparse.construction import (
    coalesce,
    coordinates,
    is_sparse,
    sparse_coo_tensor,
    to_coo,
    with_values,
)

__all__ = [
    "addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum",
    "as_sparse_gradcheck", "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS", "to_sparse_semi_structured",
]  # fmt: skip

_WITH_KERNELS = (factories, kernels, products)
kernels.register()


def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of matrices of which at least one is sparse; gradients reach the elements that are there."""
    if reduce in (None, "sum"):
        return fl.mm(mat1, mat2)
    # Other reductions over the products of a row: mean, amax, amin.
    (rows, columns), values = coordinates(mat1), _ops._sparse_values(mat1)
    products = values.unsqueeze(1) * mat2.index_select(0, columns)
    places = rows.unsqueeze(1).expand(products.shape)
    out = fl.zeros(mat1.shape[0], mat2.shape[1], dtype=products.dtype, device=products.device)
    return out.scatter_reduce(0, places, products, reduce, include_self=False)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2)."""
    return fl.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all elements, or along some dimensions; sparse as long as a sparse dimension is left."""
    if not is_sparse(input):
        return input.sum(dtype=dtype) if dim is None else input.sum(dim, dtype=dtype)
    return summing.sum_of_elements(input, dim, dtype=dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Softmax over the elements that are there."""
    return fl.softmax(input, dim, dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Logarithm of the softmax over the elements that are there."""
    return fl.log_softmax(input, dim, dtype)


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) at the coordinates of a sparse input only."""
    if not is_sparse(input):
        raise RuntimeError("[sampled_addmm] expected a sparse input, got a strided one")
    *batch, rows, columns = coordinates(input)
    other = mat2.mT
    if batch:  # one product of all rows with all columns, of which those of the same matrix are asked for
        item = construction.flat_places(fl.stack(batch), input.shape[:-2])
        rows, columns = rows + item * input.shape[-2], columns + item * input.shape[-1]
        mat1, other = mat1.reshape(-1, mat1.shape[-1]), other.reshape(-1, other.shape[-1])
    products = _ops._sparse_dots(rows, columns, mat1, other)
    values = _ops._sparse_values(input)
    result = with_values(input, values * beta + (products * alpha).reshape(values.shape))
    return result if out is None else out.copy_(result)


def _check_diagonals(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any) -> None:
    count = 1 if diagonals.dim() == 1 else diagonals.shape[0] if diagonals.dim() else 0
    for holds, expected, got, words in (
        (len(shape) == 2, "a shape of two sizes", tuple(shape), "Output shape must be 2d"),
        (offsets.dim() <= 1, "offsets of at most one dimension", tuple(offsets.shape), "Offsets must be scalar or vector"),
        (diagonals.dim() in (1, 2), "diagonals of one or two dimensions", tuple(diagonals.shape), "Diagonals must be vector or matrix"),
        (
            offsets.numel() == count, f"{count} offsets", offsets.numel(),
            f"Number of diagonals ({count}) does not match the number of offsets ({offsets.numel()})",
        ),
        (
            layout in (None, _C.sparse_coo, _C.sparse_csr, _C.sparse_csc), "a sparse layout", layout,
            f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {construction.layout_name(layout)}",
        ),
        (
            offsets.dtype == fl.int64, "offsets of int64", offsets.dtype,
            f"Offset Tensor must have dtype Long but got {str(offsets.dtype).rpartition('.')[2].capitalize()}",
        ),
    ):  # fmt: skip
        if not holds:
            raise RuntimeError(f"[spdiags] expected {expected}, got {got}: {words}")
    if offsets.unique().numel() != offsets.numel():
        raise RuntimeError(
            "[spdiags] expected distinct offsets, got repeated ones: Offset tensor contains duplicate values"
        )


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Tensor:
    """A sparse matrix with the given rows as its diagonals."""
    _check_diagonals(diagonals, offsets, shape, layout)
    diagonals = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    offsets = offsets.reshape(-1)
    rows, columns = shape
    column = fl.arange(diagonals.shape[1]).expand(diagonals.shape)
    row = column - offsets.unsqueeze(1)
    inside = (row >= 0) & (row < rows) & (column < columns)
    matrix = sparse_coo_tensor(fl.stack([row[inside], column[inside]]), diagonals[inside], (rows, columns))
    return matrix if layout in (None, _C.sparse_coo) else matrix.to_sparse(layout=layout)


class check_sparse_tensor_invariants:
    """Whether the parts of a sparse tensor are checked when it is made. They always are; the switch is remembered."""

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        self.saved, check_sparse_tensor_invariants._enabled = self.is_enabled(), self.state

    def __exit__(self, *error: Any) -> None:
        check_sparse_tensor_invariants._enabled = bool(self.saved)

    def __call__(self, function: Any) -> Any:
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """A gradcheck that takes sparse inputs and outputs: it varies the values of their elements."""

    def check(function: Any, inputs: Any, **options: Any) -> bool:
        inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        options.pop("masked", None)
        strided = [
            _ops._sparse_values(coalesce(to_coo(t))).detach().requires_grad_() if is_sparse(t) else t for t in inputs
        ]
        patterns = [coalesce(to_coo(t)).detach() if is_sparse(t) else None for t in inputs]

        def on_values(*values: Any) -> Any:
            args = [v if p is None else with_values(p, v) for v, p in zip(values, patterns)]
            out = function(*args)
            outs = out if isinstance(out, (tuple, list)) else (out,)
            return tuple(t.to_dense() if is_sparse(t) else t for t in outs)

        return gradcheck(on_values, tuple(strided), **options)

    return check


class _LegacyType(type):
    """Classes such as `torch.sparse.FloatTensor`: a constructor, and a test for isinstance."""

    dtype: Any = None

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, Tensor) and obj.is_sparse and obj.dtype is cls.dtype

    def __call__(cls, *args: Any, **options: Any) -> Tensor:
        if len(args) < 2 or not isinstance(args[1], Tensor):  # sizes, or nothing
            size = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            return sparse_coo_tensor(size=size or (0,), dtype=cls.dtype)
        return sparse_coo_tensor(*args, dtype=cls.dtype, **options)


def __getattr__(name: str) -> Any:
    kinds = {
        "FloatTensor": _C.float32, "DoubleTensor": _C.float64, "HalfTensor": _C.float16, "BFloat16Tensor": _C.bfloat16,
        "LongTensor": _C.int64, "IntTensor": _C.int32, "ShortTensor": _C.int16, "CharTensor": _C.int8,
        "ByteTensor": _C.uint8,
    }  # fmt: skip
    if "SemiStructured" in name or name == "to_sparse_semi_structured":
        from importlib import import_module

        return getattr(import_module("flambeau.sparse.semi_structured"), name)
    if name not in kinds:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    legacy_type = _LegacyType(name, (), {"dtype": kinds[name], "is_sparse": True, "layout": _C.sparse_coo})
    globals()[name] = legacy_type
    return legacy_type


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
