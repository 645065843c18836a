"""The sizes that a program is recorded at, so that plans for all promised sizes can be fitted.

Sizes zero and one are special to broadcasting and strides: each combination of them is a *pattern* of its own. In a
pattern the other sizes are sampled over their ranges, closer where they are small, because planning decides by thresholds.
Between neighbours whose plans differ in structure the border is looked for.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

__all__ = [
    "Point",
    "borders",
    "candidates",
    "every_point",
    "first_points",
    "pattern_of",
    "points_by_remainder",
    "unseen_points",
]

Point = tuple[int, ...]
LARGEST = 1 << 20  # size that plans are evaluated at
_LADDER = (2, 3, 4, 7, 11, 16, 23, 32, 47, 64, 97, 128, 200, 256, 390, 512, 1021, 2048, 4096)
_SEVERAL = {2: 5, 3: 4}  # values of each size, by how many vary; more sizes have three


def pattern_of(point: Point) -> Point:
    """Which sizes are zero and one; the others are 2."""
    return tuple(min(size, 2) for size in point)


def _ladder(low: int, high: int) -> list[int]:
    """Sizes from two on in a range, its ends among them."""
    low = max(low, 2)
    if low > high:
        return []
    steps = {low, min(low + 1, high), min(low + 2, high), *(n for n in _LADDER if low <= n <= high)}
    steps |= {min(low * k + k, high) for k in (1, 2, 3)}
    if high <= _LADDER[-1]:
        steps |= {high, max(high - 1, low)}
    return sorted(steps)


def _thinned(steps: list[int], count: int) -> list[int]:
    """Some of the steps, the first two among them: with neighbours, plans know of no remainder to look at."""
    if len(steps) <= count:
        return steps
    rest = steps[1:]
    return [steps[0], *(rest[i * (len(rest) - 1) // (count - 2)] for i in range(count - 1))]


def first_points(ranges: list[tuple[int, int]]) -> list[Point]:
    """Where to record first, pattern by pattern."""
    special = [[n for n in (0, 1) if low <= n <= high] for low, high in ranges]
    ladders = [_ladder(low, high) for low, high in ranges]
    points: list[Point] = []
    choices = [[*chosen, *([2] if ladder else [])] for chosen, ladder in zip(special, ladders)]
    for pattern in itertools.product(*choices):
        varying = sum(n == 2 for n in pattern)
        count = _SEVERAL.get(varying, 3) if varying > 1 else len(_LADDER) + 8
        values = [_thinned(ladder, count) if n == 2 else [n] for n, ladder in zip(pattern, ladders)]
        points += itertools.product(*values)
    return points


def borders(points: list[Point], groups: list[int]) -> Iterator[Point]:
    """Points half-way between neighbours along one size that are in different groups."""
    known = set(points)
    for axis in range(len(points[0]) if points else 0):
        lines: dict[Point, list[tuple[int, int]]] = {}
        for point, group in zip(points, groups):
            if point[axis] >= 2:
                lines.setdefault((*point[:axis], *point[axis + 1 :]), []).append((point[axis], group))
        for rest, line in lines.items():
            line.sort()
            for (a, group), (b, other) in itertools.pairwise(line):
                middle = (*rest[:axis], (a + b) // 2, *rest[axis:])
                if group != other and b - a > max(1, a // 8) and middle not in known:
                    known.add(middle)
                    yield middle


def points_by_remainder(pattern: Point, ranges: list[tuple[int, int]], step: int) -> Iterator[Point]:
    """Points of a pattern for every combination of remainders of a step, for plans that look at them."""
    axes = [axis for axis, size in enumerate(pattern) if size == 2]
    multiples = (0, 1, 2, 3, 5, 7) if len(axes) == 1 else (0, 1, 2, 4, 6) if len(axes) == 2 else (0, 1, 3)
    for remainders in itertools.product(range(step), repeat=len(axes)):
        for times in itertools.product(multiples, repeat=len(axes)):
            point = list(pattern)
            for axis, remainder, k in zip(axes, remainders, times):
                point[axis] = max(ranges[axis][0], 2) + remainder + k * step
            if all(point[axis] <= ranges[axis][1] for axis in axes):
                yield tuple(point)


def candidates(ranges: list[tuple[int, int]]) -> list[Point]:
    """Points all over the promised ranges, at which there must be a plan."""
    generator = random.Random(0)
    lines = [
        sorted(
            {*range(low, min(low + 18, high + 1)), *(n for n in _LADDER if low <= n <= high), min(high, _LADDER[-1])}
        )
        for low, high in ranges
    ]
    if len(ranges) == 1:
        return [(n,) for n in lines[0]]
    return sorted({tuple(generator.choice(line) for line in lines) for _ in range(80)})


def every_point(ranges: list[tuple[int, int]], most: int) -> list[Point]:
    """All points of the promised ranges; none where they are more."""
    if math.prod(high - low + 1 for low, high in ranges) > most:
        return []
    return list(itertools.product(*(range(low, high + 1) for low, high in ranges)))


def unseen_points(points: list[Point], ranges: list[tuple[int, int]], count: int) -> list[Point]:
    """A few points that were not recorded, in all patterns, small ones first: there results are compared with eager mode."""
    known = set(points)
    candidates = itertools.product(
        *([n for n in (low, low + 1, low + 3, 5, 6, 9, high) if low <= n <= high] for low, high in ranges)
    )
    fresh = sorted((p for p in set(candidates) if p not in known and max(p, default=0) <= 64), key=sum)
    specials = [p for p in points if min(p, default=2) < 2]
    return [*specials[:2], *fresh[:count]]
