"""Normalisations. The native ops return the statistics their derivatives need; the public ones drop them."""

from __future__ import annotations

import math

import flambeau as fl
from flambeau.ops.record import composite, native, vjp

NN = {"module": "nn.functional", "method": False}

native("native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)", out=True)  # fmt: skip
native(
    "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)", module=""
)
native("native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps) -> (Tensor, Tensor, Tensor)")  # fmt: skip
native("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)", out=True)  # fmt: skip


def _normalised(g, x, mean, rstd, dims):
    """The gradient of (x - mean) * rstd, with mean and rstd the statistics of x over dims."""
    xhat = (x - mean) * rstd
    return rstd * (g - g.mean(dims, True) - xhat * (g * xhat).mean(dims, True)), xhat


@vjp("native_layer_norm")
def native_layer_norm_vjp(g0, input, normalized_shape, weight, eps, out1, out2, needs):
    k = len(normalized_shape)
    dims, batch = list(range(input.dim() - k, input.dim())), list(range(input.dim() - k))
    if g0 is None or input.numel() == 0:
        return (
            fl.zeros_like(input),
            fl.zeros(normalized_shape, dtype=input.dtype, device=input.device) if needs[1] else None,
            fl.zeros(normalized_shape, dtype=input.dtype, device=input.device) if needs[2] else None,
        )
    if fl.is_grad_enabled():  # statistics with a history of their own
        out2, out1 = fl.var_mean(input, dims, correction=0, keepdim=True)
        out2 = (out2 + eps).rsqrt()
    grad_input, xhat = _normalised(g0 if weight is None else g0 * weight, input, out1, out2, dims)
    return (
        grad_input if needs[0] else None,
        ((g0 * xhat).sum(batch) if batch else g0 * xhat) if needs[1] else None,
        (g0.sum(batch) if batch else g0) if needs[2] else None,
    )


@vjp("_fused_rms_norm")
def rms_norm_vjp(g0, input, normalized_shape, weight, eps, out1, needs):
    k = len(normalized_shape)
    dims, batch = list(range(input.dim() - k, input.dim())), list(range(input.dim() - k))
    if fl.is_grad_enabled():
        out1 = ((input * input).mean(dims, True) + (fl.finfo(input.dtype).eps if eps is None else eps)).rsqrt()
    xhat = input * out1
    scaled = g0 if weight is None else g0 * weight
    return (
        out1 * (scaled - xhat * (scaled * xhat).mean(dims, True)) if needs[0] else None,
        ((g0 * xhat).sum(batch) if batch else g0 * xhat) if needs[1] else None,
    )


@vjp("native_group_norm")
def native_group_norm_vjp(g0, g1, g2, input, weight, N, C, HxW, group, eps, out1, out2, needs):
    if input.numel() == 0:
        empty = fl.zeros(C, dtype=input.dtype, device=input.device)
        return fl.zeros_like(input), empty if needs[1] else None, empty if needs[2] else None
    x = input.reshape(N, group, C // group, HxW)
    g = fl.zeros_like(x) if g0 is None else g0.reshape(N, group, C // group, HxW)
    if fl.is_grad_enabled():
        out2, out1 = fl.var_mean(x, [2, 3], correction=0, keepdim=True)
        out2 = (out2 + eps).rsqrt()
    scaled = g if weight is None else g * weight.reshape(1, group, C // group, 1)
    rstd = out2.reshape(N, group, 1, 1)
    grad_input, xhat = _normalised(scaled, x, out1.reshape(N, group, 1, 1), rstd, [2, 3])
    count = HxW * (C // group)
    if g1 is not None:
        grad_input = grad_input + g1.reshape(N, group, 1, 1) / count
    if g2 is not None:
        grad_input = grad_input - g2.reshape(N, group, 1, 1) * rstd * rstd * xhat / count
    return (
        grad_input.reshape(input.shape) if needs[0] else None,
        (g * xhat).sum([0, 3]).reshape(C) if needs[1] else None,
        g.sum([0, 3]).reshape(C) if needs[2] else None,
    )


@vjp("native_batch_norm")
def native_batch_norm_vjp(g0, input, weight, running_mean, running_var, training, eps, out1, out2, needs):
    dims = [d for d in range(input.dim()) if d != 1]
    shape = [1, -1] + [1] * (input.dim() - 2)
    if training:
        mean, rstd = out1, out2
        if fl.is_grad_enabled():
            rstd, mean = fl.var_mean(input, dims, correction=0)
            rstd = (rstd + eps).rsqrt()
    else:
        mean, rstd = running_mean, (running_var + eps).rsqrt()
    mean, rstd = mean.reshape(shape), rstd.reshape(shape)
    scaled = g0 if weight is None else g0 * weight.reshape(shape)
    if training:
        grad_input, xhat = _normalised(scaled, input, mean, rstd, dims)
    else:
        grad_input, xhat = scaled * rstd, (input - mean) * rstd
    return (
        grad_input if needs[0] else None,
        (g0 * xhat).sum(dims) if needs[1] else None,
        g0.sum(dims) if needs[2] else None,
        None,
        None,
    )


# ---------------------------------------------------------------- layer and RMS


@composite("layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True) -> Tensor")  # fmt: skip
@composite("nn_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor", public="layer_norm", **NN)  # fmt: skip
def layer_norm(
    input: fl.Tensor,
    normalized_shape: list[int],
    weight: fl.Tensor | None = None,
    bias: fl.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> fl.Tensor:
    return fl.native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


@composite("rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor")
@composite("nn_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor", public="rms_norm", **NN)  # fmt: skip
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


@composite("group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True) -> Tensor")  # fmt: skip
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


@composite("nn_group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor", public="group_norm", **NN)  # fmt: skip
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


@composite("batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor")  # fmt: skip
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


@composite("nn_batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05) -> Tensor", public="batch_norm", **NN)  # fmt: skip
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


@composite("instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor")  # fmt: skip
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
                running.copy_(per_sample.view(batch, channels).mean(0))
    return out.view(input.shape)


@composite("nn_instance_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05) -> Tensor", public="instance_norm", **NN)  # fmt: skip
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


@composite("local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0) -> Tensor", **NN)  # fmt: skip
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
    for shift in range(-before, after + 1):
        start, end = max(0, -shift), min(channels, channels - shift)
        if start < end:
            window.narrow(1, start, end - start).add_(squares.narrow(1, start + shift, end - start))
    return input / ((window / size) * alpha + k).pow(beta)
