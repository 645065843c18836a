"""The operands of a recorded product of matrices, whichever operator it is.

In: a call of an operator tagged `matmul`. Out: what is multiplied and added, read by the names of the schema's arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau.backends import records
from flambeau.ops import tags

__all__ = ["ProductOperands", "product_operands"]


@dataclass(frozen=True)
class ProductOperands:
    """first @ second + bias, where `second` lies as (n, k) if it is transposed."""

    first: RecordedValue
    second: RecordedValue
    bias: RecordedValue | None
    transposed: bool


def product_operands(call: RecordedCall) -> ProductOperands | None:
    """The operands of a product whose parts are not scaled; None if the call is none."""
    if call.op._full_name not in tags.operators("matmul"):
        return None
    bound = records.bind(call.op, call.args, call.kwargs)
    if "weight" in bound:
        return ProductOperands(bound["input"], bound["weight"], bound["bias"], True)
    if "mat1" in bound:
        plain = bound["beta"] == 1 and bound["alpha"] == 1
        return ProductOperands(bound["mat1"], bound["mat2"], bound["self"], False) if plain else None
    if "batch1" in bound or "pitch" in bound:
        return None
    return ProductOperands(bound["self"], bound["mat2"] if "mat2" in bound else bound["other"], None, False)
