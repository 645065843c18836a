"""Training with products of 8-bit floats, by torchao's names.

    convert_to_float8_training(model)                                             a scale for each tensor
    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("rowwise"))

Weights, optimizers and everything but the products stay as they are. The recipe "delayed" takes scales from the steps before, so that
no tensor is read twice; `sync_float8_amax_and_scale_history(model)` moves them on, once after each backward.
"""

from __future__ import annotations

from flambeau.ao.torchao.float8.config import (
    CastConfig,
    Float8GemmConfig,
    Float8LinearConfig,
    Float8LinearRecipeName,
    ScalingGranularity,
    ScalingType,
)
from flambeau.ao.torchao.float8.convert import convert_to_float8_training, swap_linear_layers
from flambeau.ao.torchao.float8.history import sync_float8_amax_and_scale_history
from flambeau.ao.torchao.float8.linear import Float8Linear

__all__ = [
    "CastConfig", "Float8GemmConfig", "Float8Linear", "Float8LinearConfig", "Float8LinearRecipeName", "ScalingGranularity",
    "ScalingType", "convert_to_float8_training", "swap_linear_layers", "sync_float8_amax_and_scale_history",
]  # fmt: skip
