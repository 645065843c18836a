"""How files hold the ranks of a mesh: places in a list of ranks, by sizes and strides as a tensor has them."""

from __future__ import annotations

import itertools
from typing import Any

__all__ = ["_FlatLayout", "_MeshLayout", "layout_of", "ranks_in"]


class _FlatLayout:
    """One dimension; several sizes and strides where it was made of several dimensions."""

    shape: Any
    stride: Any


class _MeshLayout:
    axes: tuple[_FlatLayout, ...]


def layout_of(shape: tuple[int, ...]) -> _MeshLayout:
    """That of a mesh whose ranks are in the list one after the other."""
    axes: list[_FlatLayout] = []
    layout, stride = _MeshLayout(), 1
    for size in reversed(shape):
        axis = _FlatLayout()
        axis.shape, axis.stride = (size,), (stride,)
        axes.insert(0, axis)
        stride *= size
    layout.axes = tuple(axes)
    return layout


def _flat(value: Any) -> list[int]:
    if isinstance(value, (tuple, list)):
        return [item for part in value for item in _flat(part)]
    return [int(value)]


def ranks_in(layout: Any, ranks: list[int], own: int) -> tuple[list[int], list[int]]:
    """The ranks of a mesh and its shape. Of a part of a larger mesh, which lies at several places of the list, the one with
    the rank `own`."""
    axes = [list(zip(_flat(axis.shape), _flat(axis.stride), strict=True)) for axis in layout.axes]
    digits = [digit for axis in axes for digit in axis]
    places = [
        sum(i * stride for i, (_, stride) in zip(index, digits))
        for index in itertools.product(*(range(size) for size, _ in digits))
    ]
    at = ranks.index(own) if own in ranks else 0
    starts = [at - place for place in places]
    first = next((s for s in starts if s >= 0 and all(s // stride % size == 0 for size, stride in digits)), None)
    if first is None or first + max(places) >= len(ranks):
        raise ValueError(f"[DeviceMesh] expected places of a mesh among {len(ranks)} ranks, got other ones")
    shape = []
    for axis in axes:
        size = 1
        for count, _ in axis:
            size *= count
        shape.append(size)
    return [ranks[first + place] for place in places], shape
