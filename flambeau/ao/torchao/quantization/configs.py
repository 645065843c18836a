"""Configurations of `quantize_`: what weights and activations become."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import flambeau as fl
from flambeau.ao.torchao.quantization.granularity import Granularity, PerAxis, PerGroup, PerRow, PerTensor

__all__ = [
    "AOBaseConfig", "Float8DynamicActivationFloat8WeightConfig", "Float8WeightOnlyConfig", "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig", "Int8WeightOnlyConfig", "IntxWeightOnlyConfig", "MappingType", "ModuleFqnToConfig",
    "float8_dynamic_activation_float8_weight", "float8_weight_only", "int4_weight_only", "int8_dynamic_activation_int8_weight", "int8_weight_only",
]  # fmt: skip


class MappingType(Enum):
    """Where the grid of a group lies: around zero, or from the smallest number to the largest."""

    SYMMETRIC = auto()  # half of 15 steps to the largest magnitude
    SYMMETRIC_NO_CLIPPING_ERR = auto()  # steps so long that neither end is cut off
    ASYMMETRIC = auto()


class AOBaseConfig:
    """Base class; `scheme` names the arithmetic of the layer that takes the place of a linear one."""

    scheme = ""


@dataclass
class Int8WeightOnlyConfig(AOBaseConfig):
    """Weights in int8 with a scale for each row, or for each group of a row; activations stay."""

    group_size: int | None = None
    set_inductor_config: bool = True
    scheme = "int8_weight"


@dataclass
class Int4WeightOnlyConfig(AOBaseConfig):
    """Weights in four bits with a scale and a zero point for each group of a row; activations stay."""

    group_size: int = 128
    set_inductor_config: bool = True
    int4_packing_format: Any = None
    int4_choose_qparams_algorithm: Any = None
    layout: Any = None
    use_hqq: bool = False
    version: int = 2
    scheme = "int4_weight"
    mapping_type = MappingType.ASYMMETRIC

    def __post_init__(self) -> None:
        if self.group_size not in (32, 64, 128, 256):
            raise ValueError(
                f"[Int4WeightOnlyConfig] expected a group_size of 32, 64, 128 or 256, got {self.group_size}"
            )


@dataclass
class IntxWeightOnlyConfig(AOBaseConfig):
    """Weights in int4 with a scale for each group of a row, or in int8 with a scale for each row; activations stay.

    Symmetric groups have no zero points: with 32 numbers in a group a weight takes 4.5 bits instead of 5.
    """

    weight_dtype: Any = field(default_factory=lambda: fl.int8)
    granularity: Granularity = field(default_factory=lambda: PerAxis(0))
    mapping_type: MappingType = MappingType.SYMMETRIC
    scale_dtype: Any = None
    intx_packing_format: Any = None
    intx_choose_qparams_algorithm: Any = None
    version: int = 2

    def __post_init__(self) -> None:
        grouped = self.weight_dtype == fl.int4 and isinstance(self.granularity, PerGroup)
        rows = self.weight_dtype == fl.int8 and self.granularity == PerAxis(0)
        if not (grouped or (rows and self.mapping_type is MappingType.SYMMETRIC)):
            raise NotImplementedError(
                "[IntxWeightOnlyConfig] expected int4 with PerGroup, or symmetric int8 with PerAxis(0), got "
                f"{self.weight_dtype}, {self.granularity} and {self.mapping_type}"
            )
        if grouped and self.group_size % 4:
            raise ValueError(f"[IntxWeightOnlyConfig] expected groups of a multiple of 4, got {self.group_size}")
        self.scheme = "int4_weight" if grouped else "int8_weight"

    @property
    def group_size(self) -> Any:
        return self.granularity.group_size if isinstance(self.granularity, PerGroup) else None


@dataclass
class Int8DynamicActivationInt8WeightConfig(AOBaseConfig):
    """Weights in int8 for each row, activations in eight bits on a grid for each row, chosen as they come."""

    layout: Any = None
    act_mapping_type: Any = None
    weight_only_decode: bool = False
    set_inductor_config: bool = True
    scheme = "int8_dynamic"


@dataclass
class Float8WeightOnlyConfig(AOBaseConfig):
    """Weights in float8 with a scale for each row; activations stay."""

    weight_dtype: Any = field(default_factory=lambda: fl.float8_e4m3fn)
    set_inductor_config: bool = True
    version: int = 2
    scheme = "float8_weight"


@dataclass
class Float8DynamicActivationFloat8WeightConfig(AOBaseConfig):
    """Weights and activations in float8, with a scale for each row or tensor."""

    activation_dtype: Any = field(default_factory=lambda: fl.float8_e4m3fn)
    weight_dtype: Any = field(default_factory=lambda: fl.float8_e4m3fn)
    granularity: Any = field(default_factory=PerTensor)
    mm_config: Any = None
    set_inductor_config: bool = True
    scheme = "float8_dynamic"

    @property
    def per_row(self) -> bool:
        chosen = self.granularity[0] if isinstance(self.granularity, (tuple, list)) else self.granularity
        return isinstance(chosen, PerRow) or chosen is PerRow


@dataclass
class ModuleFqnToConfig(AOBaseConfig):
    """A configuration for each layer by its name; `_default` is for all others."""

    module_fqn_to_config: dict[str, AOBaseConfig | None] = field(default_factory=dict)

    def of(self, name: str) -> AOBaseConfig | None:
        return self.module_fqn_to_config.get(name, self.module_fqn_to_config.get("_default"))


# The older names of the same.
int8_weight_only = Int8WeightOnlyConfig
int4_weight_only = Int4WeightOnlyConfig
int8_dynamic_activation_int8_weight = Int8DynamicActivationInt8WeightConfig
float8_weight_only = Float8WeightOnlyConfig
float8_dynamic_activation_float8_weight = Float8DynamicActivationFloat8WeightConfig
