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


def _only(name: str, given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise NotImplementedError(
                f"[scaled_mm] expected one {name}, got {len(given)}: there is one level of scales"
            )
        return given[0]
    return given


def _scaled(matrix: Tensor, scale: Any, recipe: Any, rows: int) -> Tensor:
    """The matrix in float32, times its scales; `rows` is the dimension that keeps its scales in the product."""
    scale, recipe = _only("scale", scale), ScalingType(_only("recipe", recipe))
    if recipe is ScalingType.TensorWise:
        return matrix.float() * scale.float().reshape(())
    if recipe is ScalingType.RowWise:
        return matrix.float() * scale.float().reshape([-1, 1] if rows == 0 else [1, -1])
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
    """The product of two matrices times their scales, summed in float32."""
    if any(_only("swizzle", s) not in (None, SwizzleType.NO_SWIZZLE) for s in (swizzle_a, swizzle_b)):
        raise NotImplementedError("[scaled_mm] expected scales in their plain order")
    made = _scaled(mat_a, scale_a, scale_recipe_a, 0) @ _scaled(mat_b, scale_b, scale_recipe_b, 1)
    if bias is not None:
        made = made + bias.float()
    return made.to(mat_a.dtype if output_dtype is None else output_dtype)
