"""Sobol sequences: points that fill the unit cube more evenly than random ones."""

from __future__ import annotations

import base64
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.quasirandom.sobol_numbers import DIMENSIONS, PACKED

__all__ = ["SobolEngine"]


def _times(a: int, b: int, polynomial: int, degree: int) -> int:
    """The product of two polynomials over two elements, modulo a third."""
    result = 0
    while b:
        if b & 1:
            result ^= a
        b >>= 1
        a <<= 1
        if a >> degree & 1:
            a ^= polynomial
    return result


def _prime_factors(n: int) -> list[int]:
    factors, d = [], 2
    while d * d <= n:
        if n % d == 0:
            factors.append(d)
            while n % d == 0:
                n //= d
        d += 1
    return [*factors, n] if n > 1 else factors


def _is_primitive(polynomial: int, degree: int, factors: list[int]) -> bool:
    """Whether the powers of x modulo the polynomial run through all residues but zero."""
    if degree == 1:
        return polynomial == 3

    def power(exponent: int) -> int:
        result, base = 1, 2
        while exponent:
            if exponent & 1:
                result = _times(result, base, polynomial, degree)
            base = _times(base, base, polynomial, degree)
            exponent >>= 1
        return result

    order = (1 << degree) - 1
    return power(order) == 1 and all(power(order // f) != 1 for f in factors)


def _direction_numbers(dimension: int, bits: int) -> list[list[int]]:
    """For each dimension its direction numbers, as integers of so many bits."""
    packed = int.from_bytes(base64.b85decode("".join(PACKED)), "little")
    rows = [[1] * bits]
    degree = 0
    while len(rows) < dimension:
        degree += 1
        factors = _prime_factors((1 << degree) - 1)
        for polynomial in range(1 << degree | 1, 2 << degree, 2):
            if len(rows) == dimension:
                break
            if not _is_primitive(polynomial, degree, factors):
                continue
            row = []
            for j in range(degree):
                row.append((packed & ((1 << j) - 1)) << 1 | 1)
                packed >>= j
            for j in range(degree, bits):
                value = row[j - degree] ^ row[j - degree] << degree
                for k in range(1, degree):
                    if polynomial >> (degree - k) & 1:
                        value ^= row[j - k] << k
                row.append(value)
            rows.append(row)
    return [[value << (bits - 1 - j) for j, value in enumerate(row)] for row in rows]


class SobolEngine:
    """Draws the points of a Sobol sequence one after the other, scrambled or not."""

    MAXBIT = 30
    MAXDIM = DIMENSIONS

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"[SobolEngine] expected a dimension from 1 to {self.MAXDIM}, got {dimension}")
        self.seed = seed
        self.scramble = scramble
        self.dimension = dimension
        self.sobolstate = fl.tensor(_direction_numbers(dimension, self.MAXBIT), dtype=fl.int64, device="cpu")
        self.shift = fl.zeros(dimension, dtype=fl.int64, device="cpu")
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self.num_generated = 0

    def _scramble(self) -> None:
        """Multiply the bits of each number by a random triangular matrix and shift them by a random number."""
        generator = None
        if self.seed is not None:
            generator = fl.Generator()
            generator.manual_seed(self.seed)
        bits = self.MAXBIT
        powers = 2 ** fl.arange(bits, dtype=fl.int64)
        self.shift = (fl.randint(2, (self.dimension, bits), generator=generator) * powers).sum(1)
        matrix = fl.randint(2, (self.dimension, bits, bits), generator=generator).tril()
        matrix.diagonal(0, 1, 2).fill_(1)
        down = fl.arange(bits - 1, -1, -1)  # bits are counted from the highest
        numbers = self.sobolstate.unsqueeze(2) >> down & 1
        mixed = (matrix.unsqueeze(1) * numbers.unsqueeze(2)).sum(3) % 2
        self.sobolstate = (mixed * 2**down).sum(2)

    def _point_bits(self, first: int, n: int) -> Tensor:
        """The points from one on, as integers: the numbers of the bits set in each index's Gray code, added bit by bit."""
        index = fl.arange(first, first + n, dtype=fl.int64)
        code = index ^ index >> 1
        points = self.shift.expand(n, self.dimension).clone()
        for bit in range(max(first + n - 1, 0).bit_length()):
            points ^= (code >> bit & 1).unsqueeze(1) * self.sobolstate[:, bit]
        return points

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next n points, one in each row."""
        if n < 0:
            raise RuntimeError(f"[SobolEngine] expected a number of points n >= 0, got {n}")
        dtype = fl.get_default_dtype() if dtype is None else dtype
        points = self._point_bits(self.num_generated, n)
        if n:
            self.quasi = points[-1].clone()
        self.num_generated += n
        values = points.to(dtype) * 2.0**-self.MAXBIT
        return values if out is None else out.resize_(values.shape).copy_(values)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2 ** m points; those drawn before and these must together be a power of two, to be balanced."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                f"[SobolEngine] expected a power of two of points in all, got {self.num_generated} + 2**{m} = {total}; "
                "use draw() for other numbers"
            )
        return self.draw(n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Back to the first point."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out n points."""
        self.num_generated += n
        if self.num_generated > 0:
            self.quasi = self._point_bits(self.num_generated - 1, 1)[0]
        return self

    def __repr__(self) -> str:
        arguments = [f"dimension={self.dimension}"]
        if self.scramble:
            arguments.append("scramble=True")
        if self.seed is not None:
            arguments.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(arguments)})"
