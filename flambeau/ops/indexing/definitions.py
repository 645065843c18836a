"""Definitions of indexing, scatter, sorting and searching in terms of other operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops import complex_pairs
from flambeau.ops.rules import definition

definition.without(
    "a primitive",
    "nonzero",
    "sort",
    "sort.stable",
)
# Primitives of real numbers.
definition("gather")(complex_pairs.by_parts("gather", (0,)))
definition("scatter.src")(complex_pairs.by_parts("scatter.src", (0, 3)))
definition("scatter_add")(complex_pairs.by_parts("scatter_add", (0, 3)))


def _linear_index(self: Any, indices: Sequence[Any]) -> tuple[Any, Any, list[int], list[int]]:
    """(self with the indexed dimensions in front, flat index into them, the index's shape, sizes of the rest)."""
    spread: list[Any] = []
    for index in indices:
        if index is not None and index.dtype in (fl.bool, fl.uint8):
            spread.extend(fl.nonzero(index).unbind(1))
        else:
            spread.append(index)
    spread = [i if i is None else i.to(self.device) for i in spread]
    spread.extend([None] * (self.dim() - len(spread)))
    used = [d for d, index in enumerate(spread) if index is not None]
    rest = [d for d in range(self.dim()) if d not in used]
    broadcast = fl.broadcast_tensors(*[spread[d] for d in used])
    flat = fl.zeros(broadcast[0].shape, dtype=fl.int64, device=self.device)
    for d, index in zip(used, broadcast):
        n = self.shape[d]
        flat = flat * n + fl.where(index < 0, index + n, index)
    adjacent = used == list(range(used[0], used[-1] + 1))
    order = [*used, *rest]
    lead = rest.index(used[0]) if used[0] in rest else sum(d < used[0] for d in rest) if adjacent else 0
    return self.permute(order), flat, [lead, *broadcast[0].shape], [self.shape[d] for d in rest]


@definition("index.Tensor")
def index(self: Any, indices: Sequence[Any]) -> Any:
    moved, flat, (lead, *shape), rest = _linear_index(self, indices)
    width = math.prod(rest)
    rows = (
        moved.reshape(-1, width)
        if self.numel()
        else moved.reshape(math.prod(moved.shape[: moved.dim() - len(rest)]), width)
    )
    picked = fl.gather(rows, 0, flat.reshape(-1, 1).expand(flat.numel(), width))
    out = picked.reshape([*shape, *rest])
    return out.permute(
        [*range(len(shape), len(shape) + lead), *range(len(shape)), *range(len(shape) + lead, out.dim())]
    )


@definition("index_put")
def index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    self = self.clone()
    moved, flat, (lead, *shape), rest = _linear_index(self, indices)
    width = math.prod(rest)
    full_shape = [*rest[:lead], *shape, *rest[lead:]]
    values = values.to(self.device, self.dtype).expand(full_shape)
    values = values.permute([*range(lead, lead + len(shape)), *range(lead), *range(lead + len(shape), len(full_shape))])
    rows = moved.reshape(-1, width).clone()
    where = flat.reshape(-1, 1).expand(flat.numel(), width)
    source = values.reshape(flat.numel(), width)
    rows = fl.scatter_add(rows, 0, where, source) if accumulate else fl.scatter(rows, 0, where, source)
    moved.copy_(rows.reshape(moved.shape))
    return self


@definition("index_select")
def index_select(self: Any, dim: int, index: Any) -> Any:
    if self.dim() == 0:
        return self.clone()
    dim %= self.dim()
    shape = [*self.shape[:dim], index.numel(), *self.shape[dim + 1 :]]
    view = [1] * self.dim()
    view[dim] = index.numel()
    return fl.gather(self, dim, index.reshape(view).expand(shape).to(fl.int64))


@definition("take")
def take(self: Any, index: Any) -> Any:
    place = index.reshape(-1)
    place = fl.where(place < 0, place + self.numel(), place)
    return fl.gather(self.reshape(-1), 0, place).reshape(index.shape)


@definition("scatter.value")
def scatter_value(self: Any, dim: int, index: Any, value: Any) -> Any:
    return fl.scatter(self, dim, index, fl.full(index.shape, value, dtype=self.dtype, device=self.device))


@definition("index_add")
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if self.dim() == 0:
        return fl.index_add(self.reshape(1), 0, index.reshape(-1), source.reshape(-1), alpha=alpha).reshape(())
    view = [1] * self.dim()
    view[dim] = index.numel()
    source = source if alpha == 1 else (source * alpha).to(source.dtype)
    return fl.scatter_add(self, dim, index.reshape(view).expand(source.shape).to(fl.int64), source)


@definition("index_copy")
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    if self.dim() == 0:
        return fl.index_copy(self.reshape(1), 0, index.reshape(-1), source.reshape(-1)).reshape(())
    view = [1] * self.dim()
    view[dim] = index.numel()
    return fl.scatter(self, dim, index.reshape(view).expand(source.shape), source)


@definition("masked_scatter")
def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    shape = fl.broadcast_shapes(self.shape, mask.shape)
    self, mask = self.expand(shape), mask.expand(shape)
    if not source.numel():
        return self.clone()  # nothing is chosen
    place = fl.cumsum(mask.reshape(-1).to(fl.int64), 0) - 1
    taken = fl.gather(source.reshape(-1), 0, fl.where(place < 0, 0, place))
    return fl.where(mask, taken.reshape(self.shape), self)


_IDENTITY = {"sum": 0, "mean": 0, "prod": 1, "amax": -math.inf, "amin": math.inf}


@definition("scatter_reduce.two")
def scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Every source is compared with every place: slow, and the same for all reductions but the mean."""
    if self.dim() == 0:
        parts = self.reshape(1), 0, index.reshape(-1), src.reshape(-1), reduce
        return fl.scatter_reduce(*parts, include_self=include_self).reshape(())
    dim %= self.dim()
    if reduce == "mean":
        total = fl.scatter_reduce(self, dim, index, src, "sum", include_self=include_self)
        count = fl.full(self.shape, int(include_self), dtype=fl.int64, device=self.device)
        count = fl.scatter_add(count, dim, index, fl.ones_like(index, dtype=fl.int64))
        rounding = None if self.is_floating_point() or self.is_complex() else "floor"
        return fl.div(total, fl.where(count == 0, 1, count), rounding_mode=rounding).to(self.dtype)
    out = self.clone()
    target = out
    for d, n in enumerate(index.shape):
        src = src.narrow(d, 0, n)
        target = target if d == dim else target.narrow(d, 0, n)
    target = target.movedim(dim, -1)
    hit = index.movedim(dim, -1).unsqueeze(-1) == fl.arange(self.shape[dim], device=self.device)
    identity = _IDENTITY[reduce]
    if math.isinf(identity) and self.dtype is fl.bool:
        identity = identity > 0
    elif math.isinf(identity) and not self.is_floating_point():
        identity = fl.iinfo(self.dtype).min if identity < 0 else fl.iinfo(self.dtype).max
    start = fl.full((), identity, dtype=self.dtype, device=self.device)
    values = fl.where(hit, src.movedim(dim, -1).unsqueeze(-1), start)
    if include_self:
        values = fl.cat([values, target.unsqueeze(-2)], -2)
    reduction: Any = {"prod": fl.prod, "amax": fl.amax, "amin": fl.amin}.get(reduce, fl.sum)
    result = reduction(values, -2).to(self.dtype)
    target.copy_(result if include_self else fl.where(fl.any(hit, -2), result, target))
    return out


_REDUCES = {"add": "sum", "multiply": "prod"}


@definition("scatter.reduce")
def scatter_with(self: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    return fl.scatter_reduce(self, dim, index, src, _REDUCES[reduce])


@definition("scatter.value_reduce")
def scatter_value_with(self: Any, dim: int, index: Any, value: Any, *, reduce: str) -> Any:
    source = fl.full(index.shape, value, dtype=self.dtype, device=self.device)
    return fl.scatter_reduce(self, dim, index, source, _REDUCES[reduce])


@definition("index_reduce")
def index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    if self.dim() == 0:
        parts = self.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce
        return fl.index_reduce(*parts, include_self=include_self).reshape(())
    view = [1] * self.dim()
    view[dim] = index.numel()
    places = index.reshape(view).expand(source.shape).to(fl.int64)
    return fl.scatter_reduce(self, dim, places, source, reduce, include_self=include_self)


@definition("_nonzero_numpy")
def _nonzero_numpy(self: Any) -> Any:
    return list(fl.nonzero(self if self.dim() else self.reshape(1)).unbind(1))


@definition("masked_select")
def masked_select(self: Any, mask: Any) -> Any:
    if mask.dtype is not fl.bool:
        raise RuntimeError(f"[masked_select] expected a bool mask, got {mask.dtype}")
    self, mask = fl.broadcast_tensors(self, mask)
    return self[mask]


@definition("index_fill")
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    if self.dim() == 0:
        return fl.full_like(self, value.item() if isinstance(value, fl.Tensor) else value)
    shape = [*self.shape]
    shape[dim] = index.numel()
    source = fl.empty(shape, dtype=self.dtype, device=self.device).fill_(value)
    return fl.index_copy(self, dim, fl.where(index < 0, index + self.shape[dim], index), source)


@definition("put")
def put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat, place, values = self.reshape(-1), index.reshape(-1), source.reshape(-1)
    place = fl.where(place < 0, place + flat.numel(), place)
    done = fl.scatter_add(flat, 0, place, values) if accumulate else fl.scatter(flat, 0, place, values)
    return done.reshape(self.shape)


@definition("topk")
def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, indices = fl.sort(self, dim=dim, descending=largest)
    if self.dim() == 0:
        return values, indices
    return values.narrow(dim, 0, k).clone(), indices.narrow(dim, 0, k).clone()


@definition("argsort", "argsort.stable")
def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return fl.sort(self, dim=dim, descending=descending)[1]


@definition("kthvalue")
def kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, indices = fl.sort(self, dim=dim)
    if self.dim() == 0:
        return values, indices
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values.clone(), indices.clone()) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@definition("mode")
def mode(self: Any, dim: int = -1, keepdim: bool = False) -> Any:
    if self.dim() == 0:
        return self.clone(), fl.zeros((), dtype=fl.int64, device=self.device)
    values, places = fl.sort(self.movedim(dim, -1), dim=-1, stable=True)
    n = values.shape[-1]
    after, before = values.narrow(-1, 1, n - 1), values.narrow(-1, 0, n - 1)
    changed = fl.logical_and(after != before, fl.logical_or(after == after, before == before))
    first = fl.cat([fl.ones([*values.shape[:-1], 1], dtype=fl.bool, device=self.device), changed], -1)
    runs = fl.cumsum(first, -1) - 1
    lengths = fl.scatter_add(fl.zeros_like(runs), -1, runs, fl.ones_like(runs))
    best = fl.argmax(lengths, -1, keepdim=True)
    at = fl.sum(runs <= best, -1, keepdim=True) - 1
    results = fl.gather(values, -1, at), fl.gather(places, -1, at)
    return tuple(t.movedim(-1, dim) if keepdim else t.squeeze(-1) for t in results)


def _median(self: Any, dim: int, keepdim: bool, skip: bool) -> Any:
    """The lower of the middle elements; NaN, unless it is skipped, where there is one."""
    if self.dim() == 0:
        return self.clone(), fl.zeros((), dtype=fl.int64, device=self.device)
    values, places = fl.sort(self, dim=dim, stable=True)
    numbers = fl.sum(self == self, dim, keepdim=True)
    n = self.shape[dim]
    middle = fl.div(numbers - 1, 2, rounding_mode="floor").clamp(min=0)
    at = middle if skip else fl.where(numbers < n, numbers, middle)
    results = fl.gather(values, dim, at), fl.gather(places, dim, at)
    return results if keepdim else tuple(t.squeeze(dim) for t in results)


def _median_of_all(self: Any, skip: bool) -> Any:
    if self.numel() == 0:
        floating = self.is_floating_point()
        return fl.full((), math.nan if floating else fl.iinfo(self.dtype).min, dtype=self.dtype, device=self.device)
    return _median(self.reshape(-1), 0, False, skip)[0]


definition("median.dim")(lambda self, dim, keepdim=False: _median(self, dim, keepdim, False))
definition("nanmedian.dim")(lambda self, dim, keepdim=False: _median(self, dim, keepdim, True))
definition("median")(lambda self: _median_of_all(self, False))
definition("nanmedian")(lambda self: _median_of_all(self, True))


@definition("nonzero_static")
def nonzero_static(self: Any, *, size: int, fill_value: int = -1) -> Any:
    if size < 0:
        raise RuntimeError(f"[nonzero_static] expected a size that is not negative, got {size}")
    positions = fl.nonzero(self)
    out = fl.full((size, self.dim()), fill_value, dtype=fl.int64, device=self.device)
    n = min(size, positions.shape[0])
    out.narrow(0, 0, n).copy_(positions.narrow(0, 0, n))
    return out
