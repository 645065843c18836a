"""Learning rate schedules: how an optimizer's learning rate changes from epoch to epoch."""

from flambeau.optim._schedule import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from flambeau.optim._schedule import LRScheduler, _LRScheduler
from flambeau.optim._schedules import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    StepLR,
)
from flambeau.optim._schedules_composed import ChainedScheduler, ReduceLROnPlateau, SequentialLR

__all__ = [
    "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "SequentialLR",
    "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR", "CosineAnnealingWarmRestarts",
    "OneCycleLR", "PolynomialLR", "LRScheduler",
]  # fmt: skip

for _class in (
    LRScheduler, _LRScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, ExponentialLR,
    LambdaLR, LinearLR, MultiplicativeLR, MultiStepLR, OneCycleLR, PolynomialLR, StepLR, ChainedScheduler,
    ReduceLROnPlateau, SequentialLR,
):  # fmt: skip
    _class.__module__ = __name__
