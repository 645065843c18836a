"""Shape rules of resizing and grid sampling."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Ints, equal_sizes
from flambeau.ops.rules import shape


@shape("_interpolate_backward")
def interpolate_backward(input_size: Ints) -> Ints:
    return tuple(input_size)


@shape("_interpolate")
def interpolate(self: Geometry, output_size: Ints) -> Ints:
    return (*self.sizes[:2], *output_size)


@shape("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(input: Geometry, grid: Geometry) -> Ints:
    equal_sizes(input.sizes[0], grid.sizes[0], "grid_sample")
    return (*input.sizes[:2], *grid.sizes[1:-1])


@shape("_grid_sampler_backward")
def grid_sampler_backward(input: Geometry, grid: Geometry) -> list[Ints]:
    return [input.sizes, grid.sizes]
