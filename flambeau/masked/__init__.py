"""Reductions and normalisations that leave out the elements where a bool mask is False; tensors that have such a mask.

Left-out elements are replaced by the identity of the operation, so each function is the plain op on a filled input. A
`MaskedTensor` brings its own mask (`maskedtensor`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Union

import flambeau as fl
from flambeau import Tensor
from flambeau.ops.reductions import identities
from flambeau.ops.reductions.identities import highest as _highest
from flambeau.ops.reductions.identities import lowest as _lowest

_reduction_identity = identities.reduction_identity

Dim = Union[int, Sequence[int], None]

__all__ = [
    "sum", "prod", "cumsum", "cumprod", "amax", "amin", "argmax", "argmin", "mean", "median", "logsumexp", "logaddexp",
    "norm", "var", "std", "softmax", "log_softmax", "softmin", "normalize",
    "MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor",
]  # fmt: skip

INF = float("inf")


def _dims(input: Tensor, dim: Dim) -> list[int]:
    """Dimensions as a list; None and () mean all."""
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(input.dim()))
    rank = max(input.dim(), 1)
    dims = [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -rank <= d < rank:
            raise IndexError(f"[masked] expected dim in [{-rank}, {rank - 1}], got {d}")
    if len({d % rank for d in dims}) != len(dims):
        raise RuntimeError(f"[masked] expected each dimension once, got {tuple(dims)}")
    return [] if input.dim() == 0 else [d % rank for d in dims]


def _fill(input: Tensor, mask: Tensor | None, value: complex) -> Tensor:
    """The input with left-out elements replaced by a value."""
    if mask is None:
        return input
    if mask.dim() > input.dim():
        raise IndexError(f"[masked] expected a mask of at most {input.dim()} dimensions, got {mask.dim()}")
    return fl.where(mask, input, fl.full((), value, dtype=input.dtype, device=input.device))


def _count(input: Tensor, mask: Tensor | None, dims: list[int], keepdim: bool) -> Tensor:
    """How many elements take part in each result."""
    counted = fl.ones_like(input, dtype=fl.bool) if mask is None else mask.expand(input.shape)
    return fl.sum(counted, dims, keepdim) if dims else counted.to(fl.int64)


def _wide(dtype: fl.dtype | None, input: Tensor) -> fl.dtype:
    """The dtype of sums and products: int64 for narrow integers."""
    if dtype is not None:
        return dtype
    return input.dtype if input.is_floating_point() or input.is_complex() else fl.int64


def sum(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: fl.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    dtype, dims = _wide(dtype, input), _dims(input, dim)
    filled = _fill(input.to(dtype), mask, 0)
    return fl.sum(filled, dims, keepdim) if dims else filled.clone()


def prod(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: fl.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    result = _fill(input.to(_wide(dtype, input)), mask, 1)
    for d in sorted(_dims(input, dim), reverse=True):
        result = fl.prod(result, d, keepdim)
    return result


def cumsum(input: Tensor, dim: int, *, dtype: fl.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    return fl.cumsum(_fill(input.to(_wide(dtype, input)), mask, 0), dim)


def cumprod(input: Tensor, dim: int, *, dtype: fl.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    return fl.cumprod(_fill(input.to(_wide(dtype, input)), mask, 1), dim)


def amax(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: fl.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    return fl.amax(_fill(input, mask, _lowest(input.dtype)), _dims(input, dim), keepdim)


def amin(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: fl.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    return fl.amin(_fill(input, mask, _highest(input.dtype)), _dims(input, dim), keepdim)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: fl.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    return fl.argmax(_fill(input, mask, _lowest(input.dtype)), dim, keepdim).to(input.dtype)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: fl.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    return fl.argmin(_fill(input, mask, _highest(input.dtype)), dim, keepdim).to(input.dtype)


def mean(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: fl.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    if dtype is None and not (input.is_floating_point() or input.is_complex()):
        raise ValueError(f"[masked.mean] expected a floating point or complex dtype, got {input.dtype}")
    total = sum(input, dim, keepdim=keepdim, dtype=dtype or input.dtype, mask=mask)
    return fl.div(total, _count(input, mask, _dims(input, dim), keepdim))


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: fl.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    if not input.is_floating_point():
        raise ValueError(f"[masked.median] expected a floating point dtype, got {input.dtype}")
    if mask is not None and not input.is_meta and bool(fl.isnan(input).any()):
        raise ValueError("[masked.median] expected a masked input without NaN, got some")
    if mask is None:
        return fl.median(input, dim, keepdim).values
    return fl.nanmedian(_fill(input, mask, float("nan")), dim, keepdim).values


def logsumexp(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: fl.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    values = input if input.is_floating_point() or input.is_complex() else input.to(fl.get_default_dtype())
    return fl.logsumexp(_fill(values, mask, -INF), _dims(input, dim), keepdim).to(input.dtype)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: fl.dtype | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    dtype = dtype or input.dtype
    return fl.logaddexp(_fill(input.to(dtype), input_mask, -INF), _fill(other.to(dtype), other_mask, -INF))


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dim = None,
    *,
    keepdim: bool = False,
    dtype: fl.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    order = 2.0 if ord is None else ord
    filled = _fill(input if dtype is None else input.to(dtype), mask, INF if order < 0 else 0)
    return fl.norm(filled, order, _dims(input, dim), keepdim)


def var(
    input: Tensor,
    dim: Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: fl.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    if unbiased is not None and correction is not None:
        raise ValueError("[masked.var] expected one of unbiased and correction, got both")
    if correction is None:
        correction = 0.0 if unbiased is False else 1.0
    dims = _dims(input, dim)
    if dtype is None and not (input.is_floating_point() or input.is_complex()):
        dtype = fl.float32
    x = input if dtype is None else input.to(dtype)
    centre = fl.div(sum(x, dims or None, keepdim=True, mask=mask), _count(x, mask, dims, True))
    deviation = _fill(x - centre, mask, 0)
    square = fl.real(deviation * deviation.conj()) if x.is_complex() else deviation * deviation
    total = fl.sum(square, dims, keepdim) if dims else square
    divisor = fl.clamp_min(_count(x, mask, dims, keepdim) - correction, 0)
    return fl.div(total, divisor.to(total.dtype)).to(x.dtype)


def std(
    input: Tensor,
    dim: Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: fl.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    return fl.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask))


def softmax(input: Tensor, dim: int, *, dtype: fl.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    return fl.nn.functional.softmax(_fill(input if dtype is None else input.to(dtype), mask, -INF), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: fl.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    return fl.nn.functional.log_softmax(_fill(input if dtype is None else input.to(dtype), mask, -INF), dim)


def softmin(input: Tensor, dim: int, *, dtype: fl.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    return fl.nn.functional.softmax(-_fill(input if dtype is None else input.to(dtype), mask, INF), dim)


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: fl.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    input = input if dtype is None else input.to(dtype)
    size = norm(input, ord, dim, keepdim=True, mask=mask)
    return fl.div(_fill(input, mask, 0), fl.clamp_min(size, eps))


def _of_sparse(function: Callable[..., Tensor], input: Tensor, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """The function of a sparse tensor, whose other elements are zero; of a sparse mask they are False. The result has the
    layout of the tensor where it has as many dimensions."""
    dense = {k: v.to_dense() if isinstance(v, Tensor) and v.layout is not fl.strided else v for k, v in kwargs.items()}
    result = function(input.to_dense(), *args, **dense)
    return result.to_sparse(layout=input.layout) if result.dim() == input.dim() else result


def _with_own_mask(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function for tensors with masks, too: as for their data with their mask."""

    @functools.wraps(function)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if isinstance(input, MaskedTensor):
            name = "input_mask" if function.__name__ == "logaddexp" else "mask"
            kwargs.setdefault(name, input.get_mask())
            input = input.get_data()
        if isinstance(input, Tensor) and input.layout is not fl.strided:
            return _of_sparse(function, input, args, kwargs)
        for name, mask in kwargs.items():
            if (
                name.endswith("mask")
                and isinstance(mask, Tensor)
                and mask.dtype != fl.bool
                and mask.layout is fl.strided
            ):
                kwargs[name] = mask.bool()
        return function(input, *args, **kwargs)

    return run


for _name in __all__:
    if _name in globals():
        globals()[_name] = _with_own_mask(globals()[_name])

from flambeau.masked.maskedtensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor  # noqa: E402
