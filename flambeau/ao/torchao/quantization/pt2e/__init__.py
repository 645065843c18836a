"""Quantization of exported programs, under torchao's names."""

from __future__ import annotations

from flambeau.ao.quantization.fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from flambeau.ao.quantization.observer import *  # noqa: F403
from flambeau.ao.quantization.observer import __all__ as _observers
from flambeau.ao.quantization.quantize_pt2e import (
    allow_exported_model_train_eval,
    convert_pt2e,
    move_exported_model_to_eval,
    move_exported_model_to_train,
    prepare_pt2e,
    prepare_qat_pt2e,
)

__all__ = [
    "FakeQuantize", "FusedMovingAvgObsFakeQuantize", "allow_exported_model_train_eval", "convert_pt2e", "move_exported_model_to_eval",
    "move_exported_model_to_train", "prepare_pt2e", "prepare_qat_pt2e", *_observers,
]  # fmt: skip
