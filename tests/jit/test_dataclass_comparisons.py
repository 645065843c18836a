"""Comparisons that `dataclass` makes, compiled: also of fields that may be None."""

from __future__ import annotations

from dataclasses import dataclass

import flambeau as fl
from flambeau import jit


@dataclass(order=True)
class Point:
    x: float
    y: float
    norm: fl.Tensor | None = None

    def __post_init__(self):
        self.norm = fl.tensor(self.x) ** 2 + fl.tensor(self.y) ** 2


def test_objects_are_compared_field_by_field_in_order():
    Scripted = jit.script(Point)

    @jit.script
    def compare(a: float, b: float, c: float, d: float):
        left, right = Scripted(a, b), Scripted(c, d)
        return left == right, left < right, left <= right, left > right, left >= right

    for a, b, c, d in ((1.0, 2.0, 1.0, 3.0), (1.0, 2.0, 1.0, 2.0), (2.0, 0.0, 1.0, 3.0)):
        left, right = Point(a, b), Point(c, d)
        assert compare(a, b, c, d) == (left == right, left < right, left <= right, left > right, left >= right)
