"""Resizing (`interpolate` and its older names) and sampling at given places (`grid_sample`, `affine_grid`).

`_interpolate` and the grid samplers are native, with their gradients as private ops; what PyTorch decides in Python
about sizes, scale factors and modes is decided in the composites here.
"""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, node, tag, vjp
from flambeau.ops.retrace import retrace

native(
    "_interpolate(Tensor self, int[] output_size, str mode, bool align_corners, float[]? scale_factors, bool antialias) "
    "-> Tensor",
    method=False,
)
native(
    "_interpolate_backward(Tensor grad, int[] input_size, str mode, bool align_corners, float[]? scale_factors, "
    "bool antialias) -> Tensor"
)
_GRID = "Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners"
native(f"grid_sampler_2d({_GRID}) -> Tensor")
native(f"grid_sampler_3d({_GRID}) -> Tensor")
native(f"_grid_sampler_backward(Tensor grad, {_GRID}) -> (Tensor, Tensor)")


@vjp("_interpolate")
def interpolate_vjp(
    g: fl.Tensor, self_sizes: fl.Size, mode: str, align_corners: bool, scale_factors: Any, antialias: bool
) -> fl.Tensor:
    return fl._ops._interpolate_backward(g, self_sizes, mode, align_corners, scale_factors, antialias)


@vjp("_interpolate_backward")
def interpolate_backward_vjp(
    g: fl.Tensor, grad_sizes: fl.Size, mode: str, align_corners: bool, scale_factors: Any, antialias: bool
) -> fl.Tensor:
    return fl._ops._interpolate(g, list(grad_sizes[2:]), mode, align_corners, scale_factors, antialias)


