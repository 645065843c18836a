"""Resizing and sampling of `nn.functional` in the language of scripts."""

import flambeau
from flambeau import Tensor

aten = flambeau.ops.aten

__all__ = ["interpolate", "interpolate__1", "upsample", "upsample__1", "grid_sample", "affine_grid"]


def interpolate(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    if mode == "nearest" or mode == "area" or mode == "nearest-exact":
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    else:
        if align_corners is None:
            align_corners = False
    dim = input.dim() - 2
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if recompute_scale_factor is not None and recompute_scale_factor and scale_factor is not None:
        size = [int(float(input.size(i + 2)) * scale_factor[i]) for i in range(dim)]
        scale_factor = None
    if mode == "nearest":
        if dim == 1:
            return aten.upsample_nearest1d(input, size, scale_factor)
        if dim == 2:
            return aten.upsample_nearest2d(input, size, scale_factor)
        return aten.upsample_nearest3d(input, size, scale_factor)
    if mode == "nearest-exact":
        if dim == 1:
            return aten._upsample_nearest_exact1d(input, size, scale_factor)
        if dim == 2:
            return aten._upsample_nearest_exact2d(input, size, scale_factor)
        return aten._upsample_nearest_exact3d(input, size, scale_factor)
    if mode == "area":
        if size is None:
            assert scale_factor is not None
            size = [int(float(input.size(i + 2)) * scale_factor[i]) for i in range(dim)]
        if dim == 1:
            return aten.adaptive_avg_pool1d(input, size)
        if dim == 2:
            return aten.adaptive_avg_pool2d(input, size)
        return aten.adaptive_avg_pool3d(input, size)
    assert align_corners is not None
    if dim == 1 and mode == "linear":
        return aten.upsample_linear1d(input, size, align_corners, scale_factor)
    if dim == 2 and mode == "bilinear":
        if antialias:
            return aten._upsample_bilinear2d_aa(input, size, align_corners, scale_factor)
        return aten.upsample_bilinear2d(input, size, align_corners, scale_factor)
    if dim == 3 and mode == "trilinear":
        return aten.upsample_trilinear3d(input, size, align_corners, scale_factor)
    if dim == 2 and mode == "bicubic":
        if antialias:
            return aten._upsample_bicubic2d_aa(input, size, align_corners, scale_factor)
        return aten.upsample_bicubic2d(input, size, align_corners, scale_factor)
    if dim == 2 and mode == "lanczos" and antialias:
        return aten._upsample_lanczos2d_aa(input, size, align_corners, scale_factor)
    raise NotImplementedError(f"expected an interpolation mode for {dim} spatial dimensions, got {mode}")


def upsample(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    return interpolate(input, size, scale_factor, mode, align_corners)


def interpolate__1(
    input: Tensor,
    size: int | None = None,
    scale_factor: float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    sizes: list[int] | None = None
    scales: list[float] | None = None
    if size is not None:
        sizes = [size for i in range(input.dim() - 2)]
    if scale_factor is not None:
        scales = [scale_factor for i in range(input.dim() - 2)]
    return interpolate(input, sizes, scales, mode, align_corners, recompute_scale_factor, antialias)


def upsample__1(
    input: Tensor,
    size: int | None = None,
    scale_factor: float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    return interpolate__1(input, size, scale_factor, mode, align_corners)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    if mode == "bilinear":
        mode_enum = 0
    elif mode == "nearest":
        mode_enum = 1
    else:
        mode_enum = 2
    if padding_mode == "zeros":
        padding_enum = 0
    elif padding_mode == "border":
        padding_enum = 1
    else:
        padding_enum = 2
    if align_corners is None:
        align_corners = False
    return aten.grid_sampler(input, grid, mode_enum, padding_enum, align_corners)


def affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Tensor:
    if align_corners is None:
        align_corners = False
    return aten.affine_grid_generator(theta, size, align_corners)
