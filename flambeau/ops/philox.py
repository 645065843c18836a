"""Random elements on a registered device, as expressions over Philox words.

The numbers are those of csrc/core/philox.h and csrc/cpu/kernels/random.cpp: a function of seed, offset and index alone, so
that a device draws what the CPU draws. Words are computed in int64, whose products wrap around as the algorithm needs;
a second expression turns them into numbers of the wanted distribution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.expr import Expr, arg, where

__all__ = ["fill"]

_LOW = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10

# As in csrc/ops/random.h.
UNIFORM, NORMAL, EXPONENTIAL, CAUCHY, LOG_NORMAL, GEOMETRIC, RANGE32, RANGE64, BERNOULLI = range(9)


def _block(index: Expr) -> list[Expr]:
    """The four words of a block, by its index."""
    c = [index & _LOW, (index >> 32) & _LOW, arg("counter2"), arg("counter3")]
    keys = [arg("key0"), arg("key1")]
    for round in range(_ROUNDS):
        p0, p1 = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
        k0, k1 = ((key + round * weyl % (1 << 32)) & _LOW for key, weyl in zip(keys, _WEYL))
        c = [((p1 >> 32) & _LOW) ^ c[1] ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c[3] ^ k1, p0 & _LOW]
    return c


def _chosen(which: Expr, words: list[Expr]) -> Expr:
    chosen = words[-1]
    for number in range(len(words) - 2, -1, -1):
        chosen = where(e.call("eq", which, number), words[number], chosen)
    return chosen


@functools.cache
def _word() -> Expr:
    """The word of an element that takes one."""
    i = arg("i")
    return _chosen((i >> 4) & 3, _block((i >> 6) * 16 + (i & 15)))


@functools.cache
def _pair(part: int) -> Expr:
    """The high (0) or low (1) word of an element that takes two."""
    i = arg("i")
    words = _block((i >> 5) * 16 + (i & 15))
    return where(e.call("eq", (i >> 4) & 1, 0), words[part], words[2 + part])


@functools.cache
def _normal_words(wide: bool, part: int) -> Expr:
    """What the radius (0) and the angle (1) of a normal number are made of, which two elements share."""
    i = arg("i")
    if wide:
        words = _block((i >> 5) * 16 + (i & 15))
        return (words[2 * part] << 20) | (words[2 * part + 1] >> 12)
    words = _block((i >> 6) * 16 + (i & 15))
    return where(e.call("eq", (i >> 5) & 1, 0), words[part], words[2 + part]) >> 8


class _Drawer:
    """Evaluates the expressions of one call on a device."""

    def __init__(self, device: Any, n: int, seed: int, offset: int) -> None:
        self.device = device
        self.operands = {
            "i": device.indices(n), "key0": seed & _LOW, "key1": seed >> 32,
            "counter2": offset & _LOW, "counter3": offset >> 32,
        }  # fmt: skip

    def integers(self, name: str, expr: Expr, out: Any = None, **more: Any) -> Any:
        if out is None:
            out = fl.empty(self.operands["i"].shape, dtype=fl.int64, device=self.operands["i"].device)
        self.device.evaluate(f"random_{name}", expr, {**self.operands, **more}, out, fl.int64)
        return out

    def reals(self, name: str, expr: Expr, out: Any, wide: bool, **operands: Any) -> None:
        self.device.evaluate(f"random_{name}", expr, operands, out, fl.float64 if wide else fl.float32)


def fill(
    device: Any, out: Any, kind: int, wide: int, seed: int, offset: int, a: float, b: float, bits: int, range: int,
    low: int,
) -> None:  # fmt: skip
    """Fills a contiguous tensor of a real dtype from a distribution; parameters are those of `RandomParams`."""
    flat = out.view(-1)
    draw = _Drawer(device, flat.numel(), seed, offset)
    if kind in (RANGE32, RANGE64, BERNOULLI):
        _integers(draw, flat, kind, range, low)
    elif kind in (NORMAL, LOG_NORMAL):
        _normals(draw, flat, kind, bool(wide), a, b)
    else:
        _by_inversion(draw, flat, kind, bool(wide) or kind == GEOMETRIC, a, b, bits)


def _integers(draw: _Drawer, out: Any, kind: int, range: int, low: int) -> None:
    if kind == BERNOULLI:
        if range > _LOW:
            out.fill_(1)
            return
        draw.integers("bernoulli", where(_word() < arg("range"), 1, 0), out, range=range)
    elif kind == RANGE32:
        high = (_word() * arg("range") >> 32) & _LOW
        # The product of a word with 2**32 wraps to a negative number, whose high half is right all the same.
        draw.integers("range32", high + arg("low"), out, range=range, low=low)
    else:
        h, l = _pair(0), _pair(1)
        if range == 0:
            draw.integers("words64", ((h << 32) | l) + arg("low"), out, low=low)
            return
        rh, rl = arg("rh"), arg("rl")
        middle = ((l * rl >> 32) & _LOW) + (h * rl & _LOW) + (l * rh & _LOW)
        high = h * rh + ((h * rl >> 32) & _LOW) + ((l * rh >> 32) & _LOW) + (middle >> 32)
        draw.integers("range64", high + arg("low"), out, rh=range >> 32, rl=range & _LOW, low=low)


def _normals(draw: _Drawer, out: Any, kind: int, wide: bool, mean: float, deviation: float) -> None:
    radius = draw.integers(f"radius{wide}", _normal_words(wide, 0))
    angle = draw.integers(f"angle{wide}", _normal_words(wide, 1))
    side = draw.integers("side", (arg("i") >> 4) & 1)
    scale = 2.0**-52 if wide else 2.0**-24
    r, t = arg("radius"), arg("angle") * scale * (2 * math.pi)
    u = 1.0 - r * scale if wide else (r + 1.0) * scale  # in (0, 1], safe under a logarithm
    x = e.sqrt(e.log(u) * -2.0) * arg("deviation") * where(e.call("eq", arg("side"), 0), e.cos(t), e.sin(t))
    x = x + arg("mean")
    if kind == LOG_NORMAL:
        x = e.exp(x)
    draw.reals(
        f"normal{kind}{wide}", x, out, wide, radius=radius, angle=angle, side=side, mean=mean, deviation=deviation
    )


def _by_inversion(draw: _Drawer, out: Any, kind: int, wide: bool, a: float, b: float, bits: int) -> None:
    if wide:
        words = draw.integers("unit64", (_pair(0) << 20) | (_pair(1) >> 12))
        unit = arg("words") * 2.0**-52
    else:
        kept_bits = bits if kind == UNIFORM else 23
        words = draw.integers(f"unit{kept_bits}", _word() >> (32 - kept_bits))
        unit = arg("words") * 2.0**-kept_bits
    draw.reals(f"inverse{kind}{wide}{bits}", _INVERSES[kind](unit, wide), out, wide, words=words, a=a, b=b)


def _uniform(u: Expr, wide: bool) -> Expr:
    x = u * (arg("b") - arg("a")) + arg("a")
    return where(x < arg("b"), x, arg("a"))  # rounding may reach the open end


def _exponential(u: Expr, wide: bool) -> Expr:
    return e.log(u + (2.0**-54 if wide else 2.0**-24)) * (-1.0 / arg("a"))


def _cauchy(u: Expr, wide: bool) -> Expr:
    turns = (u + (2.0**-53 if wide else 2.0**-24)) * 0.5
    angle = turns * (2 * math.pi)
    return arg("a") - arg("b") * e.cos(angle) / e.sin(angle)


def _geometric(u: Expr, wide: bool) -> Expr:
    x = e.ceil(e.log(1.0 - u) / e.log1p(-arg("a")))
    return where(x < 1.0, 1.0, x)


_INVERSES: dict[int, Callable[[Expr, bool], Expr]] = {
    UNIFORM: _uniform, EXPONENTIAL: _exponential, CAUCHY: _cauchy, GEOMETRIC: _geometric,
}  # fmt: skip
