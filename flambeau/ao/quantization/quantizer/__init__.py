"""Quantizers: they write annotations on exported graphs, by what a kind of kernels can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from flambeau.ao.quantization.graphs.annotation import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
    SharedQuantizationSpec,
)

__all__ = [
    "ComposableQuantizer", "DerivedQuantizationSpec", "EdgeOrNode", "FixedQParamsQuantizationSpec", "QuantizationAnnotation",
    "QuantizationSpec", "QuantizationSpecBase", "Quantizer", "SharedQuantizationSpec",
]  # fmt: skip


class Quantizer(ABC):
    """Base class of quantizers."""

    def transform_for_annotation(self, model: Any) -> Any:
        """Changes of the graph before it is annotated; none by default."""
        return model

    @abstractmethod
    def annotate(self, model: Any) -> Any:
        """Writes `node.meta["quantization_annotation"]`."""

    @abstractmethod
    def validate(self, model: Any) -> None:
        """Checks the annotations."""


class ComposableQuantizer(Quantizer):
    """Several quantizers, the first that annotates a node wins."""

    def __init__(self, quantizers: list[Quantizer]) -> None:
        self.quantizers = quantizers

    def transform_for_annotation(self, model: Any) -> Any:
        for quantizer in self.quantizers:
            model = quantizer.transform_for_annotation(model)
        return model

    def annotate(self, model: Any) -> Any:
        for quantizer in self.quantizers:
            quantizer.annotate(model)
        return model

    def validate(self, model: Any) -> None:
        for quantizer in self.quantizers:
            quantizer.validate(model)
