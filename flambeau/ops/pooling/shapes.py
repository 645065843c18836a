"""Shape rules of pooling."""

from __future__ import annotations

from typing import Any

from flambeau.ops.convolution.shapes import for_each_dim, window_count
from flambeau.ops.geometry import Geometry, Ints
from flambeau.ops.rules import shape


@shape("_max_pool_backward", "_avg_pool_backward", "_adaptive_avg_pool_backward")
def input_sized(input_size: Ints) -> Ints:
    return tuple(input_size)


def _pooled(self: Geometry, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Ints:
    kernel, padding, dilation = for_each_dim(kernel, n), for_each_dim(padding, n), for_each_dim(dilation, n)
    stride = kernel if stride is None or (isinstance(stride, (list, tuple)) and not stride) else for_each_dim(stride, n)
    sizes = []
    for i in range(n):
        size, step = self.sizes[i - n], stride[i]
        if ceil_mode:
            span = dilation[i] * (kernel[i] - 1) + 1
            count = -(-(size + 2 * padding[i] - span) // step) + 1
            # A last window that would start in the padding does not count.
            if (count - 1) * step >= size + padding[i]:
                count = count - 1
            sizes.append(count)
        else:
            sizes.append(window_count(size, kernel[i], step, padding[i], dilation[i]))
    return (*self.sizes[: len(self.sizes) - n], *sizes)


def _register(name: str, n: int, twice: bool) -> None:
    @shape(name)
    def pool(self: Geometry, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        sizes = _pooled(self, n, kernel_size, stride, padding, 1 if dilation is None else dilation, ceil_mode)
        return [sizes, sizes] if twice else sizes


@shape("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_pool(self: Geometry, output_size: Ints) -> Ints:
    n = len(output_size)
    lead = self.sizes[: len(self.sizes) - n]
    return (*lead, *(self.sizes[i - n] if size is None else size for i, size in enumerate(output_size)))


@shape("_adaptive_max_pool2d", "_adaptive_max_pool3d", "adaptive_max_pool1d")
def adaptive_max_pool(self: Geometry, output_size: Ints) -> list[Ints]:
    sizes = adaptive_pool(self, output_size)
    return [sizes, sizes]


@shape("_pool_scatter")
def pool_scatter(self: Geometry, output_size: Ints) -> Ints:
    n = len(output_size)
    return (*self.sizes[: len(self.sizes) - n], *output_size)


@shape("_pool_gather")
def pool_gather(indices: Geometry) -> Ints:
    return indices.sizes


for _n in (1, 2, 3):
    for _name, _twice in ((f"max_pool{_n}d", False), (f"max_pool{_n}d_with_indices", True), (f"avg_pool{_n}d", False)):
        _register(_name, _n, _twice)


@shape("_fractional_max_pool2d", "_fractional_max_pool3d")
def fractional_max_pool(self: Geometry, output_size: Ints) -> list[Ints]:
    sizes = (*self.sizes[: len(self.sizes) - len(output_size)], *output_size)
    return [sizes, sizes]
