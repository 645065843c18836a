"""Matrices of which two of every four elements in a row may be other than zero.

`to_sparse_semi_structured` packs one: half the values, and for each its place in its four. Products unpack it and multiply
densely, on every device: a matrix takes 5/8 of the memory in half precision, and no less time. The instructions of GPUs for
such matrices (`mma.sp`, `wgmma.sp`) are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import flambeau as fl
from flambeau import _C

Rule = TypeVar("Rule", bound=Callable[..., Any])
_RULES: dict[str, Any] = {}
_DTYPES = (fl.float16, fl.bfloat16, fl.float32, fl.int8)


class SparseSemiStructuredTensor(fl.Tensor):
    """A 2:4 sparse matrix, or its transpose: multiplied, transposed, copied and made dense; nothing else."""

    packed: fl.Tensor  # (rows, columns / 2)
    meta: fl.Tensor  # places 0 to 3 in their four, int8, like packed
    transposed: bool
    __torch_function__ = _C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls, shape: Any, packed: fl.Tensor, meta: fl.Tensor, transposed: bool = False, requires_grad: bool = False
    ) -> SparseSemiStructuredTensor:
        options = {"dtype": packed.dtype, "device": packed.device, "requires_grad": requires_grad}
        self = fl.Tensor._make_wrapper_subclass(cls, tuple(shape), **options)  # type: ignore[arg-type]
        self.packed, self.meta, self.transposed = packed, meta, transposed
        return self

    @classmethod
    def from_dense(cls, original_tensor: fl.Tensor) -> SparseSemiStructuredTensor:
        """Packs a matrix; raises where more than two elements of four are not zero."""
        _check(original_tensor)
        rows, columns = original_tensor.shape
        fours = original_tensor.detach().reshape(rows, columns // 4, 4)
        if bool(((fours != 0).sum(-1) > 2).any()):
            raise ValueError(
                "[to_sparse_semi_structured] expected at most two elements of every four in a row that are not zero, "
                "got more; prune the matrix first"
            )
        places = (fours == 0).to(fl.int8).argsort(dim=-1, stable=True)[..., :2].sort(-1).values
        packed = fours.gather(-1, places).reshape(rows, columns // 2)
        return cls((rows, columns), packed, places.to(fl.int8).reshape(rows, columns // 2))

    def to_dense(self, *args: Any, **kwargs: Any) -> fl.Tensor:
        rows = self.packed.shape[0]
        fours = fl.zeros(rows, self.packed.shape[1] // 2, 4, dtype=self.packed.dtype, device=self.packed.device)
        places = self.meta.to(fl.int64).reshape(rows, -1, 2)
        dense = fours.scatter(-1, places, self.packed.reshape(rows, -1, 2)).reshape(rows, -1)
        return dense.t() if self.transposed else dense

    def values(self) -> fl.Tensor:  # type: ignore[override]
        return self.packed

    def indices(self) -> fl.Tensor:  # type: ignore[override]
        return self.meta

    def _like(self, change: Any, transposed: bool | None = None) -> SparseSemiStructuredTensor:
        """The same places, with values changed by a function."""
        turned = self.transposed if transposed is None else transposed
        shape = tuple(self.shape) if turned == self.transposed else tuple(self.shape)[::-1]
        packed = change(self.packed)
        return type(self)(shape, packed, self.meta.to(packed.device), turned)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["packed", "meta"], (tuple(self.shape), self.transposed, self.requires_grad)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, outer_size: Any, outer_stride: Any) -> Any:
        shape, transposed, requires_grad = context
        return cls(shape, inner["packed"], inner["meta"], transposed, requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = _RULES.get(func.__name__.partition(".")[0])
        if rule is None:
            raise NotImplementedError(
                f"[{func.__name__}] expected an operator of 2:4 sparse matrices, got one that needs to_dense() first: "
                f"{cls.__name__} only supports a specific set of operations"
            )
        return rule(func, *args, **(kwargs or {}))

    def __repr__(self, **options: Any) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)}, transposed={self.transposed})"


SparseSemiStructuredTensorCUTLASS = SparseSemiStructuredTensor
SparseSemiStructuredTensorCUSPARSELT = SparseSemiStructuredTensor


def to_sparse_semi_structured(original_tensor: fl.Tensor, transposed: bool = False) -> SparseSemiStructuredTensor:
    """A matrix with at most two of every four elements in a row other than zero, packed.

    >>> weight = flambeau.tensor([0.0, 0.0, 1.0, 2.0] * 4).expand(16, 16)
    >>> flambeau.sparse.to_sparse_semi_structured(weight.contiguous())
    SparseSemiStructuredTensor(shape=(16, 16), transposed=False)
    """
    if transposed:
        import warnings

        warnings.warn("`transposed` has no effect; call .t() on the result", FutureWarning, stacklevel=2)
    return SparseSemiStructuredTensor.from_dense(original_tensor)


def _check(matrix: fl.Tensor) -> None:
    op = "[to_sparse_semi_structured] expected"
    if matrix.dim() != 2:
        raise RuntimeError(f"{op} a matrix, got {matrix.dim()} dimensions: Only 2d tensors are currently supported")
    if not matrix.is_contiguous():
        raise RuntimeError(f"{op} a contiguous matrix, got strides {tuple(matrix.stride())}")
    if matrix.dtype not in _DTYPES:
        raise RuntimeError(f"{op} one of {', '.join(map(str, _DTYPES))}, got {matrix.dtype}")
    if matrix.shape[1] % 4:
        raise RuntimeError(f"{op} rows of whole fours, got {matrix.shape[1]} columns")


def _dense(value: Any) -> Any:
    return value.to_dense() if isinstance(value, SparseSemiStructuredTensor) else value


def rule(*names: str) -> Callable[[Rule], Rule]:
    """What is done for operators of these names."""

    def add(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return add


@rule("mm", "addmm", "bmm", "linear")
def _densely(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*map(_dense, args), **kwargs)


@rule("t", "transpose")
def _transpose(func: Any, matrix: Any, first: int = 0, second: int = 1) -> Any:
    return matrix._like(lambda packed: packed, matrix.transposed ^ (first % 2 != second % 2))


@rule("view")
def _view(func: Any, matrix: Any, shape: Any) -> Any:
    if tuple(shape) != tuple(matrix.shape):
        raise NotImplementedError(f"[view] expected the shape of the matrix, {tuple(matrix.shape)}, got {tuple(shape)}")
    return matrix._like(lambda packed: packed)


@rule("detach", "alias", "clone", "_to_copy")
def _on_values(func: Any, matrix: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("memory_format", None)
    return matrix._like(lambda packed: func(packed, *args, **kwargs))
