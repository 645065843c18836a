"""Operators of ATen that are no operators here, in terms of ours: what programs of PyTorch call.

Decomposed programs are made of them (`_native_batch_norm_legit_no_training`, `upsample_bilinear2d.vec`). Each function has
the arguments of ATen's schema. `names.py` finds them by name, `NAME` or `NAME_OVERLOAD` where overloads differ.
"""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fl

F = fl.nn.functional


def _empty(x: Any) -> Any:
    return fl.empty(0, dtype=x.dtype, device=x.device)


# ---------------------------------------------------------------------------------------------- normalization


def _native_batch_norm_legit_no_training(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    out = F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return out, _empty(input), _empty(input)


def _batch_statistics(input: Any, eps: float) -> tuple[Any, Any, Any]:
    dims = [0, *range(2, input.dim())]
    var, mean = fl.var_mean(input, dims, correction=0)
    return mean, var, fl.rsqrt(var + eps)


def _native_batch_norm_legit(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        return _native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum, eps)
    mean, _, scale = _batch_statistics(input, eps)
    out = F.batch_norm(input, running_mean, running_var, weight, bias, True, momentum, eps)
    return out, mean, scale


def _native_batch_norm_legit_no_stats(
    input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    mean, _, scale = _batch_statistics(input, eps)
    return F.batch_norm(input, None, None, weight, bias, True, momentum, eps), mean, scale


def _native_batch_norm_legit_functional(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    mean, var, scale = _batch_statistics(input, eps)
    out = F.batch_norm(input, None, None, weight, bias, True, momentum, eps)
    count = input.numel() // input.shape[1]
    unbiased = var * (count / max(count - 1, 1))
    new_mean = running_mean * (1 - momentum) + mean * momentum
    return out, mean, scale, new_mean, running_var * (1 - momentum) + unbiased * momentum


def native_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _native_batch_norm_legit(input, weight, bias, running_mean, running_var, training, momentum, eps)


def _weight_norm_interface(v: Any, g: Any, dim: int = 0) -> Any:
    keep = [d for d in range(v.dim()) if d != dim % v.dim()]
    norm = fl.linalg.vector_norm(v, 2, keep, True)
    return v * (g / norm), norm


# ---------------------------------------------------------------------------------------------- attention


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)


def _scaled_dot_product_flash_attention_for_cpu(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None,
) -> Any:  # fmt: skip
    return _attention(query, key, value, attn_mask, dropout_p, is_causal, scale), _empty(query)


def _scaled_dot_product_attention_math(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    dropout_mask: Any = None, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out, _empty(query)


def _safe_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    masked = (self == -float("inf")).all(dim, keepdim=True)
    return fl.where(masked, 0.0, fl.softmax(self, dim, dtype=dtype))


# ---------------------------------------------------------------------------------------------- pooling and resizing


def _adaptive_avg_pool2d(self: Any, output_size: Any) -> Any:
    return F.adaptive_avg_pool2d(self, output_size)


def _adaptive_avg_pool3d(self: Any, output_size: Any) -> Any:
    return F.adaptive_avg_pool3d(self, output_size)


def adaptive_max_pool2d(self: Any, output_size: Any) -> Any:
    return F.adaptive_max_pool2d(self, output_size, return_indices=True)


def adaptive_max_pool3d(self: Any, output_size: Any) -> Any:
    return F.adaptive_max_pool3d(self, output_size, return_indices=True)


def im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.unfold(self, kernel_size, dilation, padding, stride)


def col2im(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.fold(self, output_size, kernel_size, dilation, padding, stride)


def _padded(self: Any, padding: Any, *, mode: str) -> Any:
    return F.pad(self, list(padding), mode=mode)


def _resized(mode: str, rank: int, antialias: bool = False) -> dict[str, Any]:
    """The two forms of an operator that resizes: sizes with scales, and a list of either."""
    corners = mode not in ("nearest", "nearest-exact")

    def vector(input: Any, output_size: Any, *rest: Any, **named: Any) -> Any:
        options = dict(zip(("align_corners", "scale_factors") if corners else ("scale_factors",), rest)) | named
        return _interpolated(input, output_size, options.get("scale_factors"), options.get("align_corners"))

    def plain(self: Any, output_size: Any, *rest: Any, **named: Any) -> Any:
        names = [*(["align_corners"] if corners else []), "scales_h", "scales_w"]
        options = dict(zip(names, rest)) | named
        return _interpolated(self, output_size, None, options.get("align_corners"))

    def _interpolated(x: Any, size: Any, factors: Any, align: Any) -> Any:
        align = bool(align) if corners else None
        options = {"size": list(size)} if factors is None else {"scale_factor": list(factors)}
        return F.interpolate(x, mode=mode, align_corners=align, antialias=antialias, **options)  # type: ignore[arg-type]

    return {"vec": vector, "default": plain}


def _resizing() -> dict[str, Any]:
    options: dict[str, Any] = {}
    kinds = [("nearest", "nearest", n) for n in (1, 2, 3)]
    kinds += [
        ("linear", "linear", 1),
        ("bilinear", "bilinear", 2),
        ("bicubic", "bicubic", 2),
        ("trilinear", "trilinear", 3),
    ]
    for mode, name, rank in kinds:
        options |= {f"upsample_{name}{rank}d.{k}": f for k, f in _resized(mode, rank).items()}
    for rank in (1, 2, 3):
        options |= {f"_upsample_nearest_exact{rank}d.{k}": f for k, f in _resized("nearest-exact", rank).items()}
    for mode in ("bilinear", "bicubic"):
        options |= {f"_upsample_{mode}2d_aa.{k}": f for k, f in _resized(mode, 2, True).items()}
    return options


# ---------------------------------------------------------------------------------------------- others


def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    out = F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=("none", "mean", "sum")[reduction])
    counted = target != ignore_index
    total = counted.sum() if weight is None else weight[target.clamp(min=0)].mul(counted).sum()
    return out, total.to(self.dtype)


def glu(self: Any, dim: int = -1) -> Any:
    return F.glu(self, dim)


def log_sigmoid_forward(self: Any) -> Any:
    return F.logsigmoid(self), _empty(self)


def _unsafe_index(self: Any, indices: Any) -> Any:
    return fl.ops.aten.index.Tensor(self, indices)


def _unsafe_index_put(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return fl.ops.aten.index_put.default(self, indices, values, accumulate)


def _index_put_impl(self: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    return fl.ops.aten.index_put.default(self, indices, values, accumulate)


def _unsafe_masked_index(self: Any, mask: Any, indices: Any, fill: Any) -> Any:
    safe_indices = [index if index is None else fl.where(mask, index, 0) for index in indices]
    return fl.where(mask, fl.ops.aten.index.Tensor(self, safe_indices), fill)


def _assert_tensor_metadata(a: Any, size: Any = None, stride: Any = None, dtype: Any = None, **rest: Any) -> None:
    if dtype is not None and a.dtype != dtype:
        raise RuntimeError(f"[_assert_tensor_metadata] expected dtype {dtype}, got {a.dtype}")


def _cdist_forward(x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    return fl.cdist(x1, x2, p)


def _pdist_forward(self: Any, p: float = 2.0) -> Any:
    return fl.pdist(self, p)


def numpy_T(self: Any) -> Any:
    return self.permute(*reversed(range(self.dim())))


def _conj(self: Any) -> Any:
    return self.conj()


def _unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return fl.unique(self, sorted, return_inverse=True, return_counts=True)


def unique_dim(
    self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return fl.unique(self, sorted, return_inverse=True, return_counts=True, dim=dim)


def cross_entropy_loss(
    self: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    return F.cross_entropy(
        self, target, weight, ignore_index=ignore_index, reduction=("none", "mean", "sum")[reduction],
        label_smoothing=label_smoothing,
    )  # fmt: skip


def binary_cross_entropy_with_logits(
    self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    kind = ("none", "mean", "sum")[reduction]
    return F.binary_cross_entropy_with_logits(self, target, weight, pos_weight=pos_weight, reduction=kind)


def kl_div(self: Any, target: Any, reduction: int = 1, *, log_target: bool = False) -> Any:
    return F.kl_div(self, target, reduction=("none", "mean", "sum")[reduction], log_target=log_target)


def tensordot(self: Any, other: Any, dims_self: Any, dims_other: Any) -> Any:
    return fl.tensordot(self, other, (list(dims_self), list(dims_other)))


def mkldnn_rnn_layer(
    input: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx_: Any, cx_: Any, reverse: bool,
    batch_sizes: Any, mode: int, hidden_size: int, num_layers: int, has_biases: bool, bidirectional: bool,
    batch_first: bool, train: bool,
) -> Any:  # fmt: skip
    """One layer of an LSTM in one direction. ATen folds no bias into this form: both are given."""
    x = input.flip(0) if reverse else input
    weights = [weight0, weight1, *([weight2, weight3] if has_biases else [])]
    out, h, c = fl.lstm(x, (hx_.unsqueeze(0), cx_.unsqueeze(0)), weights, has_biases, 1, 0.0, False, False, False)
    return (out.flip(0) if reverse else out), h, c, _empty(input)


@functools.cache
def table() -> dict[str, Any]:
    """The functions by the names of operators, or of overloads."""
    own = {name: value for name, value in globals().items() if callable(value) and name not in _HELPERS}
    own = {name: value for name, value in own.items() if getattr(value, "__module__", "") == __name__}
    for kind, mode in (("reflection", "reflect"), ("replication", "replicate")):
        own |= {f"{kind}_pad{n}d": functools.partial(_padded, mode=mode) for n in (1, 2, 3)}
    own["_native_batch_norm_legit.no_stats"] = own.pop("_native_batch_norm_legit_no_stats")
    return own | _resizing()


_HELPERS = frozenset(("_empty", "_batch_statistics", "_attention", "_padded", "_resized", "_resizing", "table"))
