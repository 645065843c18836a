"""Operators of ATen that archives contain and that have another form here: functions of this library with ATen's arguments.

`aten_NAME` is the operator `aten::NAME`. Dtypes and memory formats arrive as objects, not as numbers. Native code evaluates the same functions (csrc/script), so
they use only what definitions of operators may use: no closures, no lists of arguments that are built while the module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.nn import functional

_REDUCTIONS = ("none", "mean", "sum")

# ---------------------------------------------------------------------------------------------- losses


def aten_mse_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    return functional.mse_loss(x, target, reduction=_REDUCTIONS[reduction])


def aten_l1_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    return functional.l1_loss(x, target, reduction=_REDUCTIONS[reduction])


def aten_smooth_l1_loss(x: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    return functional.smooth_l1_loss(x, target, reduction=_REDUCTIONS[reduction], beta=beta)


def aten_huber_loss(x: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    return functional.huber_loss(x, target, reduction=_REDUCTIONS[reduction], delta=delta)


def aten_soft_margin_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    return functional.soft_margin_loss(x, target, reduction=_REDUCTIONS[reduction])


def aten_binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    return functional.binary_cross_entropy(x, target, weight=weight, reduction=_REDUCTIONS[reduction])


def aten_binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    return functional.binary_cross_entropy_with_logits(
        x, target, weight=weight, pos_weight=pos_weight, reduction=_REDUCTIONS[reduction]
    )


def aten_kl_div(x: Any, target: Any, reduction: int = 1, log_target: bool = False) -> Any:
    return functional.kl_div(x, target, reduction=_REDUCTIONS[reduction], log_target=log_target)


def aten_nll_loss(x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return functional.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])


def aten_nll_loss_nd(x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return aten_nll_loss(x, target, weight, reduction, ignore_index)


def aten_nll_loss2d(x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return aten_nll_loss(x, target, weight, reduction, ignore_index)


def aten_cross_entropy_loss(
    x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Any:
    return functional.cross_entropy(
        x,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=_REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )


def aten_margin_ranking_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: int = 1) -> Any:
    return functional.margin_ranking_loss(x1, x2, target, margin=margin, reduction=_REDUCTIONS[reduction])


def aten_cosine_embedding_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: int = 1) -> Any:
    return functional.cosine_embedding_loss(x1, x2, target, margin=margin, reduction=_REDUCTIONS[reduction])


def aten_hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, reduction: int = 1) -> Any:
    return functional.hinge_embedding_loss(x, target, margin=margin, reduction=_REDUCTIONS[reduction])


def aten_triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Any:
    return functional.triplet_margin_loss(
        anchor, positive, negative, margin=margin, p=p, eps=eps, swap=swap, reduction=_REDUCTIONS[reduction]
    )


def aten_ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    return functional.ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank=blank,
        reduction=_REDUCTIONS[reduction],
        zero_infinity=zero_infinity,
    )


def aten_poisson_nll_loss(x: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    return functional.poisson_nll_loss(x, target, log_input, full, eps=eps, reduction=_REDUCTIONS[reduction])


def aten_multi_margin_loss(
    x: Any, target: Any, p: Any = 1, margin: float = 1.0, weight: Any = None, reduction: int = 1
) -> Any:
    return functional.multi_margin_loss(x, target, p=p, margin=margin, weight=weight, reduction=_REDUCTIONS[reduction])


def aten_multilabel_margin_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    return functional.multilabel_margin_loss(x, target, reduction=_REDUCTIONS[reduction])


# ---------------------------------------------------------------------------------------------- convolution and pooling


def aten__convolution(
    x: Any,
    w: Any,
    b: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *options: Any,
) -> Any:
    return flambeau.ops.aten.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


def aten__convolution_mode(x: Any, w: Any, b: Any, stride: Any, padding: str, dilation: Any, groups: int) -> Any:
    if len(stride) == 1:
        return flambeau.conv1d(x, w, b, stride, padding, dilation, groups)
    if len(stride) == 2:
        return flambeau.conv2d(x, w, b, stride, padding, dilation, groups)
    return flambeau.conv3d(x, w, b, stride, padding, dilation, groups)


# An empty stride stands for the kernel size.
def aten_max_pool1d(x: Any, kernel: Any, stride: Any = None, *rest: Any) -> Any:
    return flambeau.ops.aten.max_pool1d(x, kernel, stride or None, *rest)


def aten_max_pool2d(x: Any, kernel: Any, stride: Any = None, *rest: Any) -> Any:
    return flambeau.ops.aten.max_pool2d(x, kernel, stride or None, *rest)


def aten_max_pool3d(x: Any, kernel: Any, stride: Any = None, *rest: Any) -> Any:
    return flambeau.ops.aten.max_pool3d(x, kernel, stride or None, *rest)


def aten_avg_pool1d(x: Any, kernel: Any, stride: Any = None, *rest: Any) -> Any:
    return flambeau.ops.aten.avg_pool1d(x, kernel, stride or None, *rest)


def aten_avg_pool2d(x: Any, kernel: Any, stride: Any = None, *rest: Any) -> Any:
    return flambeau.ops.aten.avg_pool2d(x, kernel, stride or None, *rest)


def aten_avg_pool3d(x: Any, kernel: Any, stride: Any = None, *rest: Any) -> Any:
    return flambeau.ops.aten.avg_pool3d(x, kernel, stride or None, *rest)


def aten_adaptive_max_pool1d(x: Any, size: Any) -> Any:
    return functional.adaptive_max_pool1d(x, size, True)


def aten_adaptive_max_pool2d(x: Any, size: Any) -> Any:
    return functional.adaptive_max_pool2d(x, size, True)


def aten_adaptive_max_pool3d(x: Any, size: Any) -> Any:
    return functional.adaptive_max_pool3d(x, size, True)


def aten__adaptive_avg_pool2d(x: Any, size: Any) -> Any:
    return functional.adaptive_avg_pool2d(x, size)


def aten__adaptive_avg_pool3d(x: Any, size: Any) -> Any:
    return functional.adaptive_avg_pool3d(x, size)


def aten_max_unpool2d(x: Any, indices: Any, size: Any) -> Any:
    return functional.max_unpool2d(x, indices, 1, 1, 0, size)


def aten_im2col(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return functional.unfold(x, kernel, dilation, padding, stride)


def aten_col2im(x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return functional.fold(x, size, kernel, dilation, padding, stride)


# ---------------------------------------------------------------------------------------------- resizing and padding


def _resized(x: Any, size: Any, mode: str, align: Any, scales: Any) -> Any:
    """`upsample_*` in both forms: with scale factors as a list, or a size and a scale for each dimension."""
    if size is not None:
        return functional.interpolate(x, size=list(size), mode=mode, align_corners=align)
    return functional.interpolate(x, scale_factor=scales[0], mode=mode, align_corners=align)


def aten_upsample_nearest1d(x: Any, size: Any, *scales: Any) -> Any:
    return _resized(x, size, "nearest", None, scales)


def aten_upsample_nearest2d(x: Any, size: Any, *scales: Any) -> Any:
    return _resized(x, size, "nearest", None, scales)


def aten_upsample_nearest3d(x: Any, size: Any, *scales: Any) -> Any:
    return _resized(x, size, "nearest", None, scales)


def aten__upsample_nearest_exact1d(x: Any, size: Any, *scales: Any) -> Any:
    return _resized(x, size, "nearest-exact", None, scales)


def aten__upsample_nearest_exact2d(x: Any, size: Any, *scales: Any) -> Any:
    return _resized(x, size, "nearest-exact", None, scales)


def aten__upsample_nearest_exact3d(x: Any, size: Any, *scales: Any) -> Any:
    return _resized(x, size, "nearest-exact", None, scales)


def aten_upsample_linear1d(x: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _resized(x, size, "linear", align, scales)


def aten_upsample_bilinear2d(x: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _resized(x, size, "bilinear", align, scales)


def aten_upsample_bicubic2d(x: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _resized(x, size, "bicubic", align, scales)


def aten_upsample_trilinear3d(x: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _resized(x, size, "trilinear", align, scales)


def _antialiased(x: Any, size: Any, align: bool | None, scales: Any, mode: str) -> Any:
    factor = scales[0] if size is None else None
    return functional.interpolate(x, size=size, scale_factor=factor, mode=mode, align_corners=align, antialias=True)


def aten__upsample_bilinear2d_aa(x: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _antialiased(x, size, align, scales, "bilinear")


def aten__upsample_bicubic2d_aa(x: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _antialiased(x, size, align, scales, "bicubic")


def aten__upsample_lanczos2d_aa(x: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _antialiased(x, size, align or None, scales, "lanczos")


def aten___interpolate(
    x: Any,
    size: Any = None,
    scale: Any = None,
    mode: str = "nearest",
    align: Any = None,
    recompute: Any = None,
    antialias: bool = False,
) -> Any:
    return functional.interpolate(x, size, scale, mode, align, recompute, antialias)


def aten_reflection_pad1d(x: Any, padding: Any) -> Any:
    return functional.pad(x, padding, mode="reflect")


def aten_reflection_pad2d(x: Any, padding: Any) -> Any:
    return functional.pad(x, padding, mode="reflect")


def aten_reflection_pad3d(x: Any, padding: Any) -> Any:
    return functional.pad(x, padding, mode="reflect")


def aten_replication_pad1d(x: Any, padding: Any) -> Any:
    return functional.pad(x, padding, mode="replicate")


def aten_replication_pad2d(x: Any, padding: Any) -> Any:
    return functional.pad(x, padding, mode="replicate")


def aten_replication_pad3d(x: Any, padding: Any) -> Any:
    return functional.pad(x, padding, mode="replicate")


def aten_grid_sampler(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return functional.grid_sample(x, grid, modes[mode], paddings[padding], align)


def aten_affine_grid_generator(theta: Any, size: Any, align: bool) -> Any:
    return functional.affine_grid(theta, size, align)


# ---------------------------------------------------------------------------------------------- activations and dropout


def aten_glu(x: Any, dim: int = -1) -> Any:
    return functional.glu(x, dim)


def aten_log_sigmoid(x: Any) -> Any:
    return functional.logsigmoid(x)


def aten_relu6(x: Any) -> Any:
    return functional.relu6(x)


def aten_relu6_(x: Any) -> Any:
    return functional.relu6(x, True)


def aten_silu_(x: Any) -> Any:
    return functional.silu(x, True)


def aten_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    return x.softmax(dim) if dtype is None else x.to(dtype).softmax(dim)


def aten_log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    return x.log_softmax(dim) if dtype is None else x.to(dtype).log_softmax(dim)


def aten_feature_dropout(x: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x
    if p == 1:
        return x * 0
    shape = [*x.shape[:2], *([1] * (x.dim() - 2))]
    mask = flambeau.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(1 - p)
    return x * mask / (1 - p)


def aten_feature_dropout_(x: Any, p: float, train: bool) -> Any:
    return x.copy_(aten_feature_dropout(x, p, train))


def aten_dropout_(x: Any, p: float, train: bool) -> Any:
    return functional.dropout(x, p, train, True)


def aten_alpha_dropout(x: Any, p: float, train: bool) -> Any:
    return functional.alpha_dropout(x, p, train)


def aten_feature_alpha_dropout(x: Any, p: float, train: bool) -> Any:
    return functional.feature_alpha_dropout(x, p, train)


# ---------------------------------------------------------------------------------------------- recurrent cells


def aten_lstm_cell(x: Any, state: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
    gates = functional.linear(x, wi, bi) + functional.linear(state[0], wh, bh)
    i, f, g, o = gates.chunk(4, 1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def aten_gru_cell(x: Any, h: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
    ir, iz, inew = functional.linear(x, wi, bi).chunk(3, 1)
    hr, hz, hnew = functional.linear(h, wh, bh).chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (inew + r * hnew).tanh()
    return n + z * (h - n)


def aten_rnn_tanh_cell(x: Any, h: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
    return (functional.linear(x, wi, bi) + functional.linear(h, wh, bh)).tanh()


def aten_rnn_relu_cell(x: Any, h: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
    return (functional.linear(x, wi, bi) + functional.linear(h, wh, bh)).relu()


# ---------------------------------------------------------------------------------------------- others


def aten_einsum(equation: str, tensors: Any, path: Any = None) -> Any:
    return flambeau.einsum(equation, tensors)


def aten__unique2(x: Any, sort: bool = True, inverse: bool = False, counts: bool = False) -> Any:
    values, indices, numbers = flambeau.unique(x, sorted=sort, return_inverse=True, return_counts=True)
    return values, indices, numbers


def aten__lu_with_info(x: Any, pivot: bool = True, check_errors: bool = True) -> Any:
    return flambeau.linalg.lu_factor_ex(x, pivot=pivot, check_errors=check_errors)


def aten_tensordot(a: Any, b: Any, first: Any, second: Any) -> Any:
    return flambeau.tensordot(a, b, (first, second))


def aten_stft(x: Any, n_fft: int, hop: Any = None, win: Any = None, window: Any = None, *rest: Any) -> Any:
    """With `center` and `pad_mode` in one form, without padding in the other."""
    if len(rest) < 2 or not isinstance(rest[1], str):
        rest = (False, "reflect", *rest)
    return flambeau.stft(x, n_fft, hop, win, window, *rest)


def aten_pad_sequence(s: Any, batch_first: bool = False, value: float = 0.0, side: str = "right") -> Any:
    return flambeau.nn.utils.rnn.pad_sequence(s, batch_first, value, side)


def aten_contiguous(x: Any, memory_format: Any = None) -> Any:
    return x.contiguous() if memory_format is None else x.contiguous(memory_format=memory_format)


def aten__shape_as_tensor(x: Any) -> Any:
    return flambeau.tensor(list(x.shape))


def aten_numpy_T(x: Any) -> Any:
    return x.T


def aten_matrix_H(x: Any) -> Any:
    return x.mH


def aten_mT(x: Any) -> Any:
    return x.mT


def aten_mH(x: Any) -> Any:
    return x.mH


# ---------------------------------------------------------------------------------------------- meanings of old archives


def _divided(x: Any, other: Any) -> Any:
    """Division of integers was that of C."""
    fractions = isinstance(other, float) or (isinstance(other, flambeau.Tensor) and not _is_integral(other))
    return flambeau.div(x, other) if fractions or not _is_integral(x) else flambeau.div(x, other, rounding_mode="trunc")


def _is_integral(x: Any) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def aten_div_0_3(x: Any, other: Any) -> Any:
    return _divided(x, other)


def aten_div__0_3(x: Any, other: Any) -> Any:
    return x.copy_(_divided(x, other))


def aten_full_0_4(size: Any, value: Any) -> Any:
    """Integers filled a tensor of floats."""
    return flambeau.full(size, float(value))


def aten_linspace_0_7(start: Any, end: Any) -> Any:
    return flambeau.linspace(start, end, 100)


def aten_logspace_0_8(start: Any, end: Any) -> Any:
    return flambeau.logspace(start, end, 100)


FORMS: dict[str, Callable[..., Any]] = {
    name[5:]: function for name, function in globals().items() if name.startswith("aten_")
}
