"""Resizing and sampling in ONNX."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


@onnx("_interpolate")
def interpolate(
    g: Any, self: Any, output_size: Any, mode: str, align_corners: bool, scale_factors: Any, antialias: bool
) -> Any:
    nearest = mode.startswith("nearest")
    kind = "nearest" if nearest else mode
    attributes: dict[str, Any] = {"mode": kind}
    if mode == "nearest":
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif nearest:
        attributes |= {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    else:
        attributes["coordinate_transformation_mode"] = "align_corners" if align_corners else "pytorch_half_pixel"
        if kind == "cubic":
            attributes["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if antialias:
        if g.opset < 18:
            raise g.unsupported("antialias needs opset 18")
        attributes["antialias"] = 1
    if scale_factors is not None and not align_corners:
        scales = g.constant([1.0, 1.0, *map(float, scale_factors)], fl.float32)
        return g.op("Resize", self, None, scales, **attributes)
    sizes = [g.dim(self, 0), g.dim(self, 1), *output_size]
    return g.op("Resize", self, None, None, g.ints(sizes), **attributes)


@onnx("grid_sampler_2d", "grid_sampler")
def grid_sampler(g: Any, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    modes = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    padding = ("zeros", "border", "reflection")[padding_mode]
    return g.op(
        "GridSample",
        input,
        grid,
        mode=modes[interpolation_mode],
        padding_mode=padding,
        align_corners=int(align_corners),
    )
