"""The names of `ao.quantization` where older programs look for them."""

from __future__ import annotations

from typing import Any

from flambeau import _absent
from flambeau.ao.quantization import DeQuantStub, QuantStub, QuantWrapper, quantize_dynamic

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper", "quantize_dynamic"]


def __getattr__(name: str) -> Any:
    return _absent.attribute(__name__, name)
