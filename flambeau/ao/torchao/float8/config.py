"""Recipes: in which dtype and with whose scales the three products of a linear layer are computed."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import flambeau as fl

__all__ = [
    "CastConfig", "Float8GemmConfig", "Float8LinearConfig", "Float8LinearRecipeName", "ScalingGranularity", "ScalingType",
]  # fmt: skip


class ScalingType(enum.Enum):
    """Where the scale of a tensor comes from."""

    DYNAMIC = "dynamic"  # its own largest value
    DELAYED = "delayed"  # the largest values of the steps before
    DISABLED = "disabled"  # there is none: the tensor keeps its dtype

    def short_str(self) -> str:
        return self.value[:3]


class ScalingGranularity(enum.Enum):
    """Which numbers share a scale."""

    TENSORWISE = "tensorwise"
    AXISWISE = "axiswise"  # those of a row or column that a product adds up

    def short_str(self) -> str:
        return {"tensorwise": "ten", "axiswise": "axs"}[self.value]


class Float8LinearRecipeName(enum.Enum):
    """Recipes by name."""

    TENSORWISE = "tensorwise"
    ROWWISE = "rowwise"
    ROWWISE_WITH_GW_HP = "rowwise_with_gw_hp"  # and the gradient of weights in the dtype of activations
    DELAYED = "delayed"


@dataclass(frozen=True)
class CastConfig:
    """How one tensor becomes 8-bit floats."""

    scaling_type: ScalingType = ScalingType.DYNAMIC
    scaling_granularity: ScalingGranularity = ScalingGranularity.TENSORWISE
    target_dtype: Any = None

    def __post_init__(self) -> None:
        by_axis = self.scaling_granularity is ScalingGranularity.AXISWISE
        if by_axis and self.scaling_type is not ScalingType.DYNAMIC:
            raise AssertionError(
                "[CastConfig] expected dynamic scales for rows and columns, got " + self.scaling_type.value
            )
        if self.target_dtype is not None and self.target_dtype not in (fl.float8_e4m3fn, fl.float8_e5m2):
            raise AssertionError(f"[CastConfig] expected float8_e4m3fn or float8_e5m2, got {self.target_dtype}")

    def short_str(self) -> str:
        dtype = {fl.float8_e4m3fn: "e4m3", fl.float8_e5m2: "e5m2"}[self.target_dtype]
        return f"{self.scaling_type.short_str()}_{self.scaling_granularity.short_str()}_{dtype}"


@dataclass(frozen=True)
class Float8GemmConfig:
    """How one of the three products is computed."""

    use_fast_accum: bool = False  # sums may lose bits


@dataclass(frozen=True)
class Float8LinearConfig:
    """How the three products of a linear layer are computed: output, grad_input and grad_weight.

    Each of the three tensors takes part in two products; its second configuration is the first where it is not given.
    """

    cast_config_input: CastConfig = CastConfig()
    cast_config_input_for_grad_weight: CastConfig = None  # type: ignore[assignment]
    cast_config_weight: CastConfig = CastConfig()
    cast_config_weight_for_grad_input: CastConfig = None  # type: ignore[assignment]
    cast_config_grad_output: CastConfig = CastConfig()
    cast_config_grad_output_for_grad_weight: CastConfig = None  # type: ignore[assignment]
    gemm_config_output: Float8GemmConfig = field(default_factory=lambda: Float8GemmConfig(use_fast_accum=True))
    gemm_config_grad_input: Float8GemmConfig = Float8GemmConfig()
    gemm_config_grad_weight: Float8GemmConfig = Float8GemmConfig()
    enable_fsdp_float8_all_gather: bool = False
    pad_inner_dim: bool = False
    emulate: bool = False
    force_recompute_fp8_weight_in_bwd: bool = False
    round_scales_to_power_of_2: bool = False
    amax_history_len: int = 16  # steps that a delayed scale looks back

    def __post_init__(self) -> None:
        if self.enable_fsdp_float8_all_gather:
            raise NotImplementedError(
                "[Float8LinearConfig] expected enable_fsdp_float8_all_gather=False: weights are gathered in their own dtype"
            )
        if self.amax_history_len < 1:
            raise ValueError(f"[Float8LinearConfig] expected an amax_history_len above 0, got {self.amax_history_len}")
        pairs = (
            ("cast_config_input", "cast_config_input_for_grad_weight", fl.float8_e4m3fn),
            ("cast_config_weight", "cast_config_weight_for_grad_input", fl.float8_e4m3fn),
            ("cast_config_grad_output", "cast_config_grad_output_for_grad_weight", fl.float8_e5m2),
        )
        for first, second, dtype in pairs:
            one = getattr(self, first)
            other = getattr(self, second) or one
            one, other = _with_dtype(one, dtype), _with_dtype(other, dtype)
            if one.target_dtype != other.target_dtype:
                raise AssertionError(f"[Float8LinearConfig] expected {first} and {second} of one dtype, got two")
            object.__setattr__(self, first, one)
            object.__setattr__(self, second, other)
        for name, one, other in self._products():
            if (one.scaling_type is ScalingType.DISABLED) != (other.scaling_type is ScalingType.DISABLED):
                raise AssertionError(
                    f"[Float8LinearConfig] expected both operands of {name} in float8, or none of them"
                )
            if one.scaling_granularity is not other.scaling_granularity and name == "output":
                raise AssertionError(f"[Float8LinearConfig] expected operands of {name} with scales of one kind")

    def _products(self) -> tuple[tuple[str, CastConfig, CastConfig], ...]:
        return (
            ("output", self.cast_config_input, self.cast_config_weight),
            ("grad_input", self.cast_config_grad_output, self.cast_config_weight_for_grad_input),
            ("grad_weight", self.cast_config_input_for_grad_weight, self.cast_config_grad_output_for_grad_weight),
        )

    @property
    def delayed(self) -> bool:
        """Whether any tensor has scales of the steps before."""
        return any(c.scaling_type is ScalingType.DELAYED for _, *casts in self._products() for c in casts)

    @staticmethod
    def from_recipe_name(recipe_name: Float8LinearRecipeName | str) -> Float8LinearConfig:
        """The configuration of a recipe: "tensorwise", "rowwise", "rowwise_with_gw_hp" or "delayed"."""
        if isinstance(recipe_name, str):
            names = [recipe.value for recipe in Float8LinearRecipeName]
            if recipe_name not in names:
                raise AssertionError(f"[from_recipe_name] expected one of {names}, got {recipe_name!r}")
            recipe_name = Float8LinearRecipeName(recipe_name)
        if recipe_name is Float8LinearRecipeName.TENSORWISE:
            return Float8LinearConfig()
        if recipe_name is Float8LinearRecipeName.DELAYED:
            cast = CastConfig(ScalingType.DELAYED)
            fast = Float8GemmConfig(use_fast_accum=True)
            return Float8LinearConfig(
                cast_config_input=cast, cast_config_weight=cast, cast_config_grad_output=cast,
                gemm_config_output=fast, gemm_config_grad_input=fast, gemm_config_grad_weight=fast,
            )  # fmt: skip
        rows = CastConfig(scaling_granularity=ScalingGranularity.AXISWISE, target_dtype=fl.float8_e4m3fn)
        if recipe_name is Float8LinearRecipeName.ROWWISE:
            return Float8LinearConfig(
                cast_config_input=rows,
                cast_config_weight=rows,
                cast_config_grad_output=rows,
                round_scales_to_power_of_2=True,
            )
        plain = CastConfig(ScalingType.DISABLED, target_dtype=fl.float8_e4m3fn)
        return Float8LinearConfig(
            cast_config_input=rows,
            cast_config_weight=rows,
            cast_config_grad_output=rows,
            cast_config_weight_for_grad_input=CastConfig(),
            cast_config_input_for_grad_weight=plain,
            cast_config_grad_output_for_grad_weight=plain,
            round_scales_to_power_of_2=True,
        )


def _with_dtype(cast: CastConfig, dtype: Any) -> CastConfig:
    if cast.target_dtype is not None:
        return cast
    return CastConfig(cast.scaling_type, cast.scaling_granularity, dtype)