@vjp("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler_vjp(
    g: fl.Tensor,
    input: fl.Tensor,
    grid: fl.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    if fl.is_grad_enabled():
        from flambeau.ops.interpolation.definitions import grid_sampler

        return retrace(
            lambda x, at: grid_sampler(x, at, interpolation_mode, padding_mode, align_corners), (input, grid), needs, g
        )
    grads = fl._ops._grid_sampler_backward(g, input, grid, interpolation_mode, padding_mode, align_corners)
    return tuple(x if needed else None for x, needed in zip(grads, needs))


# ---------------------------------------------------------------- resizing

# mode -> (kernel's mode, dimensions of the input it takes)
MODES = {
    "nearest": ("nearest", (3, 4, 5)),
    "nearest-exact": ("nearest-exact", (3, 4, 5)),
    "area": ("area", (3, 4, 5)),
    "linear": ("linear", (3,)),
    "bilinear": ("linear", (4,)),
    "trilinear": ("linear", (5,)),
    "bicubic": ("cubic", (4,)),
    "lanczos": ("lanczos", (4,)),
}


def _sizes_and_factors(
    input: fl.Tensor, size: Any, scale_factor: Any, recompute: bool
) -> tuple[list[int], list[float] | None]:
    """The output size, and the scale factors when positions are to follow them rather than the sizes."""
    ndim = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("[interpolate] expected one of size and scale_factor, got both")
    if size is not None:
        if recompute:
            raise ValueError("[interpolate] expected recompute_scale_factor only with scale_factor, got it with size")
        sizes = list(size) if isinstance(size, (list, tuple)) else [size] * ndim
        if len(sizes) != ndim:
            raise ValueError(f"[interpolate] expected {ndim} values for size, got {tuple(sizes)}")
        if any(isinstance(n, float) for n in sizes):
            raise TypeError(
                f"[interpolate] expected integers for size, got {tuple(sizes)}: expected size to be one of int or Tuple of them"
            )
        return [int(n) for n in sizes], None
    if scale_factor is None:
        raise ValueError("[interpolate] expected size or scale_factor, got neither")
    factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * ndim
    if len(factors) != ndim:
        raise ValueError(f"[interpolate] expected {ndim} values for scale_factor, got {tuple(factors)}")
    factors = [float(f) for f in factors]
    return [fl.sym_int(n * f) for n, f in zip(input.shape[2:], factors)], None if recompute else factors


@composite()
def nn_interpolate(
    input: fl.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> fl.Tensor:
    if mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
        raise ValueError(f"[interpolate] expected align_corners only with linear and cubic modes, got it with {mode!r}")
    sizes, factors = _sizes_and_factors(
        input, size, scale_factor, bool(recompute_scale_factor) or (mode == "area" and size is None)
    )
    if antialias and (mode not in ("bilinear", "bicubic", "lanczos") or input.dim() != 4):
        raise ValueError(
            f"[interpolate] expected antialias with bilinear, bicubic or lanczos and 4 dimensions, got {mode!r} and {input.dim()}"
        )
    kernel, dims = MODES.get(mode, ("", ()))
    if not dims:
        raise NotImplementedError(f"[interpolate] expected a mode among {', '.join(MODES)}, got {mode}")
    if input.dim() not in dims:
        wanted = " or ".join(map(str, dims))
        raise NotImplementedError(
            f"[interpolate] expected an input of {wanted} dimensions for mode {mode!r}, got shape {tuple(input.shape)}"
        )
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError("[interpolate] expected lanczos with antialias=True and without align_corners")
    if mode == "area":
        functional = fl.nn.functional
        pools = (functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d)
        return pools[input.dim() - 3](input, sizes)
    return fl._ops._interpolate(input, sizes, kernel, bool(align_corners), factors, antialias)


@composite()
def nn_upsample(
    input: fl.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> fl.Tensor:
    warnings.warn("nn.functional.upsample is deprecated. Use nn.functional.interpolate instead.", stacklevel=2)
    return fl.nn.functional.interpolate(input, size, scale_factor, mode, align_corners)


@composite()
def nn_upsample_nearest(input: fl.Tensor, size: Any = None, scale_factor: Any = None) -> fl.Tensor:
    warnings.warn("nn.functional.upsample_nearest is deprecated. Use nn.functional.interpolate instead.", stacklevel=2)
    return fl.nn.functional.interpolate(input, size, scale_factor, mode="nearest")


@composite()
def nn_upsample_bilinear(input: fl.Tensor, size: Any = None, scale_factor: Any = None) -> fl.Tensor:
    warnings.warn("nn.functional.upsample_bilinear is deprecated. Use nn.functional.interpolate instead.", stacklevel=2)
    return fl.nn.functional.interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# ---------------------------------------------------------------- sampling on a grid

_CORNERS = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
    "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details."
)


@composite()
def grid_sampler(
    input: fl.Tensor, grid: fl.Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> fl.Tensor:
    if input.dim() == 5:
        return fl.grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners)
    return fl.grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners)


@composite()
def nn_grid_sample(
    input: fl.Tensor,
    grid: fl.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> fl.Tensor:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    if mode not in modes:
        raise ValueError(
            f"[grid_sample] expected mode among {modes}, got {mode!r}: expected another mode, but got: {mode!r}"
        )
    if padding_mode not in paddings:
        raise ValueError(f"[grid_sample] expected padding_mode among {paddings}, got {padding_mode!r}")
    if align_corners is None:
        warnings.warn(_CORNERS, stacklevel=2)
        align_corners = False
    return fl.grid_sampler(input, grid, modes.index(mode), paddings.index(padding_mode), align_corners)


@composite()
def affine_grid_generator(theta: fl.Tensor, size: list[int], align_corners: bool) -> fl.Tensor:
    """Every output position in [-1, 1] coordinates, moved by the batch's affine maps."""
    spatial = list(size)[2:]
    ndim = len(spatial)
    if ndim not in (2, 3):
        raise RuntimeError(f"[affine_grid] expected a size of 4 or 5 values, got {tuple(size)}")
    options: dict[str, Any] = {"dtype": theta.dtype, "device": theta.device}
    columns = []
    for axis in reversed(range(ndim)):
        n = spatial[axis]
        if n <= 1:
            place = fl.zeros(n, **options)
        else:
            place = fl.linspace(-1, 1, n, **options)
            if not align_corners:
                place = place * ((n - 1) / n)
        shape = [1] * ndim
        shape[axis] = n
        columns.append(place.reshape(shape).expand(spatial))
    columns.append(fl.ones(spatial, **options))
    base = fl.stack(columns, -1).reshape(1, -1, ndim + 1)
    grid = fl.matmul(base.expand(size[0], base.shape[1], ndim + 1), theta.transpose(1, 2))
    return grid.reshape(size[0], *spatial, ndim)


@composite()
def nn_affine_grid(theta: fl.Tensor, size: list[int], align_corners: bool | None = None) -> fl.Tensor:
    if align_corners is None:
        warnings.warn(_CORNERS, stacklevel=2)
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"[affine_grid] expected theta of a floating dtype, got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError(f"[affine_grid] expected a size of 4 or 5 values, got {tuple(size)}")
    ndim = len(size) - 2
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (ndim, ndim + 1):
        raise ValueError(f"[affine_grid] expected theta of shape (n, {ndim}, {ndim + 1}), got {tuple(theta.shape)}")
    if min(size) <= 0:
        raise ValueError(f"[affine_grid] expected sizes greater than zero, got {tuple(size)}")
    return fl.affine_grid_generator(theta, size, align_corners)


# ---------------------------------------------------------------- what passes know of these operators

tag("averages", "nn_interpolate nn_upsample nn_upsample_nearest nn_upsample_bilinear")
tag("piecewise_linear", "nn_grid_sample")
tag("core", "grid_sampler_2d")
autocast("float32", "grid_sampler grid_sampler_2d grid_sampler_3d nn_grid_sample", on="cpu")
autocast("widest", "grid_sampler", on="accelerator")
node("GridSampler2DBackward0", "grid_sampler_2d")
node("GridSampler3DBackward0", "grid_sampler_3d")
