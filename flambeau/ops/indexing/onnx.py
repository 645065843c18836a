"""Indexing, scattering and sorting in ONNX."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


@onnx("index_select")
def index_select(g: Any, self: Any, dim: int, index: Any) -> Any:
    index = g.op("Reshape", index, g.ints([-1])) if index.rank == 0 else index
    return g.op("Gather", self, index, axis=dim)


@onnx("gather")
def gather(g: Any, self: Any, dim: int, index: Any) -> Any:
    return g.op("GatherElements", self, g.cast(index, fl.int64), axis=dim)


def _positions(g: Any, index: Any) -> Any:
    return g.cast(index, fl.int64) if index.dtype in (fl.uint8, fl.int8, fl.int16) else index


@onnx("index.Tensor")
def index(g: Any, self: Any, indices: Any) -> Any:
    indexed = [(dim, one) for dim, one in enumerate(indices) if one is not None]
    if any(one.dtype == fl.bool for _, one in indexed):
        return _masked(g, self, indexed)
    if len(indexed) == 1:
        dim, one = indexed[0]
        return g.op("Gather", self, _positions(g, one), axis=dim)
    dims = [dim for dim, _ in indexed]
    rest = [d for d in range(self.rank) if d not in dims]
    moved = self if dims == list(range(len(dims))) else g.op("Transpose", self, perm=[*dims, *rest])
    rank = max(one.rank for _, one in indexed)
    gathered = g.op("GatherND", moved, _joined(g, [one for _, one in indexed]))
    if dims == list(range(dims[0], dims[0] + len(dims))) and dims[0] > 0:
        # Adjacent indices: their dimensions stay where the first of them was.
        count = dims[0]
        total = rank + len(rest)
        order = [*range(rank, rank + count), *range(rank), *range(rank + count, total)]
        gathered = g.op("Transpose", gathered, perm=order)
    return gathered


def _joined(g: Any, indices: list[Any]) -> Any:
    """Index tensors that broadcast, side by side in a last dimension."""
    values = [g.cast(one, fl.int64) for one in indices]
    total = values[0]
    for one in values[1:]:
        total = g.op("Add", total, g.op("Mul", one, g.constant(0, fl.int64)))
    shape = g.op("Shape", total, dtype=fl.int64)
    return g.op("Concat", *(g.op("Unsqueeze", g.op("Expand", one, shape), g.ints([-1])) for one in values), axis=-1)


def _masked(g: Any, self: Any, indexed: list[Any]) -> Any:
    if len(indexed) != 1 or indexed[0][0] != 0:
        raise g.unsupported("a mask beside other indices")
    places = g.op("Transpose", g.op("NonZero", indexed[0][1], dtype=fl.int64), perm=[1, 0])
    return g.op("GatherND", self, places)


@onnx("index_put")
def index_put(g: Any, self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    indexed = [(dim, one) for dim, one in enumerate(indices) if one is not None]
    dims = [dim for dim, _ in indexed]
    values = g.cast(values, self.dtype)
    if len(indexed) == 1 and indexed[0][1].dtype == fl.bool:
        mask = indexed[0][1]
        if dims != [0] or (values.rank and values.shape != (1,)):
            raise g.unsupported("several values for a mask, or one beside other dimensions")
        wide = mask if mask.rank == self.rank else g.unsqueeze(mask, *range(mask.rank, self.rank))
        return g.op("Where", wide, values, self, dtype=self.dtype)
    joined = _joined(g, [one for _, one in indexed])
    lead = g.op("Slice", g.op("Shape", joined, dtype=fl.int64), g.ints(0), g.ints(-1))
    rank = max(one.rank for _, one in indexed)
    rest = [d for d in range(self.rank) if d not in dims]
    # Adjacent indices: their dimensions are where the first of them was; otherwise they come first.
    before = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    parts = [_sizes(g, self, rest[:before]), lead, _sizes(g, self, rest[before:])]
    sizes = [part for part in parts if part is not None]
    full = g.op("Expand", values, sizes[0] if len(sizes) == 1 else g.op("Concat", *sizes, dtype=fl.int64, axis=0))
    if before:
        order = [*range(before, before + rank), *range(before), *range(before + rank, rank + len(rest))]
        full = g.op("Transpose", full, perm=order)
    front = [*dims, *rest]
    moved = front != list(range(self.rank))
    turned = g.op("Transpose", self, perm=front) if moved else self
    written = g.op("ScatterND", turned, joined, full, reduction="add" if accumulate else None)
    return g.op("Transpose", written, perm=[front.index(d) for d in range(self.rank)]) if moved else written


def _sizes(g: Any, x: Any, dims: list[int]) -> Any:
    return g.op("Gather", g.shape(x), g.ints(dims), dtype=fl.int64, axis=0) if dims else None


def _into_rows(g: Any, self: Any, dim: int, index: Any, source: Any, reduction: str | None = None) -> Any:
    """Rows along a dimension replaced, or added to."""
    if not self.rank:
        return g.op("Add", self, source) if reduction else g.op("Identity", source)
    order = list(range(self.rank))
    order[0], order[dim] = order[dim], order[0]
    turned = [g.op("Transpose", x, perm=order) for x in (self, source)]
    places = g.op("Reshape", g.cast(index, fl.int64), g.ints([-1, 1]))
    return g.op("Transpose", g.op("ScatterND", turned[0], places, turned[1], reduction=reduction), perm=order)


@onnx("index_copy")
def index_copy(g: Any, self: Any, dim: int, index: Any, source: Any) -> Any:
    return _into_rows(g, self, dim, index, source)


@onnx("index_add")
def index_add(g: Any, self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    scaled = source if alpha == 1 else g.op("Mul", source, g.constant(alpha, source.dtype))
    return _into_rows(g, self, dim, index, scaled, "add")


@onnx("scatter.src")
def scatter(g: Any, self: Any, dim: int, index: Any, src: Any) -> Any:
    sizes = [g.dim(index, d) for d in range(index.rank)]
    if src.shape != index.shape:
        src = g.op("Slice", src, g.ints([0] * index.rank), g.ints(sizes), g.ints(list(range(index.rank))))
    return g.op("ScatterElements", self, index, src, axis=dim)


@onnx("scatter.value")
def scatter_value(g: Any, self: Any, dim: int, index: Any, value: Any) -> Any:
    src = g.op("Expand", g.cast(value, self.dtype), g.shape(index))
    return g.op("ScatterElements", self, index, src, axis=dim)


@onnx("scatter_add")
def scatter_add(g: Any, self: Any, dim: int, index: Any, src: Any) -> Any:
    return g.op("ScatterElements", self, index, src, axis=dim, reduction="add")


@onnx("scatter_reduce.two")
def scatter_reduce(g: Any, self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    kinds = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in kinds or not include_self:
        raise g.unsupported(f"the reduction {reduce!r} of a scatter")
    return g.op("ScatterElements", self, index, src, axis=dim, reduction=kinds[reduce])


@onnx("slice_scatter")
def slice_scatter(g: Any, self: Any, src: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    length = g.dim(self, dim)
    stop = length if end is None or (isinstance(end, int) and end > 2**60) else end
    size = g.scalar(length) if hasattr(length, "name") else g.constant(length, fl.int64)
    every = g.op("Range", g.constant(0, fl.int64), size, g.constant(1, fl.int64), dtype=fl.int64)
    places = g.op("Slice", every, g.ints(0 if start is None else start), g.ints(stop), g.ints(0), g.ints(step))
    order = list(range(self.rank))
    order[0], order[dim] = order[dim], order[0]
    turned = g.op("Transpose", self, perm=order), g.op("Transpose", src, perm=order)
    scattered = g.op("ScatterND", turned[0], g.unsqueeze(places, 1), turned[1])
    return g.op("Transpose", scattered, perm=order)


@onnx("select_scatter")
def select_scatter(g: Any, self: Any, src: Any, dim: int, index: int) -> Any:
    return slice_scatter(g, self, g.unsqueeze(src, dim % self.rank), dim, index, None if index == -1 else index + 1, 1)


@onnx("topk")
def topk(g: Any, self: Any, k: Any, dim: int, largest: bool, sorted: bool) -> Any:
    values, places = g.op("TopK", self, g.ints(k), outputs=2, axis=dim, largest=int(largest), sorted=int(sorted))
    places.dtype = fl.int64
    return values, places


@onnx("sort")
def sort(g: Any, self: Any, dim: int, descending: bool) -> Any:
    return topk(g, self, g.dim(self, dim), dim, descending, True)


@onnx("sort.stable")
def sort_stable(g: Any, self: Any, dim: int, descending: bool) -> Any:
    return topk(g, self, g.dim(self, dim), dim, descending, True)


@onnx("argsort")
def argsort(g: Any, self: Any, dim: int, descending: bool) -> Any:
    return topk(g, self, g.dim(self, dim), dim, descending, True)[1]


@onnx("nonzero", "argwhere")
def nonzero(g: Any, self: Any) -> Any:
    return g.op("Transpose", g.op("NonZero", self, dtype=fl.int64), perm=[1, 0])
