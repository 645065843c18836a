"""Softmax and its relatives. The kernels are `_softmax` and `_log_softmax`; the rest is defined by them."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, tag, vjp

native("_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", out=True, module="")
native("_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", out=True, module="")


native("_softmax_backward_data(Tensor grad_output, Tensor output, int dim, dtype input_dtype) -> Tensor", module="")
native("_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, dtype input_dtype) -> Tensor", module="")


def softmax_gradient(g: Any, out: Any, dim: int) -> Any:
    product = g * out
    return product - out * product.sum(dim, keepdim=True)


def log_softmax_gradient(g: Any, out: Any, dim: int) -> Any:
    return g - out.exp() * g.sum(dim, keepdim=True)


@vjp("_softmax")
def softmax_vjp(g: fl.Tensor, dim: int, out: fl.Tensor) -> fl.Tensor:
    if fl.is_grad_enabled():
        return softmax_gradient(g, out, dim)
    return fl._softmax_backward_data(g, out, dim, out.dtype)


@vjp("_log_softmax")
def log_softmax_vjp(g: fl.Tensor, dim: int, out: fl.Tensor) -> fl.Tensor:
    if fl.is_grad_enabled():
        return log_softmax_gradient(g, out, dim)
    return fl._log_softmax_backward_data(g, out, dim, out.dtype)


native("softmax.int(Tensor self, int dim, dtype? dtype=None) -> Tensor", out=True)
native("log_softmax.int(Tensor self, int dim, dtype? dtype=None) -> Tensor", out=True)
native("special_softmax(Tensor self, int dim, dtype? dtype=None) -> Tensor")
native("special_log_softmax(Tensor self, int dim, *, dtype? dtype=None) -> Tensor")


@composite("_safe_softmax", method=False, module="")
def _safe_softmax(self: fl.Tensor, dim: int, dtype: fl.dtype | None = None) -> fl.Tensor:
    """Zeros where a row has nothing but minus infinities."""
    scores = self if dtype is None else self.to(dtype)
    masked = (scores == float("-inf")).all(dim, keepdim=True)
    return fl.where(masked, fl.zeros_like(scores), fl.softmax(scores, dim))


ARGS = "Tensor input, int? dim=None, int _stacklevel=3, dtype? dtype=None"


def legacy_dim(op: str, input: fl.Tensor, stacklevel: int) -> int:
    """The dimension that is meant when none is given: the first of 0-d, 1-d and 3-d inputs, else the second."""
    warnings.warn(f"[{op}] expected dim to be given; its implicit choice is deprecated", stacklevel=stacklevel + 1)
    return 0 if input.dim() in (0, 1, 3) else 1


@composite("nn_softmax")
def softmax(input: fl.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: fl.dtype | None = None) -> fl.Tensor:
    return fl.softmax(input, legacy_dim("softmax", input, _stacklevel) if dim is None else dim, dtype)


@composite("nn_log_softmax")
def log_softmax(
    input: fl.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: fl.dtype | None = None
) -> fl.Tensor:
    return fl.log_softmax(input, legacy_dim("log_softmax", input, _stacklevel) if dim is None else dim, dtype)


@composite("nn_softmin")
def softmin(input: fl.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: fl.dtype | None = None) -> fl.Tensor:
    dim = legacy_dim("softmin", input, _stacklevel) if dim is None else dim
    return fl.softmax(-(input if dtype is None else input.to(dtype)), dim)


@composite("nn_gumbel_softmax")
def gumbel_softmax(
    logits: fl.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> fl.Tensor:
    gumbels = -fl.empty_like(logits).exponential_().log()
    soft = fl.softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    # One-hot forward, with the gradient of the soft sample.
    index = soft.max(dim, keepdim=True)[1]
    one_hot = fl.zeros_like(logits).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


# ---------------------------------------------------------------- what passes know of these operators

tag("core recomputable", "_log_softmax _softmax")
tag("fuses", "_log_softmax _softmax log_softmax softmax")
autocast("float32", "log_softmax nn_log_softmax nn_softmax softmax", on="accelerator")
