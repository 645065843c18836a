"""Definitions of pooling in terms of other operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.convolution.definitions import windows_of
from flambeau.ops.rules import aten_parts, definition


def _window_maxima(self: Any, places: Sequence[Any]) -> Any:
    """Maxima over windows, and where they are in the plane. For each axis, `places` holds the positions of every window:
    (*, out, kernel), where * are the leading dimensions of self or ones."""
    ndim = len(places)
    lead, space = list(self.shape[: self.dim() - ndim]), list(self.shape[self.dim() - ndim :])
    at: Any = 0
    for d, (n, place) in enumerate(zip(space, places)):
        shape = list(place.shape[:-2]) + [1] * (2 * ndim)
        shape[len(shape) - 2 * ndim + d] = place.shape[-2]
        shape[len(shape) - ndim + d] = place.shape[-1]
        at = at * n + place.reshape(shape)
    outs, window = [p.shape[-2] for p in places], math.prod(p.shape[-1] for p in places)
    at = at.expand([*lead, *at.shape[at.dim() - 2 * ndim :]]).reshape([*lead, math.prod(outs), window])
    flat, chosen = self.reshape([*lead, math.prod(space)]), at.reshape([*lead, math.prod(outs) * window])
    values = fl.gather(flat, -1, chosen).reshape(at.shape)
    best, which = fl.max(values, -1)
    positions = fl.gather(at, -1, which.unsqueeze(-1)).squeeze(-1)
    return best.reshape([*lead, *outs]), positions.reshape([*lead, *outs])


def _adaptive_max(ndim: int) -> Callable[..., Any]:
    def run(self: Any, output_size: Sequence[int]) -> Any:
        outs = list(output_size) * (ndim if len(output_size) == 1 else 1)
        places = []
        for n, out in zip(self.shape[self.dim() - ndim :], outs):
            cells = [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
            widest = max((b - a for a, b in cells), default=1)
            # Shorter windows name their last element again.
            rows = [[min(a + k, b - 1) for k in range(widest)] for a, b in cells]
            places.append(fl.tensor(rows, dtype=fl.int64).reshape(out, widest).to(self.device))
        return _window_maxima(self, places)

    return run


def _fractional_max(ndim: int) -> Callable[..., Any]:
    def run(self: Any, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Any) -> Any:
        kernel, outs = (list(x) * (ndim if len(x) == 1 else 1) for x in (kernel_size, output_size))
        lead = list(self.shape[: self.dim() - ndim])
        wide = fl.float64 if self.dtype is fl.float64 else fl.float32
        batch = lead[0] if len(lead) == 2 else 1
        samples = random_samples.narrow(0, 0, batch).to(wide).reshape([*lead, ndim])
        places = []
        for d, (n, k, out) in enumerate(zip(self.shape[self.dim() - ndim :], kernel, outs)):
            # In two dimensions the samples of the last axis come first.
            u = samples.select(-1, d if ndim == 3 else ndim - 1 - d).unsqueeze(-1)
            alpha = fl.full((), (n - k) / (out - 1) if out > 1 else 0.0, dtype=fl.float64).to(wide).to(self.device)
            steps = fl.arange(out, device=self.device)
            begin = ((steps.to(wide) + u) * alpha).to(fl.int64) - (u * alpha).to(fl.int64)
            begin = fl.where(steps == out - 1, n - k, begin)
            places.append(begin.unsqueeze(-1) + fl.arange(k, device=self.device))
        return _window_maxima(self, places)

    return run


definition("adaptive_max_pool1d")(_adaptive_max(1))
for _n in (2, 3):
    definition(f"_adaptive_max_pool{_n}d")(_adaptive_max(_n))
    definition(f"_fractional_max_pool{_n}d")(_fractional_max(_n))


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
    windows = windows_of(padded, kernel, stride, dilation)
    cells = windows.reshape([*windows.shape[: 2 + ndim], math.prod(kernel)])
    return cells, (kernel, stride, padding, dilation)


def _batched(self: Any, ndim: int) -> tuple[Any, bool]:
    return (self.unsqueeze(0), True) if self.dim() == ndim + 1 else (self, False)


def _lowest(dtype: Any) -> Any:
    return -math.inf if dtype.is_floating_point else fl.iinfo(dtype).min


def _max_pool(ndim: int, with_indices: bool) -> Callable[..., Any]:
    def run(self, kernel_size, stride=None, padding=(0,), dilation=(1,), ceil_mode=False, return_indices=False):  # type: ignore[no-untyped-def]
        self, single = _batched(self, ndim)
        dtype = self.dtype
        if not dtype.is_floating_point and dtype is not fl.int64:
            self = self.to(fl.int64)  # padding is below every value, and so never chosen
        windows, geometry = _pool_windows(
            self, ndim, kernel_size, stride, padding, dilation, ceil_mode, _lowest(self.dtype)
        )
        values, cell = fl.max(windows, -1)
        values = values.to(dtype)
        if not with_indices:
            return values.squeeze(0) if single else values
        # From the cell of a window to the flat position in the input's space.
        flat = fl.zeros_like(cell)
        for d, (k, s, p, step) in enumerate(zip(*geometry)):
            inside = fl.remainder(fl.floor_divide(cell, math.prod(geometry[0][d + 1 :])), k)
            view = [1] * cell.dim()
            view[2 + d] = cell.shape[2 + d]
            place = fl.arange(cell.shape[2 + d], device=cell.device).reshape(view) * s - p + inside * step
            flat = flat * self.shape[2 + d] + place
        return (values.squeeze(0), flat.squeeze(0)) if single else (values, flat)

    return run


def _avg_pool(ndim: int) -> Callable[..., Any]:
    def run(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] | None = None,
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        self, single = _batched(self, ndim)
        windows, (kernel, strides, pads, _) = _pool_windows(
            self, ndim, kernel_size, stride, padding, (1,), ceil_mode, 0
        )
        total = fl.sum(windows, [-1])
        is_integral = not (self.is_floating_point() or self.is_complex())  # quotients are truncated
        if divisor_override is not None:
            total = fl.div(total, divisor_override, rounding_mode="trunc" if is_integral else None)
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
                if is_integral:
                    by = by * share
                else:
                    total = total / share
            total = fl.div(total, by, rounding_mode="trunc") if is_integral else total
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
    definition(f"max_pool{_n}d")(_max_pool(_n, False))
    definition(f"max_pool{_n}d_with_indices")(_max_pool(_n, True))
    definition(f"avg_pool{_n}d")(_avg_pool(_n))
    definition(f"adaptive_avg_pool{_n}d")(_adaptive_avg(_n))


@definition("_pool_scatter")
def _pool_scatter(self: Any, indices: Any, output_size: Sequence[int], accumulate: bool) -> Any:
    lead = self.dim() - len(output_size)
    shape = list(self.shape[:lead])
    out = fl.zeros([*shape, math.prod(output_size)], dtype=self.dtype, device=self.device)
    places, values = indices.reshape([*shape, -1]), self.reshape([*shape, -1])
    out = fl.scatter_add(out, lead, places, values) if accumulate else fl.scatter(out, lead, places, values)
    return out.reshape([*shape, *output_size])


@definition("_max_pool_backward")
def _max_pool_backward(
    grad: Any, indices: Any, input_size: Sequence[int], kernel_size: Sequence[int], stride: Any, padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool,
) -> Any:  # fmt: skip
    return _pool_scatter(grad, indices, input_size[-len(kernel_size) :], True)


@definition("_pool_gather")
def _pool_gather(self: Any, indices: Any, ndim: int) -> Any:
    lead = list(self.shape[: self.dim() - ndim])
    return fl.gather(self.reshape([*lead, -1]), len(lead), indices.reshape([*lead, -1])).reshape(indices.shape)


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


@definition("_adaptive_avg_pool_backward")
def _adaptive_avg_pool_backward(grad: Any, input_size: Sequence[int], ndim: int) -> Any:
    for d in range(len(input_size) - ndim, len(input_size)):
        cells = _adaptive_cells(input_size[d], grad.shape[d])
        grad = _spread(grad, d, cells, [1 / (b - a) for a, b in cells], input_size[d])
    return grad.clone(memory_format=fl.contiguous_format)


@definition("_avg_pool_backward")
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


# ---------------------------------------------------------------- as ATen has them


@aten_parts("max_pool2d")
def max_pool2d_as_aten(self: Any, *options: Any, **named: Any) -> Any:
    return fl.ops.aten.max_pool2d_with_indices.default(self, *options, **named)[0]
