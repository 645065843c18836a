"""Shape rules of indexing, scatter, sorting and searching."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.ops.geometry import (
    Geometry,
    Int,
    Ints,
    broadcast,
    dimension,
    equal_sizes,
    fits,
    numel,
    of_self,
    of_self_twice,
    require,
)
from flambeau.ops.reductions.shapes import reduction, reduction_to_two
from flambeau.ops.rules import shape

shape("argsort", "argsort.stable", "index_fill", "put")(of_self)
shape("sort", "sort.stable")(of_self_twice)
shape("median", "nanmedian")(reduction)
shape("median.dim", "nanmedian.dim", "mode", "kthvalue")(reduction_to_two)


@shape("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add", "scatter_reduce.two")
def scatter(self: Geometry, dim: int, index: Geometry, src: Geometry | None) -> Ints:
    d = dimension(dim, len(self.sizes))
    for i, size in enumerate(index.sizes):
        if i != d:
            require(size <= self.sizes[i], f"[scatter] expected an index of at most {self.sizes[i]}, got {size}")
        if src is not None:
            require(size <= src.sizes[i], f"[scatter] expected a source of at least {size}, got {src.sizes[i]}")
    return self.sizes


@shape("index_add", "index_copy", "index_reduce")
def index_add(self: Geometry, dim: int, index: Geometry, source: Geometry) -> Ints:
    d = dimension(dim, len(self.sizes))
    for i, size in enumerate(source.sizes):
        equal_sizes(size, numel(index.sizes) if i == d else self.sizes[i], "index_add")
    return self.sizes


@shape("index_put")
def index_put(self: Geometry, indices: Sequence[Geometry | None], values: Geometry) -> Ints:
    fits(values.sizes, index(self, indices), "index_put")
    return self.sizes


@shape("masked_scatter")
def masked_scatter(self: Geometry, mask: Geometry) -> Ints:
    return broadcast(self.sizes, mask.sizes)


@shape("gather")
def gather(self: Geometry, dim: int, index: Geometry) -> Ints:
    d = dimension(dim, len(self.sizes))
    for i, size in enumerate(index.sizes):
        if i != d:
            require(size <= self.sizes[i], f"[gather] expected an index of at most {self.sizes[i]}, got {size}")
    return index.sizes


@shape("take")
def take(index: Geometry) -> Ints:
    return index.sizes


@shape("index_select")
def index_select(self: Geometry, dim: int, index: Geometry) -> Ints:
    if not self.sizes:
        return ()
    d = dimension(dim, len(self.sizes))
    return (*self.sizes[:d], numel(index.sizes), *self.sizes[d + 1 :])


@shape("index.Tensor")
def index(self: Geometry, indices: Sequence[Geometry | None]) -> Ints:
    at = [i for i, geometry in enumerate(indices) if geometry is not None]
    index_sizes = broadcast(*(indices[i].sizes for i in at))  # type: ignore[union-attr]
    rest = [size for i, size in enumerate(self.sizes) if i not in at]
    # Indices side by side put their result where they are; others put it first.
    place = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    return (*rest[:place], *index_sizes, *rest[place:])


@shape("topk")
def topk(self: Geometry, k: Int, dim: int) -> list[Ints]:
    if not self.sizes:
        return [(), ()]
    d = dimension(dim, len(self.sizes))
    require(k <= self.sizes[d], f"[topk] expected k of at most {self.sizes[d]}, got {k}")
    sizes = (*self.sizes[:d], k, *self.sizes[d + 1 :])
    return [sizes, sizes]


@shape("nonzero_static")
def nonzero_static(self: Geometry, size: Int) -> Ints:
    return size, len(self.sizes)
