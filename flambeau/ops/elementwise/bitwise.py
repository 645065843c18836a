"""Bitwise and logical operators on integers and booleans.

Integers of every width are computed in 64 bits and truncated to their width when stored, so a shift by more than the
width gives 0 (left) or the sign (right), and by a negative or too large count as well, as in PyTorch.
"""

from __future__ import annotations

from flambeau.ops import expr as e
from flambeau.ops.elementwise.aliases import scalar_first
from flambeau.ops.record import pointwise, tag

pointwise(
    "bitwise_not(Tensor self) -> Tensor",
    {"b": lambda x: e.lnot(x != 0), "i": lambda x: ~x},
    dtypes="bi",
    stored={"b": "not"},
)

for name, expression in {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}.items():
    record = pointwise(
        f"bitwise_{name}.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
        expression,
        dtypes="bi",
        stored={"b": name},
    )
    scalar_first(record, "Scalar_Tensor")


def outside(count: e.Expr) -> e.Expr:
    """Whether a shift count is not one of 0..63."""
    return e.lor(count < 0, count > 63)


for name, expression in {
    "left": lambda x, count: e.where(outside(count), 0, x << (count & 63)),
    "right": lambda x, count: x >> e.where(outside(count), 63, count),
}.items():
    record = pointwise(
        f"bitwise_{name}_shift.Tensor(Tensor self, Tensor|Scalar other) -> Tensor", expression, dtypes="i"
    )
    scalar_first(record, "Scalar_Tensor")


for name, expression in {
    "and": lambda x, y: e.land(x != 0, y != 0),
    "or": lambda x, y: e.lor(x != 0, y != 0),
    "xor": lambda x, y: (x != 0) != (y != 0),
}.items():
    pointwise(
        f"logical_{name}(Tensor self, Tensor other) -> Tensor",
        expression,
        dtypes="bifc",
        result="bool",
        stored={"b": name},
    )

pointwise("logical_not(Tensor self) -> Tensor", lambda x: x == 0, dtypes="bifc", result="bool", stored={"b": "not"})


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "bitwise_and bitwise_not bitwise_or bitwise_xor logical_and logical_not logical_or logical_xor")
