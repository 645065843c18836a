"""How tensors of a graph are to be quantized: specifications, and where they apply.

An annotation is in `node.meta["quantization_annotation"]`. It says how the inputs of the node, by the node that makes them, and
its result are quantized. The place of a specification is a node, for its result, or an edge `(input, node)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Union

from flambeau.fx import Node

__all__ = [
    "KEY", "DerivedQuantizationSpec", "EdgeOrNode", "FixedQParamsQuantizationSpec", "QuantizationAnnotation", "QuantizationSpec",
    "QuantizationSpecBase", "SharedQuantizationSpec",
]  # fmt: skip

KEY = "quantization_annotation"
EdgeOrNode = Union[tuple[Node, Node], Node]


class QuantizationSpecBase:
    """How one tensor is to be quantized."""


@dataclass(eq=True, frozen=True)
class QuantizationSpec(QuantizationSpecBase):
    """By what an observer sees."""

    dtype: Any
    observer_or_fake_quant_ctr: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    ch_axis: int | None = None
    is_dynamic: bool = False

    def __post_init__(self) -> None:
        if self.quant_min is not None and self.quant_max is not None and self.quant_min > self.quant_max:
            raise ValueError(
                f"[QuantizationSpec] expected quant_min <= quant_max, got {self.quant_min} and {self.quant_max}"
            )
        if self.ch_axis is not None and self.ch_axis < 0:
            raise ValueError(f"[QuantizationSpec] expected ch_axis >= 0, got {self.ch_axis}")

    def __hash__(self) -> int:
        return hash((self.dtype, self.quant_min, self.quant_max, self.qscheme, self.ch_axis, self.is_dynamic))

    def make_observer(self) -> Any:
        make = self.observer_or_fake_quant_ctr
        if not hasattr(make, "with_args"):
            return make()
        options: dict[str, Any] = {"dtype": self.dtype, "is_dynamic": self.is_dynamic or None}
        for name in ("quant_min", "quant_max", "qscheme", "ch_axis"):
            options[name] = getattr(self, name)
        known = {**getattr(make, "keywords", {})}
        return make.with_args(**{k: v for k, v in options.items() if v is not None and k not in known})()


@dataclass(eq=True, frozen=True)
class FixedQParamsQuantizationSpec(QuantizationSpecBase):
    """By a grid that is known."""

    dtype: Any
    scale: float
    zero_point: int
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    is_dynamic: bool = False

    def make_observer(self) -> Any:
        from flambeau.ao.quantization.observer import FixedQParamsObserver, range_of

        low, high = range_of(self.dtype)
        return FixedQParamsObserver(
            self.scale, self.zero_point, self.dtype, quant_min=low if self.quant_min is None else self.quant_min,
            quant_max=high if self.quant_max is None else self.quant_max,
        )  # fmt: skip


@dataclass(eq=True, frozen=True)
class SharedQuantizationSpec(QuantizationSpecBase):
    """On the grid of another place."""

    edge_or_node: EdgeOrNode


@dataclass(eq=True, frozen=True)
class DerivedQuantizationSpec(QuantizationSpecBase):
    """On a grid that is computed from those of other places: the bias of a convolution, for one."""

    derived_from: list[EdgeOrNode]
    derive_qparams_fn: Callable[[list[Any]], tuple[Any, Any]]
    dtype: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    ch_axis: int | None = None
    is_dynamic: bool = False

    def __hash__(self) -> int:
        return id(self.derive_qparams_fn)


@dataclass
class QuantizationAnnotation:
    """How inputs and result of a node are to be quantized."""

    input_qspec_map: dict[Node, Any] = field(default_factory=dict)
    output_qspec: Any = None
    allow_implicit_sharing: bool = True
    _annotated: bool = False
    _reuse_input_obs_or_fq: bool = False
    _custom: dict[str, Any] = field(default_factory=dict)
