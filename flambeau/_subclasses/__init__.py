"""Tensor subclasses of the compile stack."""

from __future__ import annotations

from flambeau._subclasses.fake_tensor import (
    DataDependentOutput,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

__all__ = [
    "DataDependentOutput", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode", "UnsupportedFakeTensorException",
]  # fmt: skip
