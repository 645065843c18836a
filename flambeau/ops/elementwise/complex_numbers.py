"""Pointwise ops that treat complex numbers apart from real ones: modulus, direction, angle and conjugate.

These are not holomorphic. Their derivatives for complex operands (key "c") are gradients as PyTorch defines them
(with respect to the conjugate) and need no further conjugation: the tag "nonholomorphic" says so.
"""

from __future__ import annotations

import math

from flambeau.ops import expr as e
from flambeau.ops.elementwise.aliases import alias
from flambeau.ops.record import pointwise, tag


def sign(x: e.Expr) -> e.Expr:
    return e.where(x > 0, 1, e.where(x < 0, -1, 0))


def direction(z: e.Expr) -> e.Expr:
    """The complex number of modulus 1 in the direction of z, or 0."""
    other = _not_zero(z)
    return e.where(z == 0, 0, other / e.abs(other))


def _not_zero(z: e.Expr) -> e.Expr:
    """z, or 1 where z is 0 and something else is taken: derivatives there are no infinity times 0."""
    return e.where(z == 0, 1, z)


def sgn_vjp(g: e.Expr, z: e.Expr, out: e.Expr) -> tuple[e.Expr]:
    other = _not_zero(z)
    return (e.where(z == 0, 0, g / e.abs(other) - e.real(g / other) * out),)


absolute = pointwise(
    "abs(Tensor self) -> Tensor",
    lambda x: e.abs(x),
    dtypes="ifc",
    result="real",
    stored={"c": "abs"},
    tags=("nonholomorphic",),
    vjp={"c": lambda g, z, out: (g * direction(z),), "": lambda g, x, out: (g * sign(x),)},
)
alias("absolute", absolute)

pointwise(
    "sgn(Tensor self) -> Tensor",
    {"b": lambda x: x, "c": direction, "": sign},
    dtypes="bifc",
    tags=("nonholomorphic",),
    vjp={
        "c": sgn_vjp,
        "": lambda g, x, out: (e.lift(0),),
    },
)

pointwise(
    "angle(Tensor self) -> Tensor",
    {"c": lambda z: e.angle(z), "f": lambda x: e.where(x != x, x, e.where(x < 0, math.pi, 0))},
    promote="float",
    result="real",
    inplace=False,
    tags=("nonholomorphic",),
    vjp={
        "c": lambda g, z, out: (e.where(z == 0, 0, g * 1j * (z / (e.abs(z) * e.abs(z)))),),
        "": lambda g, x, out: (e.lift(0),),
    },
)

pointwise(
    "conj_physical(Tensor self) -> Tensor",
    {"c": lambda z: e.conj(z), "": lambda x: x},
    dtypes="bifc",
    tags=("nonholomorphic",),
    vjp={"c": lambda g, z, out: (e.conj(g),), "": lambda g, x, out: (g,)},
)


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "abs")
tag("keeps_zero", "abs absolute angle sgn")
