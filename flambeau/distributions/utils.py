"""Small tools that distributions share: broadcasting of parameters, probabilities and logits, triangular matrices."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import flambeau as fl
from flambeau.overrides import is_tensor_like

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[fl.Tensor, ...]:
    """The values as tensors of one shape. Numbers take the dtype and device of the first tensor among them."""
    tensors = [value for value in values if is_tensor_like(value)]
    if len(tensors) < len(values):
        bad = [value for value in values if not is_tensor_like(value) and not isinstance(value, Number)]
        if bad:
            raise ValueError(f"[broadcast_all] expected numbers and tensors, got {type(bad[0]).__name__}")
        kind = (
            {"dtype": tensors[0].dtype, "device": tensors[0].device} if tensors else {"dtype": fl.get_default_dtype()}
        )
        values = tuple(value if is_tensor_like(value) else fl.tensor(value, **kind) for value in values)
    return tuple(fl.broadcast_tensors(*values))


def _standard_normal(shape: Any, dtype: Any, device: Any) -> fl.Tensor:
    return fl.empty(shape, dtype=dtype, device=device).normal_()


def _sum_rightmost(value: fl.Tensor, dim: int) -> fl.Tensor:
    """The sum over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[: value.dim() - dim], -1)).sum(-1)


def open_uniform(shape: Any, like: fl.Tensor) -> fl.Tensor:
    """Uniform numbers strictly between 0 and 1, so that their logarithms are finite."""
    info = fl.finfo(like.dtype)
    return fl.rand(shape, dtype=like.dtype, device=like.device).clamp(min=info.tiny, max=1 - info.eps / 2)


def clamp_probs(probs: fl.Tensor) -> fl.Tensor:
    """Probabilities kept away from 0 and 1 by the precision of their dtype."""
    eps = fl.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: fl.Tensor, is_binary: bool = False) -> fl.Tensor:
    return fl.sigmoid(logits) if is_binary else fl.softmax(logits, dim=-1)


def probs_to_logits(probs: fl.Tensor, is_binary: bool = False) -> fl.Tensor:
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """A property computed on first use and kept as an attribute of the instance; gradients are recorded as usual."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.name = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with fl.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.name, value)
        return value


def tril_matrix_to_vec(mat: fl.Tensor, diag: int = 0) -> fl.Tensor:
    """The elements on and below a diagonal of (batches of) square matrices, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"[tril_matrix_to_vec] expected -{n} <= diag < {n}, got {diag}")
    rows, columns = fl.tril_indices(n, n, offset=diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: fl.Tensor, diag: int = 0) -> fl.Tensor:
    """The inverse of `tril_matrix_to_vec`."""
    length = vec.shape[-1]
    n = round((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    rows, columns = fl.tril_indices(n, n, offset=diag, device=vec.device) if n > 0 else ((), ())
    if len(rows) != length:
        raise ValueError(f"[vec_to_tril_matrix] expected the elements of a triangle, got {length} with diag={diag}")
    flat = vec.new_zeros((*vec.shape[:-1], n * n))
    index = (rows * n + columns).expand(vec.shape)
    return flat.scatter(-1, index, vec).reshape((*vec.shape[:-1], n, n))
