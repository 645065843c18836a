"""The ways to quantize a layer."""

from __future__ import annotations

import enum

__all__ = ["QuantType"]


class QuantType(enum.IntEnum):
    """When activations are put on grids: while running, beforehand, in training, or never."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3


def _get_quant_type_to_str(quant_type: QuantType) -> str:
    return quant_type.name.lower()


def _quant_type_from_str(name: str) -> QuantType:
    if name.upper() not in QuantType.__members__:
        raise ValueError(
            f"[QuantType] expected one of {', '.join(m.lower() for m in QuantType.__members__)}, got {name!r}"
        )
    return QuantType[name.upper()]
