"""ATen's core set: operators outside it in terms of operators inside, and which stay as they are.

`run_decompositions()` uses it. An operator with a function here, or with a rule in `aten_parts`, becomes what that calls.
Others that are nothing but their definition follow it, unless it would end in operators that only this package has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.ops.rules import aten_parts

_TABLE: dict[str, Callable[..., Any]] = {}


def _core(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _TABLE[name] = function
        return function

    return register


def decomposition(name: str) -> Callable[..., Any] | None:
    """What replaces an operator of that full name."""
    function = _TABLE.get(name)
    if function is None:
        parts = aten_parts.find(name)
        function = None if parts is None else functools.partial(_by_parts, parts)
    return function


def _by_parts(rule: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A rule of `aten_parts` gives a result, or another operator with its arguments."""
    result = rule(*args, **kwargs)
    if isinstance(result, tuple) and result and callable(result[0]):
        op, arguments, *named = result
        return op(*arguments, **(named[0] if named else {}))
    return result


# Their definitions end in operators of this package; ATen has them whole.
KEPT = frozenset(
    (
        "lstm.input lstm.data gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data "
        "_interpolate _edge_pad pad grid_sampler_2d grid_sampler cdist pdist clamp clamp.Tensor norm "
        "linalg_vector_norm linalg_norm logsumexp nan_to_num logit ctc_loss linalg_inv linalg_det linalg_solve "
        "linalg_cholesky linalg_eigh linalg_svd linalg_qr linalg_lstsq linalg_pinv embedding_bag unique_consecutive "
        "bucketize.Tensor searchsorted.Tensor histc stft istft fft_fft fft_rfft fft_irfft fft_ifft quantile nanquantile "
        "binary_cross_entropy multi_margin_loss multilabel_margin_loss soft_margin_loss mse_loss l1_loss smooth_l1_loss "
        "huber_loss cross_entropy nll_loss _adaptive_max_pool2d _adaptive_max_pool3d prelu _im2col _col2im adaptive_max_pool1d "
        "select_scatter slice_scatter diagonal_scatter as_strided_scatter"
    ).split()
)


# Operators that only this package has: an exported program has their parts.
OWN = frozenset(
    (
        "normalize gaussian_nll_loss linear_cross_entropy multilabel_soft_margin_loss local_response_norm svd_lowrank "
        "pca_lowrank lobpcg triplet_margin_with_distance_loss tensordot"
    ).split()
)


@_core("transpose", "swapaxes", "swapdims")
def _transpose(self: Any, dim0: int, dim1: int) -> Any:
    order = list(range(self.dim()))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return fl.permute(self, order)


@_core("t")
def _t(self: Any) -> Any:
    return fl.permute(self, [1, 0]) if self.dim() == 2 else fl.ops.aten.alias.default(self)


@_core("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def _dropout(input: Any, p: float, train: bool) -> Any:
    return NotImplemented if train and p > 0 else fl.clone(input)


@_core("scaled_dot_product_attention")
def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p > 0:
        return NotImplemented
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = fl.matmul(query * factor, key.transpose(-2, -1))
    if is_causal:
        rows, columns = query.shape[-2], key.shape[-2]
        visible = fl.ones([rows, columns], dtype=fl.bool, device=query.device).tril()
        scores = fl.where(visible, scores, float("-inf"))
    if attn_mask is None:
        return fl.matmul(fl.softmax(scores, -1), value)
    if attn_mask.dtype == fl.bool:
        scores = fl.where(attn_mask, scores, float("-inf"))
        # A row without any position to attend to gives zeros.
        weights = fl.where(attn_mask.any(-1, keepdim=True), fl.softmax(scores, -1), 0.0)
        return fl.matmul(weights, value)
    return fl.matmul(fl.softmax(scores + attn_mask, -1), value)


@_core("cross_entropy")
def _cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if target.dtype.is_floating_point or label_smoothing or size_average is not None or reduce is not None:
        return NotImplemented
    logs = fl.log_softmax(input, 1 if input.dim() > 1 else 0)
    return fl.nn.functional.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)


@_core("nll_loss")
def _nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None:
        return NotImplemented
    dim = 1 if input.dim() > 1 else 0
    counted = target != ignore_index
    safe = fl.where(counted, target, 0)
    picked = -input.gather(dim, safe.unsqueeze(dim)).squeeze(dim)
    weights = counted.to(input.dtype) if weight is None else fl.where(counted, weight[safe], 0.0)
    loss = fl.where(counted, picked * weights, 0.0)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / weights.sum()


@_core("softmax.int")
def _softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return fl.ops.aten._softmax.default(self if dtype is None else self.to(dtype), dim, False)


@_core("log_softmax.int")
def _log_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return fl.ops.aten._log_softmax.default(self if dtype is None else self.to(dtype), dim, False)


@_core("layer_norm")
def _layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    return fl.native_layer_norm(input, list(normalized_shape), weight, bias, eps)[0]


@_core("group_norm")
def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    n, c = input.shape[:2]
    if not (input.is_contiguous() or (input.dim() == 4 and input.is_contiguous(memory_format=fl.channels_last))):
        input = input.contiguous()  # ATen's native_group_norm takes no others
    return fl.native_group_norm(input, weight, bias, n, c, math.prod(input.shape[2:]), num_groups, eps)[0]


# ---------------------------------------------------------------------------------------------- small ones


@_core("silu")
def _silu(self: Any) -> Any:
    return self * fl.sigmoid(self)


@_core("hardswish")
def _hardswish(self: Any) -> Any:
    return self * fl.clamp(self + 3, 0, 6) / 6


@_core("hardsigmoid")
def _hardsigmoid(self: Any) -> Any:
    return fl.clamp(self + 3, 0, 6) / 6


@_core("softplus")
def _softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = self * beta
    return fl.where(scaled > threshold, self, fl.log1p(fl.exp(scaled)) / beta)


@_core("masked_fill")
def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    if not isinstance(value, fl.Tensor):
        value = fl.scalar_tensor(value, dtype=self.dtype, device=self.device)
    return fl.where(mask, value, self)


@_core("stack")
def _stack(tensors: Any, dim: int = 0) -> Any:
    return fl.cat([fl.unsqueeze(x, dim) for x in tensors], dim)


@_core("split.Tensor", "unsafe_split.Tensor")
def _split(self: Any, split_size: int, dim: int = 0) -> Any:
    length = self.shape[dim]
    if not isinstance(length, int) or not isinstance(split_size, int) or split_size <= 0:
        return NotImplemented
    return fl.split_with_sizes(self, [min(split_size, length - i) for i in range(0, length, split_size)], dim)


@_core("std.dim")
def _std(self: Any, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
    return fl.sqrt(fl.var(self, dim, correction=int(unbiased), keepdim=keepdim))


@_core("mse_loss")
def _mse_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> Any:
    if size_average is not None or reduce is not None or weight is not None or input.shape != target.shape:
        return NotImplemented
    square = fl.pow(input - target, 2)
    return square if reduction == "none" else square.mean() if reduction == "mean" else square.sum()


@_core("adaptive_avg_pool2d")
def _adaptive_avg_pool2d(self: Any, output_size: Any) -> Any:
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    return self.mean([-1, -2], keepdim=True) if sizes == [1, 1] else NotImplemented


@functools.cache
def table() -> dict[Any, Callable[..., Any]]:
    """The functions by operator, as programs hand them to `run_decompositions`."""
    entries = {}
    for name, function in (*aten_parts.all().items(), *_TABLE.items()):
        if fl._C._operator_exists(name):
            entries[fl._C._operator_object(name)] = function
    return entries
