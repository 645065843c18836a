"""Normalisations. The native ops return the statistics their derivatives need; the public ones drop them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, node, tag, vjp

native("native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)", out=True)  # fmt: skip
native(
    "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)", module=""
)
native("native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps) -> (Tensor, Tensor, Tensor)")  # fmt: skip
native("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)", out=True)  # fmt: skip

# Mean and reciprocal deviation of each channel, entered in the running ones, and what to multiply elements with and to add to
# them: batch normalisation without the pass that normalises, which compiled code joins to its neighbours.
native("_batch_norm_statistics(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)")  # fmt: skip

# Their gradients, as the mask asks for; an empty tensor where it does not. RMS normalisation has no mean.
native("_layer_norm_backward(Tensor grad, Tensor input, Tensor? mean, Tensor rstd, Tensor? weight, int ndim, bool[] mask) -> (Tensor, Tensor, Tensor)")  # fmt: skip
native("_group_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int N, int C, int HxW, int group, bool[] mask) -> (Tensor, Tensor, Tensor)")  # fmt: skip
native("_batch_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, bool training, bool[] mask) -> (Tensor, Tensor, Tensor)")  # fmt: skip


# ---------------------------------------------------------------- derivatives
#
# One kernel, unless the backward is recorded itself: then it is composed of ops, with statistics that have a history.


def _wanted(grads: Any, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return tuple(g if needed else None for g, needed in zip(grads, needs))


def _of_nothing(input: fl.Tensor, shape: Any, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    """Gradients where the input has no elements."""
    return tuple(
        fl.zeros(s, dtype=input.dtype, device=input.device) if needed else None
        for s, needed in zip((input.shape, shape, shape), needs)
    )


def normalised_gradient(g: Any, x: Any, mean: Any, rstd: Any, dims: Any) -> Any:
    """The gradient of (x - mean) * rstd, with mean (None: zero) and rstd the statistics of x over dims; and xhat."""
    if mean is None:
        xhat = x * rstd
        return rstd * (g - xhat * (g * xhat).mean(dims, True)), xhat
    xhat = (x - mean) * rstd
    return rstd * (g - g.mean(dims, True) - xhat * (g * xhat).mean(dims, True)), xhat


def layer_norm_gradients(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, ndim: int, needs: Sequence[bool]
) -> Any:
    dims, batch = list(range(input.dim() - ndim, input.dim())), list(range(input.dim() - ndim))
    grad_input, xhat = normalised_gradient(grad if weight is None else grad * weight, input, mean, rstd, dims)
    return (
        grad_input if needs[0] else None,
        ((grad * xhat).sum(batch) if batch else grad * xhat) if needs[1] else None,
        (grad.sum(batch) if batch else grad) if needs[2] else None,
    )


def group_norm_gradients(
    grad: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    needs: Sequence[bool],
) -> Any:
    x, g = (t.reshape(N, group, C // group, HxW) for t in (input, grad))
    mean, rstd = (t.reshape(N, group, 1, 1) for t in (mean, rstd))
    scaled = g if weight is None else g * weight.reshape(1, group, C // group, 1)
    grad_input, xhat = normalised_gradient(scaled, x, mean, rstd, [2, 3])
    return (
        grad_input.reshape(input.shape) if needs[0] else None,
        (g * xhat).sum([0, 3]).reshape(C) if needs[1] else None,
        g.sum([0, 3]).reshape(C) if needs[2] else None,
    )


def batch_norm_gradients(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, training: bool, needs: Sequence[bool]
) -> Any:
    dims = [d for d in range(input.dim()) if d != 1]
    shape = [1, -1] + [1] * (input.dim() - 2)
    mean, rstd = mean.reshape(shape), rstd.reshape(shape)
    scaled = grad if weight is None else grad * weight.reshape(shape)
    if training:
        grad_input, xhat = normalised_gradient(scaled, input, mean, rstd, dims)
    else:
        grad_input, xhat = scaled * rstd, (input - mean) * rstd
    return (
        grad_input if needs[0] else None,
        (grad * xhat).sum(dims) if needs[1] else None,
        grad.sum(dims) if needs[2] else None,
    )


@vjp("native_layer_norm")
def native_layer_norm_vjp(
    g0: fl.Tensor,
    input: fl.Tensor,
    normalized_shape: list[int],
    weight: fl.Tensor | None,
    eps: float,
    out1: fl.Tensor,
    out2: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    ndim = len(normalized_shape)
    if not fl.is_grad_enabled():
        grads = fl._ops._layer_norm_backward(g0, input, out1, out2, weight, ndim, list(needs))
        return _wanted(grads, needs)
    if input.numel() == 0:
        return _of_nothing(input, normalized_shape, needs)
    variance, mean = fl.var_mean(input, list(range(-ndim, 0)), correction=0, keepdim=True)
    return layer_norm_gradients(g0, input, mean, (variance + eps).rsqrt(), weight, ndim, needs)


@vjp("_fused_rms_norm")
def rms_norm_vjp(
    g0: fl.Tensor,
    input: fl.Tensor,
    normalized_shape: list[int],
    weight: fl.Tensor | None,
    eps: float,
    out1: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    ndim = len(normalized_shape)
    if not fl.is_grad_enabled():
        grads = fl._ops._layer_norm_backward(g0, input, None, out1, weight, ndim, [*needs, False])
        return _wanted(grads, needs)
    eps = fl.finfo(out1.dtype).eps if eps is None else eps
    rstd = ((input * input).mean(list(range(-ndim, 0)), True) + eps).rsqrt()
    return layer_norm_gradients(g0, input, None, rstd, weight, ndim, (*needs, False))[:2]


@vjp("native_group_norm")
def native_group_norm_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    g2: fl.Tensor | None,
    input: fl.Tensor,
    weight: fl.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
    out1: fl.Tensor,
    out2: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    sizes = (N, C, HxW, group)
    if not fl.is_grad_enabled() and g1 is None and g2 is None:
        return _wanted(fl._ops._group_norm_backward(g0, input, out1, out2, weight, *sizes, list(needs)), needs)
    if input.numel() == 0:
        return _of_nothing(input, (C,), needs)
    x = input.reshape(N, group, C // group, HxW)
    variance, mean = fl.var_mean(x, [2, 3], correction=0, keepdim=True)
    rstd = (variance + eps).rsqrt()
    grad = fl.zeros_like(input) if g0 is None else g0
    grad_input, *rest = group_norm_gradients(grad, input, mean, rstd, weight, *sizes, needs)
    count = HxW * (C // group)
    if g1 is not None and needs[0]:
        part = (g1.reshape(N, group, 1, 1) / count).expand(x.shape)
        grad_input = grad_input + part.reshape(input.shape)
    if g2 is not None and needs[0]:
        part = g2.reshape(N, group, 1, 1) * rstd**3 * (x - mean) / count
        grad_input = grad_input - part.reshape(input.shape)
    return grad_input, *rest


@vjp("native_batch_norm")
def native_batch_norm_vjp(
    g0: fl.Tensor,
    input: fl.Tensor,
    weight: fl.Tensor | None,
    running_mean: fl.Tensor,
    running_var: fl.Tensor,
    training: bool,
    eps: float,
    out1: fl.Tensor,
    out2: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    recorded = fl.is_grad_enabled()
    if not training:
        mean, rstd = running_mean, (running_var + eps).rsqrt()
    elif recorded:
        rstd, mean = fl.var_mean(input, [d for d in range(input.dim()) if d != 1], correction=0)
        rstd = (rstd + eps).rsqrt()
    else:
        mean, rstd = out1, out2
    if recorded:
        return *batch_norm_gradients(g0, input, mean, rstd, weight, training, needs), None, None
    grads = fl._ops._batch_norm_backward(g0, input, mean, rstd, weight, training, list(needs[:3]))
    return *_wanted(grads, needs), None, None


# ---------------------------------------------------------------- layer and RMS


@composite()
@composite("nn_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor")  # fmt: skip
def layer_norm(
    input: fl.Tensor,
    normalized_shape: list[int],
    weight: fl.Tensor | None = None,
    bias: fl.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> fl.Tensor:
    return fl.native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


@composite()
@composite("nn_rms_norm")
def rms_norm(
    input: fl.Tensor, normalized_shape: list[int], weight: fl.Tensor | None = None, eps: float | None = None
) -> fl.Tensor:
    if input.is_complex():
        dims = list(range(-len(normalized_shape), 0))
        epsilon = fl.finfo(input.dtype).eps if eps is None else eps
        out = input * fl.rsqrt((input * input).mean(dims, keepdim=True) + epsilon)
        return out if weight is None else out * weight
    if weight is not None and weight.dtype != input.dtype:
        return fl._fused_rms_norm(input, normalized_shape, None, eps)[0] * weight
    return fl._fused_rms_norm(input, normalized_shape, weight, eps)[0]


# ---------------------------------------------------------------- group


@composite()
def group_norm(
    input: fl.Tensor,
    num_groups: int,
    weight: fl.Tensor | None = None,
    bias: fl.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> fl.Tensor:
    if input.dim() < 2:
        raise RuntimeError(f"[group_norm] expected at least 2 dimensions, got {input.dim()}")
    batch, channels = input.shape[0], input.shape[1]
    spatial = math.prod(input.shape[2:])
    return fl.native_group_norm(input, weight, bias, batch, channels, spatial, num_groups, eps)[0]


@composite()
def nn_group_norm(
    input: fl.Tensor,
    num_groups: int,
    weight: fl.Tensor | None = None,
    bias: fl.Tensor | None = None,
    eps: float = 1e-5,
) -> fl.Tensor:
    if input.dim() < 2:
        raise RuntimeError(f"[group_norm] expected at least 2 dimensions, got {input.dim()}")
    shape = input.shape
    if num_groups > 0 and shape[0] * (shape[1] // num_groups) * math.prod(shape[2:]) == 1:
        raise ValueError(f"[group_norm] expected more than 1 value per group, got input of shape {tuple(shape)}")
    return fl.group_norm(input, num_groups, weight, bias, eps)


# ---------------------------------------------------------------- batch and instance


@composite()
def batch_norm(
    input: fl.Tensor,
    weight: fl.Tensor | None,
    bias: fl.Tensor | None,
    running_mean: fl.Tensor | None,
    running_var: fl.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> fl.Tensor:
    if input.numel() == 0:
        # Nothing to normalise; keeps the parameters in the result's history.
        shape = [1, -1] + [1] * (input.dim() - 2)
        out = input.clone()
        out = out if weight is None else out * weight.view(shape)
        return out if bias is None else out + bias.view(shape)
    return fl.native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@composite()
def nn_batch_norm(
    input: fl.Tensor,
    running_mean: fl.Tensor | None,
    running_var: fl.Tensor | None,
    weight: fl.Tensor | None = None,
    bias: fl.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> fl.Tensor:
    if training and input.dim() > 1 and input.shape[0] * math.prod(input.shape[2:]) == 1:
        raise ValueError(
            f"[batch_norm] expected more than 1 value per channel when training, got input of shape {tuple(input.shape)}"
        )
    return fl.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


@composite()
def instance_norm(
    input: fl.Tensor,
    weight: fl.Tensor | None,
    bias: fl.Tensor | None,
    running_mean: fl.Tensor | None,
    running_var: fl.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> fl.Tensor:
    """Batch normalisation of a batch of one, whose channels are those of every sample."""
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("[instance_norm] expected running_mean and running_var without input statistics, got None")
    batch, channels = input.shape[0], input.shape[1]

    def repeated(t: fl.Tensor | None) -> fl.Tensor | None:
        return None if t is None else t.repeat(batch)

    means, variances = repeated(running_mean), repeated(running_var)
    flat = input.contiguous().view(1, batch * channels, *input.shape[2:])
    out = fl.batch_norm(
        flat, repeated(weight), repeated(bias), means, variances, use_input_stats, momentum, eps, cudnn_enabled
    )
    if use_input_stats:
        for running, per_sample in ((running_mean, means), (running_var, variances)):
            if running is not None:
                running.copy_(per_sample.view(batch, channels).mean(0))  # type: ignore[union-attr]
    return out.view(input.shape)


@composite()
def nn_instance_norm(
    input: fl.Tensor,
    running_mean: fl.Tensor | None = None,
    running_var: fl.Tensor | None = None,
    weight: fl.Tensor | None = None,
    bias: fl.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> fl.Tensor:
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(
            f"[instance_norm] expected more than 1 spatial element when training, got input of shape {tuple(input.shape)}"
        )
    return fl.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)


# ---------------------------------------------------------------- across channels


@composite(module="nn.functional")
def local_response_norm(
    input: fl.Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> fl.Tensor:
    if input.dim() < 3:
        raise ValueError(f"[local_response_norm] expected at least 3 dimensions, got {input.dim()}")
    if input.numel() == 0:
        return input
    # The mean square over `size` neighbouring channels, zeros beyond the ends.
    squares = input * input
    channels = input.shape[1]
    before, after = size // 2, (size - 1) // 2
    window = fl.zeros_like(squares)
    # Windows may be far larger than the number of channels; what lies beyond adds nothing.
    for shift in range(max(-before, 1 - channels), min(after, channels - 1) + 1):
        start, end = max(0, -shift), min(channels, channels - shift)
        if start < end:
            window.narrow(1, start, end - start).add_(squares.narrow(1, start + shift, end - start))
    return input / ((window / size) * alpha + k).pow(beta)


# ---------------------------------------------------------------- weights by length and direction


@composite(method=False)
def norm_except_dim(v: fl.Tensor, pow: int = 2, dim: int = 0) -> fl.Tensor:
    if dim == -1:
        return v.norm(pow)
    shape = [1] * v.dim()
    shape[dim] = v.shape[dim]
    return v.movedim(dim, 0).reshape(v.shape[dim], -1).norm(pow, 1).reshape(shape)


@composite("_weight_norm", module="")
def weight_norm(v: fl.Tensor, g: fl.Tensor, dim: int = 0) -> fl.Tensor:
    """Vectors of the direction of v and length g."""
    return v * (g / fl.norm_except_dim(v, 2, dim))


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "native_group_norm native_layer_norm")
tag("fuses recomputable", "_fused_rms_norm native_layer_norm")
tag("fuses_both_directions", "_layer_norm_backward")
tag("rowwise", "layer_norm native_layer_norm nn_layer_norm nn_rms_norm rms_norm")
autocast(
    "float32",
    "group_norm layer_norm native_layer_norm nn_group_norm nn_layer_norm nn_rms_norm rms_norm",
    on="accelerator",
)
node("MulBackward0", "_fused_rms_norm")
