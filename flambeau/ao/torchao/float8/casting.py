"""Tensors to 8-bit floats and back: scales, and products of what has them."""

from __future__ import annotations

from typing import NamedTuple

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.torchao.float8.config import CastConfig, ScalingGranularity

__all__ = ["Float8Operand", "cast_to_float8", "multiply_float8", "scale_of"]

_SMALLEST = 1e-12  # that a largest value is taken for


class Float8Operand(NamedTuple):
    """A matrix of 8-bit floats, and what its numbers are multiplied by to be the values."""

    numbers: Tensor
    inverse_scale: Tensor


def scale_of(largest: Tensor, dtype: fl.dtype, power_of_2: bool) -> Tensor:
    """What brings numbers of at most this size to the range of a dtype."""
    scale = fl.finfo(dtype).max / largest.float().clamp(min=_SMALLEST)
    # The next power of two below: the exponent alone.
    return (scale.view(fl.int32) & 0x7F800000).view(fl.float32) if power_of_2 else scale


def cast_to_float8(
    matrix: Tensor, cast: CastConfig, dim: int, power_of_2: bool, scale: Tensor | None = None
) -> Float8Operand:
    """A matrix in the dtype of a configuration, with a given scale, that of all numbers, or those of lines along `dim`."""
    dtype = cast.target_dtype
    if scale is None:
        by_line = cast.scaling_granularity is ScalingGranularity.AXISWISE
        largest = matrix.abs().amax(dim, keepdim=True) if by_line else matrix.abs().amax()
        scale = scale_of(largest, dtype, power_of_2)
    bound = fl.finfo(dtype).max
    scaled = (matrix.float() * scale).clamp(-bound, bound)
    return Float8Operand(scaled.contiguous().to(dtype), scale.reciprocal())


def multiply_float8(a: Float8Operand, b: Float8Operand, dtype: fl.dtype, fast: bool, pad: bool) -> Tensor:
    """a @ b.t(): both hold rows along which products are added up."""
    left, right = a.numbers, b.numbers
    scales = [a.inverse_scale, b.inverse_scale]
    if scales[0].numel() != 1 or scales[1].numel() != 1:
        scales = [
            s.reshape(-1, 1).expand(m.shape[0], 1).contiguous() for s, m in zip(scales, (left, right), strict=True)
        ]
        scales[1] = scales[1].t()
    rows = right.shape[0]
    if pad and (left.shape[1] % 16 or rows % 16):
        left, right = (
            fl.constant_pad_nd(m, (0, -m.shape[1] % 16, 0, extra)) for m, extra in ((left, 0), (right, -rows % 16))
        )
        if scales[1].numel() != 1:
            scales[1] = fl.constant_pad_nd(scales[1], (0, -rows % 16), 1.0)
    product = fl._scaled_mm(left, right.t(), scales[0], scales[1], out_dtype=dtype, use_fast_accum=fast)
    return product if product.shape[1] == rows else product[:, :rows]
