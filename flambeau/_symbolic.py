"""Symbolic numbers under the names PyTorch gives them; they live in `flambeau.ops.symbolic`."""

from __future__ import annotations

from flambeau.ops.symbolic.numbers import (
    SymBool,
    SymFloat,
    SymInt,
    sym_float,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sum,
)

__all__ = [
    "SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum",
]  # fmt: skip
