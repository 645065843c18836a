"""Products of matrices of 8-bit numbers that carry scales."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import Tensor

__all__ = ["ScalingType", "SwizzleType", "scaled_mm"]


class ScalingType(enum.IntEnum):
    """Which elements of a matrix share a scale."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.IntEnum):
    """The order in which scales lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _only(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise NotImplementedError(
                f"[scaled_mm] expected one {name}, got {len(value)}: there is one level of scales"
            )
        return value[0]
    return value


def _scales(scale: Any, recipe: Any, rows: int) -> tuple[Tensor, bool]:
    """The scales of a matrix, and whether there is one for each of its `rows`, which is a dimension."""
    scale, recipe = _only("scale", scale), ScalingType(_only("recipe", recipe))
    if recipe is ScalingType.TensorWise:
        return scale, False
    if recipe is ScalingType.RowWise:
        return scale.reshape([-1, 1] if rows == 0 else [1, -1]), True
    raise NotImplementedError(f"[scaled_mm] expected a scale for the matrix or for each row, got {recipe.name}")


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: ScalingType | list[ScalingType],
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: ScalingType | list[ScalingType],
    swizzle_a: SwizzleType | list[SwizzleType] | None = None,
    swizzle_b: SwizzleType | list[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: fl.dtype | None = fl.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of two matrices of 8-bit floats times their scales, summed in float32."""
    if any(_only("swizzle", s) not in (None, SwizzleType.NO_SWIZZLE) for s in (swizzle_a, swizzle_b)):
        raise NotImplementedError("[scaled_mm] expected scales in their plain order")
    (left, by_rows), (right, by_columns) = (_scales(scale_a, scale_recipe_a, 0), _scales(scale_b, scale_recipe_b, 1))
    if by_rows != by_columns:  # one of them for each row is: the same for all
        left = left if by_rows else left.reshape(1, 1).expand(mat_a.shape[0], 1).contiguous()
        right = right if by_columns else right.reshape(1, 1).expand(1, mat_b.shape[1]).contiguous()
    return fl._scaled_mm(mat_a, mat_b, left, right, bias, None, output_dtype, use_fast_accum)
