"""Native ops of networks in terms of primitives: convolution, pooling, normalisation, attention, losses.

Part of the table in `definitions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.definitions import TABLE, _log_softmax, _positions, _softmax, decompose
from flambeau.ops.loss import records as loss
from flambeau.ops.normalization import records as normalization
from flambeau.ops.normalization import softmax

# ---------------------------------------------------------------- convolution


def _windows(self: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """View (N, C, *out, *kernel) of a padded (N, C, *space)."""
    out = self
    for d, (k, s, step) in enumerate(zip(kernel, stride, dilation)):
        out = out.unfold(2 + d, step * (k - 1) + 1, s)
        out = fl._ops.slice(out, out.dim() - 1, 0, None, step)
    return out


@decompose("convolution", "_convolution")
def convolution(
    input: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    space = weight.dim() - 2
    if input.dim() == space + 1:
        arguments = bias, stride, padding, dilation, transposed, output_padding, groups
        return fl.convolution(input.unsqueeze(0), weight, *arguments).squeeze(0)
    stride, padding, dilation, output_padding = (
        list(x) * (space if len(x) == 1 else 1) for x in (stride, padding, dilation, output_padding)
    )
    kernel = list(weight.shape[2:])
    if transposed:
        # The input spread out by the stride, convolved with the flipped kernel.
        spread_shape = [*input.shape[:2], *((n - 1) * s + 1 for n, s in zip(input.shape[2:], stride))]
        spread = fl.zeros(spread_shape, dtype=input.dtype, device=input.device)
        window = spread
        for d, s in enumerate(stride):
            window = fl._ops.slice(window, 2 + d, 0, None, s)
        window.copy_(input)
        input = spread
        per_group = weight.shape[0] // groups
        weight = fl.flip(weight, list(range(2, 2 + space)))
        weight = weight.reshape([groups, per_group, *weight.shape[1:]]).transpose(1, 2)
        weight = weight.reshape([-1, per_group, *kernel])
        reach = [step * (k - 1) for step, k in zip(dilation, kernel)]
        sides = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding)]
        stride = [1] * space
    else:
        sides = [(p, p) for p in padding]
    pad = [side for pair in reversed(sides) for side in pair]
    if any(pad):
        input = fl.constant_pad_nd(input, pad, 0)
    windows = _windows(input, kernel, stride, dilation)  # N, C, *out, *kernel
    places = list(windows.shape[2 : 2 + space])
    order = [0, *range(2, 2 + space), 1, *range(2 + space, 2 + 2 * space)]
    rows = windows.permute(order).reshape([-1, groups, windows.shape[1] // groups * math.prod(kernel)])
    filters = weight.reshape([groups, weight.shape[0] // groups, -1])
    out = fl.bmm(rows.transpose(0, 1), filters.transpose(1, 2))  # group, place, filter
    out = out.transpose(0, 1).reshape([input.shape[0], *places, weight.shape[0]])
    out = out.permute([0, space + 1, *range(1, space + 1)])
    return out.clone() if bias is None else out + bias.reshape([-1] + [1] * space)


@decompose("_convolution_finished")
def _convolution_finished(
    input: Any, weight: Any, bias: Any, mean: Any, scale: Any, shift: Any, residual: Any, relu: bool,
    padding: Sequence[int],
) -> Any:  # fmt: skip
    out = fl.convolution(input, weight, bias, [1, 1], padding, [1, 1], False, [0, 0], 1)
    mean, scale, shift = (t if t is None else t.reshape([-1, 1, 1]) for t in (mean, scale, shift))
    out = out if mean is None else out - mean
    out = out if scale is None else out * scale
    out = out if shift is None else out + shift
    out = out if residual is None else out + residual
    return fl.relu(out) if relu else out


def _conv(ndim: int, transposed: bool) -> Callable[..., Any]:
    def plain(input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1):  # type: ignore[no-untyped-def]
        return run(input, weight, bias, stride, padding, dilation, False, (0,), groups)

    def spread(input, weight, bias=None, stride=(1,), padding=(0,), output_padding=(0,), groups=1, dilation=(1,)):  # type: ignore[no-untyped-def]
        return run(input, weight, bias, stride, padding, dilation, True, output_padding, groups)

    def run(input: Any, *rest: Any) -> Any:
        if input.dim() == ndim + 1:
            return fl.convolution(input.unsqueeze(0), *rest).squeeze(0)
        return fl.convolution(input, *rest)

    return spread if transposed else plain


for _n in (1, 2, 3):
    TABLE[f"conv{_n}d"], TABLE[f"conv_transpose{_n}d"] = _conv(_n, False), _conv(_n, True)


# ---------------------------------------------------------------- normalisation


@decompose("native_layer_norm")
def native_layer_norm(input: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = fl.mean(input, dims, keepdim=True)
    spread = input - mean
    rstd = fl.rsqrt(fl.mean(spread * spread, dims, keepdim=True) + eps)
    out = spread * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


@decompose("_fused_rms_norm")
def _fused_rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None) -> Any:
    input = input.contiguous()
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    wide = input.float() if input.dtype in (fl.bfloat16, fl.float16) else input
    eps = fl.finfo(wide.dtype).eps if eps is None else eps
    rstd = fl.rsqrt(fl.mean(wide * wide, dims, keepdim=True) + eps)
    out = wide * rstd
    return (out if weight is None else out * weight).to(input.dtype), rstd


@decompose("native_group_norm")
def native_group_norm(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    rows = input.reshape(N, group, -1)
    mean = fl.mean(rows, [2], keepdim=True)
    spread = rows - mean
    rstd = fl.rsqrt(fl.mean(spread * spread, [2], keepdim=True) + eps)
    out = (spread * rstd).reshape(input.shape)
    view = [C] + [1] * (input.dim() - 2)
    out = out if weight is None else out * weight.reshape(view)
    return out if bias is None else out + bias.reshape(view), mean.reshape(N, group), rstd.reshape(N, group)


def _masked(grads: Any, like: Any, mask: Sequence[bool]) -> Any:
    return tuple(g if wanted else like.new_empty(0) for g, wanted in zip(grads, mask))


@decompose("_layer_norm_backward")
def _layer_norm_backward(grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, ndim: int, mask: Any) -> Any:
    return _masked(normalization.layer_norm_gradients(grad, input, mean, rstd, weight, ndim, mask), input, mask)


@decompose("_group_norm_backward")
def _group_norm_backward(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int, group: int, mask: Any
) -> Any:
    grads = normalization.group_norm_gradients(grad, input, mean, rstd, weight, N, C, HxW, group, mask)
    return _masked(grads, input, mask)


@decompose("_batch_norm_backward")
def _batch_norm_backward(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, training: bool, mask: Sequence[bool]
) -> Any:
    return _masked(normalization.batch_norm_gradients(grad, input, mean, rstd, weight, training, mask), input, mask)


@decompose("_batch_norm_statistics")
def _batch_norm_statistics(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    parameters = [t for t in (weight, bias, running_mean, running_var) if t is not None]
    kept = input.dtype  # of the statistics; the factors are single where the input is half
    if kept in (fl.bfloat16, fl.float16):
        input = input.float()
        kept = fl.float32 if any(t.dtype is fl.float32 for t in parameters) else kept
    mean, rstd = _channel_statistics(input, running_mean, running_var, momentum, eps)
    scale = rstd if weight is None else rstd * weight
    return mean.to(kept), rstd.to(kept), scale, -mean * scale if bias is None else bias - mean * scale


def _channel_statistics(input: Any, running_mean: Any, running_var: Any, momentum: float, eps: float) -> Any:
    dims = [0, *range(2, input.dim())]
    count = input.numel() // input.shape[1]
    mean = fl.mean(input, dims)
    spread = input - mean.reshape([1, input.shape[1]] + [1] * (input.dim() - 2))
    variance = fl.mean(spread * spread, dims)
    if running_mean is not None:
        running_mean.data.copy_(running_mean * (1 - momentum) + mean * momentum)
    if running_var is not None:
        running_var.data.copy_(running_var * (1 - momentum) + variance * (momentum * count / max(count - 1, 1)))
    return mean, fl.rsqrt(variance + eps)


@decompose("native_batch_norm")
def native_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    view = [1, input.shape[1]] + [1] * (input.dim() - 2)
    if training:
        saved = mean, rstd = _channel_statistics(input, running_mean, running_var, momentum, eps)
        spread = input - mean.reshape(view)
    else:
        spread = input - running_mean.reshape(view)
        rstd = fl.rsqrt(running_var + eps)
        saved = input.new_empty(0), input.new_empty(0)
    out = spread * rstd.reshape(view)
    out = out if weight is None else out * weight.reshape(view)
    return (out if bias is None else out + bias.reshape(view), *saved)


def _softmax_in(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, dim, dtype=None: function(self if dtype is None else self.to(dtype), dim)


@decompose("_softmax_backward_data")
def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return softmax.softmax_gradient(grad_output, output, dim)


@decompose("_log_softmax_backward_data")
def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return softmax.log_softmax_gradient(grad_output, output, dim)


for _name in ("softmax.int", "special_softmax"):
    TABLE[_name] = _softmax_in(_softmax)
for _name in ("log_softmax.int", "special_log_softmax"):
    TABLE[_name] = _softmax_in(_log_softmax)


# ---------------------------------------------------------------- pooling


def _pool_windows(
    self: Any, ndim: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, fill: Any
) -> Any:
    """(N, C, *out, cells) of the padded input, the places outside it filled; the geometry."""
    kernel, padding, dilation = (list(x) * (ndim if len(x) == 1 else 1) for x in (kernel, padding, dilation))
    stride = list(stride) * (ndim if len(stride) == 1 else 1) if stride else kernel
    pad: list[int] = []
    for d in range(ndim):
        n = self.shape[2 + d]
        span = n + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1
        outs = -(-span // stride[d]) + 1 if ceil_mode else span // stride[d] + 1
        if ceil_mode and (outs - 1) * stride[d] >= n + padding[d]:
            outs -= 1
        after = (outs - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 - n - padding[d]
        pad = [padding[d], after, *pad]
    padded = fl.constant_pad_nd(self, pad, fill)
    windows = _windows(padded, kernel, stride, dilation)
    return windows.reshape([*windows.shape[: 2 + ndim], -1]), (kernel, stride, padding, dilation)


def _batched(self: Any, ndim: int) -> tuple[Any, bool]:
    return (self.unsqueeze(0), True) if self.dim() == ndim + 1 else (self, False)


def _lowest(dtype: Any) -> Any:
    return -math.inf if dtype.is_floating_point else fl.iinfo(dtype).min


def _max_pool(ndim: int, with_indices: bool) -> Callable[..., Any]:
    def run(self, kernel_size, stride=None, padding=(0,), dilation=(1,), ceil_mode=False, return_indices=False):  # type: ignore[no-untyped-def]
        self, single = _batched(self, ndim)
        windows, geometry = _pool_windows(
            self, ndim, kernel_size, stride, padding, dilation, ceil_mode, _lowest(self.dtype)
        )
        values, cell = fl.max(windows, -1)
        if not with_indices:
            return values.squeeze(0) if single else values
        # From the cell of a window to the flat position in the input's space.
        flat = fl.zeros_like(cell)
        for d, (k, s, p, step) in enumerate(zip(*geometry)):
            inside = fl.remainder(fl.floor_divide(cell, math.prod(geometry[0][d + 1 :])), k)
            view = [1] * cell.dim()
            view[2 + d] = cell.shape[2 + d]
            place = _positions(cell.shape[2 + d], cell.device).reshape(view) * s - p + inside * step
            flat = flat * self.shape[2 + d] + place
        return (values.squeeze(0), flat.squeeze(0)) if single else (values, flat)

    return run


def _avg_pool(ndim: int) -> Callable[..., Any]:
    def run(
        self, kernel_size, stride=None, padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None
    ):  # type: ignore[no-untyped-def]
        self, single = _batched(self, ndim)
        windows, (kernel, strides, pads, _) = _pool_windows(
            self, ndim, kernel_size, stride, padding, (1,), ceil_mode, 0
        )
        total = fl.sum(windows, [-1])
        whole = not (self.is_floating_point() or self.is_complex())  # integers: quotients are cut
        if divisor_override is not None:
            total = fl.div(total, divisor_override, rounding_mode="trunc" if whole else None)
        else:
            by = total.new_ones((), dtype=total.dtype)
            for d, (k, s, p) in enumerate(zip(kernel, strides, pads)):
                n = self.shape[2 + d]
                counts = []
                for o in range(total.shape[2 + d]):
                    start, end = o * s - p, min(o * s - p + k, n + p)
                    counts.append(float(end - start if count_include_pad else min(end, n) - max(start, 0)))
                view = [1] * total.dim()
                view[2 + d] = len(counts)
                share = fl.tensor(counts, dtype=total.dtype).to(self.device).reshape(view)
                if whole:
                    by = by * share
                else:
                    total = total / share
            total = fl.div(total, by, rounding_mode="trunc") if whole else total
        total = total.to(self.dtype)
        return total.squeeze(0) if single else total

    return run


def _adaptive_cells(n: int, outs: int) -> list[tuple[int, int]]:
    return [(i * n // outs, -(-(i + 1) * n // outs)) for i in range(outs)]


def _adaptive_avg(ndim: int) -> Callable[..., Any]:
    def run(self: Any, output_size: Sequence[int]) -> Any:
        sizes = list(output_size) * (ndim if len(output_size) == 1 else 1)
        first, dtype = self.dim() - ndim, self.dtype
        if not (self.is_floating_point() or self.is_complex()):
            self = self.to(fl.float64)
        for d, outs in enumerate(sizes):
            cells = _adaptive_cells(self.shape[first + d], outs)
            parts = [fl.mean(self.narrow(first + d, a, b - a), [first + d], keepdim=True) for a, b in cells]
            self = fl.cat(parts, first + d)
        return self.to(dtype)

    return run


for _n in (1, 2, 3):
    TABLE[f"max_pool{_n}d"] = _max_pool(_n, False)
    TABLE[f"max_pool{_n}d_with_indices"] = _max_pool(_n, True)
    TABLE[f"avg_pool{_n}d"] = _avg_pool(_n)
    TABLE[f"adaptive_avg_pool{_n}d"] = _adaptive_avg(_n)


# ---------------------------------------------------------------- attention


@decompose("_flash_attention")
def _flash_attention(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None) -> Any:
    scores = fl.matmul(query, key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        allowed = fl.tril(fl.ones(scores.shape[-2:], dtype=fl.bool, device=query.device))
        scores = fl.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        scores = fl.where(attn_mask, scores, -math.inf) if attn_mask.dtype is fl.bool else scores + attn_mask
    total = fl.logsumexp(scores, [-1], keepdim=True)
    return fl.matmul(fl.exp(scores - total), value), total.squeeze(-1)


# ---------------------------------------------------------------- gradients


def _weight_gradient(
    grad: Any, input: Any, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """Of a plain convolution: the product of output gradients with the windows they came from."""
    space = len(kernel)
    pad = [side for p in reversed(padding) for side in (p, p)]
    windows = _windows(fl.constant_pad_nd(input, pad, 0), kernel, stride, dilation)
    for d in range(space):
        windows = windows.narrow(2 + d, 0, grad.shape[2 + d])
    order = [1, 0, *range(2, 2 + space), *range(2 + space, 2 + 2 * space)]
    places = grad.shape[0] * math.prod(grad.shape[2:])
    columns = windows.permute(order).reshape([groups, input.shape[1] // groups, places, math.prod(kernel)])
    columns = columns.permute([0, 2, 1, 3]).reshape([groups, places, input.shape[1] // groups * math.prod(kernel)])
    rows = grad.transpose(0, 1).reshape([groups, grad.shape[1] // groups, places])
    return fl.bmm(rows, columns).reshape([grad.shape[1], input.shape[1] // groups, *kernel])


@decompose("_convolution_backward")
def _convolution_backward(
    grad_output: Any, input: Any, weight: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    space = weight.dim() - 2
    stride, padding, dilation = (list(x) * (space if len(x) == 1 else 1) for x in (stride, padding, dilation))
    none = grad_output.new_empty(0)
    kernel = list(weight.shape[2:])
    by_input, by_weight, by_bias = none, none, none
    if output_mask[0]:
        rest = [
            n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
            for n, m, s, p, d, k in zip(input.shape[2:], grad_output.shape[2:], stride, padding, dilation, kernel)
        ]
        other = [0] * space if transposed else rest
        by_input = fl.convolution(grad_output, weight, None, stride, padding, dilation, not transposed, other, groups)
    if output_mask[1]:
        pair = (input, grad_output) if transposed else (grad_output, input)
        by_weight = _weight_gradient(*pair, kernel, stride, padding, dilation, groups)
    if output_mask[2]:
        by_bias = fl.sum(grad_output, [0, *range(2, grad_output.dim())])
    return by_input, by_weight, by_bias


@decompose("_pool_scatter")
def _pool_scatter(self: Any, indices: Any, output_size: Sequence[int], accumulate: bool) -> Any:
    lead = self.dim() - len(output_size)
    shape = list(self.shape[:lead])
    out = fl.zeros([*shape, math.prod(output_size)], dtype=self.dtype, device=self.device)
    places, values = indices.reshape([*shape, -1]), self.reshape([*shape, -1])
    out = fl.scatter_add(out, lead, places, values) if accumulate else fl.scatter(out, lead, places, values)
    return out.reshape([*shape, *output_size])


@decompose("_pool_gather")
def _pool_gather(self: Any, indices: Any, ndim: int) -> Any:
    lead = list(self.shape[: self.dim() - ndim])
    return fl.gather(self.reshape([*lead, -1]), len(lead), indices.reshape([*lead, -1])).reshape(indices.shape)


@decompose("_im2col")
def _im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if self.dim() == 3:
        return fl._ops._im2col(self.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    pad = [side for p in reversed(padding) for side in (p, p)]
    windows = _windows(fl.constant_pad_nd(self, pad, 0), kernel_size, stride, dilation)
    shape = [self.shape[0], self.shape[1] * math.prod(kernel_size), math.prod(windows.shape[2:4])]
    return windows.permute([0, 1, 4, 5, 2, 3]).reshape(shape)


# ---------------------------------------------------------------- losses


@decompose("_nll_loss_forward")
def _nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    dim = 0 if self.dim() == 1 else 1
    kept = target != ignore_index
    place = fl.where(kept, target, 0)
    picked = -fl.gather(self, dim, place.unsqueeze(dim)).squeeze(dim)
    share = fl.ones_like(picked) if weight is None else fl.gather(weight, 0, place.reshape(-1)).reshape(place.shape)
    share = fl.where(kept, share, 0)
    loss = fl.where(kept, picked * share, 0)
    total = fl.sum(share)
    if reduction == 0 and self.dim() > 1:
        return loss, total
    return (fl.sum(loss) / total if reduction == 1 else fl.sum(loss)), total


@decompose("_cross_entropy_forward")
def _cross_entropy_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    dim = 0 if self.dim() == 1 else 1
    normalizer = fl.logsumexp(self, [dim], keepdim=True)
    loss, total = fl._ops._nll_loss_forward(self - normalizer, target, weight, reduction, ignore_index)
    return loss, total, normalizer.squeeze(dim)


TABLE["_nll_loss_backward"] = loss.nll_loss_gradient
TABLE["_cross_entropy_backward"] = loss.cross_entropy_gradient


# ---------------------------------------------------------------- gradients of pools and attention


def _spread(grad: Any, dim: int, cells: Sequence[tuple[int, int]], shares: Sequence[float], n: int) -> Any:
    """Along one dimension: what each cell got, times its share, at every place the cell was made of."""
    if len(cells) == 1:
        inside = (grad * shares[0]).expand(
            [cells[0][1] - cells[0][0] if d == dim else s for d, s in enumerate(grad.shape)]
        )
        before, after = cells[0][0], n - cells[0][1]
        pad = [0, 0] * (grad.dim() - 1 - dim) + [before, after]
        return fl.constant_pad_nd(inside, pad, 0) if before or after else inside
    rows = [[shares[i] if a <= k < b else 0.0 for k in range(n)] for i, (a, b) in enumerate(cells)]
    matrix = fl.tensor(rows, dtype=grad.dtype).to(grad.device)
    return fl.matmul(grad.transpose(dim, -1), matrix).transpose(dim, -1)


@decompose("_adaptive_avg_pool_backward")
def _adaptive_avg_pool_backward(grad: Any, input_size: Sequence[int], ndim: int) -> Any:
    for d in range(len(input_size) - ndim, len(input_size)):
        cells = _adaptive_cells(input_size[d], grad.shape[d])
        grad = _spread(grad, d, cells, [1 / (b - a) for a, b in cells], input_size[d])
    return grad.clone(memory_format=fl.contiguous_format)


@decompose("_avg_pool_backward")
def _avg_pool_backward(
    grad: Any, input_size: Sequence[int], kernel_size: Sequence[int], stride: Any, padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Any:  # fmt: skip
    ndim = len(kernel_size)
    lead = len(input_size) - ndim
    stride = stride or kernel_size
    for i in range(ndim):
        n, k, s, p = input_size[lead + i], kernel_size[i], stride[i], padding[i]
        cells, shares = [], []
        for o in range(grad.shape[lead + i]):
            start, end = o * s - p, min(o * s - p + k, n + p)
            inside = (max(start, 0), min(end, n))
            cells.append(inside)
            count = end - start if count_include_pad else inside[1] - inside[0]
            shares.append(1.0 if divisor_override is not None else 1 / count)
        grad = _spread(grad, lead + i, cells, shares, n)
    if divisor_override is not None:
        grad = grad / divisor_override
    return grad.clone(memory_format=fl.contiguous_format)


@decompose("_flash_attention_backward")
def _flash_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, attn_mask: Any, output: Any, logsumexp: Any, is_causal: bool,
    scale: float | None,
) -> Any:  # fmt: skip
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = fl.matmul(query, key.transpose(-1, -2)) * factor
    if is_causal:
        allowed = fl.tril(fl.ones(scores.shape[-2:], dtype=fl.bool, device=query.device))
        scores = fl.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        scores = fl.where(attn_mask, scores, -math.inf) if attn_mask.dtype is fl.bool else scores + attn_mask
    weights = fl.exp(scores - logsumexp.unsqueeze(-1)).to(query.dtype)
    by_value = fl.matmul(weights.transpose(-1, -2), grad)
    of_weights = fl.matmul(grad, value.transpose(-1, -2))
    of_scores = weights * (of_weights - fl.sum(of_weights * weights, [-1], keepdim=True)) * factor
    return fl.matmul(of_scores, key), fl.matmul(of_scores.transpose(-1, -2), query), by_value


@decompose("_col2im")
def _col2im(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if self.dim() == 2:
        return fl._ops._col2im(self.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    places = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(output_size, padding, dilation, kernel_size, stride)
    ]
    channels = self.shape[1] // math.prod(kernel_size)
    columns = self.reshape([self.shape[0], channels, *kernel_size, *places])
    wide = [n + 2 * p for n, p in zip(output_size, padding)]
    out = fl.zeros([self.shape[0], channels, *wide], dtype=self.dtype, device=self.device)
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            rows = slice(i * dilation[0], i * dilation[0] + (places[0] - 1) * stride[0] + 1, stride[0])
            cols = slice(j * dilation[1], j * dilation[1] + (places[1] - 1) * stride[1] + 1, stride[1])
            out[:, :, rows, cols] += columns[:, :, i, j]
    inside = out.narrow(2, padding[0], output_size[0]).narrow(3, padding[1], output_size[1])
    return inside.clone(memory_format=fl.contiguous_format)


# ---------------------------------------------------------------- scaled losses


@decompose("_amp_foreach_non_finite_check_and_unscale_")
def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Any], found_inf: Any, inv_scale: Any) -> None:
    """No value is read by the host, so that nothing waits for the device."""
    for grad in self:
        finite = fl.all(fl.isfinite(grad))
        found_inf.copy_(fl.where(finite, found_inf, 1.0))
        grad.mul_(inv_scale)
