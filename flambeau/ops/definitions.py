"""Native ops in terms of primitives, for devices that have no kernel of their own for them.

`TABLE` maps an operator's full name to a function with its arguments. The primitives are the pointwise and reduction
records, views, and copy_, fill_, mm, gather, scatter.src, scatter_add, index_put_, nonzero, sort, cumsum and cumprod;
everything here ends there. Random numbers and sequences are made on the CPU and copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl

TABLE: dict[str, Callable[..., Any]] = {}


def decompose(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function defines these operators."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return register


def _options(like: Any, options: dict[str, Any]) -> dict[str, Any]:
    """dtype and device of a result, from keywords or from a tensor."""
    return {
        "dtype": options.get("dtype") or like.dtype,
        "device": options.get("device") or like.device,
    }


# ---------------------------------------------------------------- creation and copies


def _fill(value: Any) -> Callable[..., Any]:
    return lambda size, dtype=None, device=None, **_: fl.empty(size, dtype=dtype, device=device).fill_(value)


TABLE["zeros"], TABLE["ones"] = _fill(0), _fill(1)


@decompose("eye", "eye.m")
def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    out = fl.zeros([n, n if m is None else m], dtype=dtype, device=device)
    out.diagonal().fill_(1)
    return out


@decompose("full")
def full(size: Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    if dtype is None:
        kind = type(fill_value)
        dtype = {bool: fl.bool, int: fl.int64, complex: fl.complex64}.get(kind, fl.get_default_dtype())
    return fl.empty(size, dtype=dtype, device=device).fill_(fill_value)


def _like(value: Any) -> Callable[..., Any]:
    return lambda self, **options: fl.empty_like(self, **options).fill_(value)


TABLE["zeros_like"], TABLE["ones_like"] = _like(0), _like(1)
TABLE["full_like"] = lambda self, fill_value, **options: fl.empty_like(self, **options).fill_(fill_value)
TABLE["new_zeros"] = lambda self, size, **options: fl.empty(size, **_options(self, options)).fill_(0)
TABLE["new_ones"] = lambda self, size, **options: fl.empty(size, **_options(self, options)).fill_(1)
TABLE["new_full"] = lambda self, size, fill_value, **options: fl.empty(size, **_options(self, options)).fill_(
    fill_value
)
TABLE["new_empty"] = lambda self, size, **options: fl.empty(size, **_options(self, options))
TABLE["scalar_tensor"] = lambda s, dtype=None, device=None, **_: fl.empty((), dtype=dtype, device=device).fill_(s)
TABLE["zero_"] = lambda self: self.fill_(0)
TABLE["fill"] = lambda self, value: fl.empty_like(self).fill_(value)


@decompose("empty_like")
def empty_like(self: Any, *, memory_format: Any = None, **options: Any) -> Any:
    shape = fl.empty_strided(self.shape, self.stride(), dtype=self.dtype, device="meta")
    shape = fl.empty_like(shape, memory_format=memory_format)
    return fl.empty_strided(shape.shape, shape.stride(), **_options(self, options))


@decompose("clone")
def clone(self: Any, *, memory_format: Any = None) -> Any:
    return fl.empty_like(self, memory_format=memory_format).copy_(self)


@decompose("_to_copy")
def _to_copy(self: Any, *, non_blocking: bool = False, memory_format: Any = None, **options: Any) -> Any:
    shape = fl.empty_like(fl.empty_strided(self.shape, self.stride(), device="meta"), memory_format=memory_format)
    out = fl.empty_strided(shape.shape, shape.stride(), **_options(self, options))
    return out.copy_(self, non_blocking)


def on_host(name: str) -> Callable[..., Any]:
    """Make the values on the CPU, where sequences and random streams live, and copy them."""

    def make(*args: Any, device: Any = None, **options: Any) -> Any:
        host = [a.cpu() if isinstance(a, fl.Tensor) else a for a in args]
        place = device if device is not None else next(a.device for a in args if isinstance(a, fl.Tensor))
        made = fl._C._operator_object(name)(*host, **({"device": "cpu"} if device is not None else {}), **options)
        return made.to(place)

    return make


def in_place_on_host(name: str) -> Callable[..., Any]:
    def make(self: Any, *args: Any, **options: Any) -> Any:
        host = fl.empty(self.shape, dtype=self.dtype, device="cpu")
        return self.copy_(fl._C._operator_object(name)(host, *args, **options))

    return make


for _name in (
    "arange arange.start arange.start_step range linspace logspace rand randn randint randint.low randperm "
    "rand_like randn_like randint_like randint_like.low_dtype bernoulli multinomial poisson binomial tril_indices "
    "triu_indices _standard_gamma _sample_dirichlet"
).split():
    TABLE[_name] = on_host(_name)
for _name in (
    "uniform_ normal_ random_ random_.to random_.from exponential_ bernoulli_.float geometric_ cauchy_ log_normal_"
).split():
    TABLE[_name] = in_place_on_host(_name)


# ---------------------------------------------------------------- joining, padding, reordering


@decompose("cat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    tensors = [t for t in tensors if t.dim() != 1 or t.shape[0] != 0] or list(tensors[:1])
    dim %= max(tensors[0].dim(), 1)
    shape = list(tensors[0].shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = fl.promote_types(dtype, t.dtype)
    out = fl.empty(shape, dtype=dtype, device=tensors[0].device)
    start = 0
    for t in tensors:
        out.narrow(dim, start, t.shape[dim]).copy_(t)
        start += t.shape[dim]
    return out


@decompose("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return fl.cat([t.unsqueeze(dim) for t in tensors], dim)


@decompose("constant_pad_nd")
def constant_pad_nd(self: Any, pad: Sequence[int], value: Any = 0) -> Any:
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    shape, inner, source = list(self.shape), None, self
    for i, (before, after) in enumerate(pairs):
        shape[-1 - i] += before + after
    inner = out = fl.full(shape, value, dtype=self.dtype, device=self.device)
    for i, (before, after) in enumerate(pairs):
        d = self.dim() - 1 - i
        inner = inner.narrow(d, max(before, 0), shape[d] - max(before, 0) - max(after, 0))
        source = source.narrow(d, max(-before, 0), self.shape[d] + min(before, 0) + min(after, 0))
    inner.copy_(source)
    return out


def _positions(n: int, device: Any) -> Any:
    return fl.arange(n, device=device)


def _edge_sources(mode: str, size: int, low: int, high: int, device: Any) -> Any:
    """For each position of a padded dimension, the position it is copied from."""
    position = fl.arange(-low, size + high, device=device)
    if mode == "replicate":
        return position.clamp(0, size - 1)
    if mode == "circular":
        return position.remainder(size)
    return (size - 1) - ((size - 1) - position.abs()).abs()


@decompose("_edge_pad")
def _edge_pad(self: Any, pad: Sequence[int], mode: str) -> Any:
    for k in range(len(pad) // 2):
        dim = self.dim() - 1 - k
        sources = _edge_sources(mode, self.shape[dim], pad[2 * k], pad[2 * k + 1], self.device)
        self = fl.index_select(self, dim, sources)
    return self


@decompose("_edge_pad_backward")
def _edge_pad_backward(grad: Any, sizes: Sequence[int], pad: Sequence[int], mode: str) -> Any:
    for k in reversed(range(len(pad) // 2)):
        dim = grad.dim() - 1 - k
        shape = [*grad.shape[:dim], sizes[dim], *grad.shape[dim + 1 :]]
        sources = _edge_sources(mode, sizes[dim], pad[2 * k], pad[2 * k + 1], grad.device)
        grad = fl.zeros(shape, dtype=grad.dtype, device=grad.device).index_add(dim, sources, grad)
    return grad


@decompose("flip")
def flip(self: Any, dims: Sequence[int]) -> Any:
    for d in dims:
        d %= max(self.dim(), 1)
        if self.dim():
            self = fl.index_select(self, d, self.shape[d] - 1 - _positions(self.shape[d], self.device))
    return self.clone()


@decompose("roll")
def roll(self: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not dims:
        return fl.roll(self.reshape(-1), shifts, [0]).reshape(self.shape)
    for shift, d in zip(shifts, dims):
        n = self.shape[d]
        if n:
            self = fl.index_select(self, d % self.dim(), fl.remainder(_positions(n, self.device) - shift, n))
    return self.clone()


def _triangle(self: Any, diagonal: int, lower: bool) -> Any:
    rows = _positions(self.shape[-2], self.device).unsqueeze(1)
    columns = _positions(self.shape[-1], self.device).unsqueeze(0)
    keep = columns - rows <= diagonal if lower else columns - rows >= diagonal
    return fl.where(keep, self, fl.zeros((), dtype=self.dtype, device=self.device))


TABLE["tril"] = lambda self, diagonal=0: _triangle(self, diagonal, True)
TABLE["triu"] = lambda self, diagonal=0: _triangle(self, diagonal, False)


@decompose("diag_embed")
def diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    n = self.shape[-1] + abs(offset)
    ndim = self.dim() + 1
    first, second = dim1 % ndim, dim2 % ndim
    shape = list(self.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, n)
    out = fl.zeros(shape, dtype=self.dtype, device=self.device)
    out.diagonal(offset, first, second).copy_(self)
    return out


TABLE["trace"] = lambda self: self.diagonal().sum()


# ---------------------------------------------------------------- indexing


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
    given = fl.broadcast_tensors(*[spread[d] for d in used])
    flat = fl.zeros(given[0].shape, dtype=fl.int64, device=self.device)
    for d, index in zip(used, given):
        n = self.shape[d]
        flat = flat * n + fl.where(index < 0, index + n, index)
    adjacent = used == list(range(used[0], used[-1] + 1))
    order = [*used, *rest]
    lead = rest.index(used[0]) if used[0] in rest else sum(d < used[0] for d in rest) if adjacent else 0
    return self.permute(order), flat, [lead, *given[0].shape], [self.shape[d] for d in rest]


@decompose("index.Tensor")
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


@decompose("index_put")
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


@decompose("index_select")
def index_select(self: Any, dim: int, index: Any) -> Any:
    if self.dim() == 0:
        return self.clone()
    dim %= self.dim()
    shape = [*self.shape[:dim], index.numel(), *self.shape[dim + 1 :]]
    view = [1] * self.dim()
    view[dim] = index.numel()
    return fl.gather(self, dim, index.reshape(view).expand(shape).to(fl.int64))


@decompose("take")
def take(self: Any, index: Any) -> Any:
    place = index.reshape(-1)
    place = fl.where(place < 0, place + self.numel(), place)
    return fl.gather(self.reshape(-1), 0, place).reshape(index.shape)


@decompose("scatter.value")
def scatter_value(self: Any, dim: int, index: Any, value: Any) -> Any:
    return fl.scatter(self, dim, index, fl.full(index.shape, value, dtype=self.dtype, device=self.device))


@decompose("index_add")
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if self.dim() == 0:
        return fl.index_add(self.reshape(1), 0, index.reshape(-1), source.reshape(-1), alpha=alpha).reshape(())
    view = [1] * self.dim()
    view[dim] = index.numel()
    source = source if alpha == 1 else (source * alpha).to(source.dtype)
    return fl.scatter_add(self, dim, index.reshape(view).expand(source.shape).to(fl.int64), source)


@decompose("index_copy")
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    if self.dim() == 0:
        return fl.index_copy(self.reshape(1), 0, index.reshape(-1), source.reshape(-1)).reshape(())
    view = [1] * self.dim()
    view[dim] = index.numel()
    return fl.scatter(self, dim, index.reshape(view).expand(source.shape), source)


@decompose("masked_scatter")
def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    mask = mask.expand(self.shape)
    place = fl.cumsum(mask.reshape(-1).to(fl.int64), 0) - 1
    taken = fl.gather(source.reshape(-1), 0, fl.where(place < 0, 0, place))
    return fl.where(mask, taken.reshape(self.shape), self)


_IDENTITY = {"sum": 0, "mean": 0, "prod": 1, "amax": -math.inf, "amin": math.inf}


@decompose("scatter_reduce.two")
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
    hit = index.movedim(dim, -1).unsqueeze(-1) == _positions(self.shape[dim], self.device)
    identity = _IDENTITY[reduce]
    if math.isinf(identity) and self.dtype is fl.bool:
        identity = identity > 0
    elif math.isinf(identity) and not self.is_floating_point():
        identity = fl.iinfo(self.dtype).min if identity < 0 else fl.iinfo(self.dtype).max
    identity = fl.full((), identity, dtype=self.dtype, device=self.device)
    values = fl.where(hit, src.movedim(dim, -1).unsqueeze(-1), identity)
    if include_self:
        values = fl.cat([values, target.unsqueeze(-2)], -2)
    fold = {"prod": fl.prod, "amax": fl.amax, "amin": fl.amin}.get(reduce, fl.sum)
    result = fold(values, -2).to(self.dtype)
    target.copy_(result if include_self else fl.where(fl.any(hit, -2), result, target))
    return out


_REDUCES = {"add": "sum", "multiply": "prod"}


@decompose("scatter.reduce")
def scatter_with(self: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    return fl.scatter_reduce(self, dim, index, src, _REDUCES[reduce])


@decompose("scatter.value_reduce")
def scatter_value_with(self: Any, dim: int, index: Any, value: Any, *, reduce: str) -> Any:
    source = fl.full(index.shape, value, dtype=self.dtype, device=self.device)
    return fl.scatter_reduce(self, dim, index, source, _REDUCES[reduce])


@decompose("index_reduce")
def index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    if self.dim() == 0:
        parts = self.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce
        return fl.index_reduce(*parts, include_self=include_self).reshape(())
    view = [1] * self.dim()
    view[dim] = index.numel()
    places = index.reshape(view).expand(source.shape).to(fl.int64)
    return fl.scatter_reduce(self, dim, places, source, reduce, include_self=include_self)


@decompose("_nonzero_numpy")
def _nonzero_numpy(self: Any) -> Any:
    return list(fl.nonzero(self if self.dim() else self.reshape(1)).unbind(1))


@decompose("_search")
def _search(sequence: Any, values: Any, right: bool, int32: bool, sorter: Any = None) -> Any:
    """How many elements come before each value."""
    ordered = sequence if sorter is None else fl.gather(sequence, -1, sorter)
    ordered, sought = ordered.unsqueeze(-2) if ordered.dim() > 1 else ordered, values.unsqueeze(-1)
    count = fl.sum(ordered <= sought if right else ordered < sought, -1)
    return count.to(fl.int32) if int32 else count


@decompose("masked_select")
def masked_select(self: Any, mask: Any) -> Any:
    if mask.dtype is not fl.bool:
        raise RuntimeError(f"[masked_select] expected a bool mask, got {mask.dtype}")
    self, mask = fl.broadcast_tensors(self, mask)
    return self[mask]


@decompose("index_fill")
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    if self.dim() == 0:
        return fl.full_like(self, value.item() if isinstance(value, fl.Tensor) else value)
    shape = [*self.shape]
    shape[dim] = index.numel()
    source = fl.empty(shape, dtype=self.dtype, device=self.device).fill_(value)
    return fl.index_copy(self, dim, fl.where(index < 0, index + self.shape[dim], index), source)


@decompose("put")
def put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat, place, values = self.reshape(-1), index.reshape(-1), source.reshape(-1)
    place = fl.where(place < 0, place + flat.numel(), place)
    done = fl.scatter_add(flat, 0, place, values) if accumulate else fl.scatter(flat, 0, place, values)
    return done.reshape(self.shape)


@decompose("repeat")
def repeat(self: Any, repeats: Sequence[int]) -> Any:
    lead = len(repeats) - self.dim()
    sizes = [1] * lead + list(self.shape)
    view = [n for size in sizes for n in (1, size)]
    wide = [n for r, size in zip(repeats, sizes) for n in (r, size)]
    return self.reshape(view).expand(wide).reshape([r * size for r, size in zip(repeats, sizes)])


@decompose("repeat_interleave.Tensor")
def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    ends = fl.cumsum(repeats, 0)
    total = output_size if output_size is not None else int(ends[-1]) if ends.numel() else 0
    return fl._ops._search(ends, _positions(total, repeats.device), True, repeats.dtype is fl.int32)


@decompose("embedding")
def embedding(weight: Any, indices: Any, *_: Any, **__: Any) -> Any:
    return fl.index_select(weight, 0, indices.reshape(-1)).reshape([*indices.shape, weight.shape[1]])


@decompose("topk")
def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, indices = fl.sort(self, dim=dim, descending=largest)
    if self.dim() == 0:
        return values, indices
    return values.narrow(dim, 0, k).clone(), indices.narrow(dim, 0, k).clone()


@decompose("argsort", "argsort.stable")
def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return fl.sort(self, dim=dim, descending=descending)[1]


# ---------------------------------------------------------------- extremes and moments


def _extreme_at(self: Any, dim: int, keepdim: bool, largest: bool) -> Any:
    """The extreme along a dimension and the first place where it is found; nan counts as the extreme."""
    best = fl.amax(self, dim, keepdim=True) if largest else fl.amin(self, dim, keepdim=True)
    found = fl.logical_or(self == best, self != self)
    n = self.shape[dim] if self.dim() else 1
    view = [1] * self.dim()
    if self.dim():
        view[dim] = n
    places = fl.where(found, _positions(n, self.device).reshape(view), n)
    first = fl.amin(places, dim, keepdim=True)
    return (best, first) if keepdim or not self.dim() else (best.squeeze(dim), first.squeeze(dim))


TABLE["max.dim"] = lambda self, dim, keepdim=False: _extreme_at(self, dim, keepdim, True)
TABLE["min.dim"] = lambda self, dim, keepdim=False: _extreme_at(self, dim, keepdim, False)


def _arg_extreme(self: Any, dim: int | None, keepdim: bool, largest: bool) -> Any:
    if dim is None:
        place = _extreme_at(self.reshape(-1), 0, False, largest)[1]
        return place.reshape([1] * self.dim()) if keepdim else place
    return _extreme_at(self, dim, keepdim, largest)[1]


TABLE["argmax"] = lambda self, dim=None, keepdim=False: _arg_extreme(self, dim, keepdim, True)
TABLE["argmin"] = lambda self, dim=None, keepdim=False: _arg_extreme(self, dim, keepdim, False)


def _moments(self: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    dims = [dim] if isinstance(dim, int) else list(dim) if dim else list(range(self.dim()))
    count = math.prod(self.shape[d] for d in dims)
    mean = fl.mean(self, dims, keepdim=True)
    spread = self - mean
    square = spread * spread if not self.is_complex() else fl.real(spread * spread.conj())
    divisor = max(count - (1 if correction is None else correction), 0)
    total = fl.sum(square, dims, keepdim=keepdim)
    return total / divisor, mean if keepdim else mean.reshape(total.shape)


def _moment_ops() -> None:
    for name, root, both in (
        ("var", False, False),
        ("std", True, False),
        ("var_mean", False, True),
        ("std_mean", True, True),
    ):

        def by(self: Any, dim: Any, correction: Any, keepdim: bool, root: bool = root, both: bool = both) -> Any:
            variance, mean = _moments(self, dim, correction, keepdim)
            value = fl.sqrt(variance) if root else variance
            return (value, mean) if both else value

        TABLE[name] = lambda self, unbiased=True, by=by: by(self, None, int(unbiased), False)
        TABLE[f"{name}.dim"] = lambda self, dim=None, unbiased=True, keepdim=False, by=by: by(
            self, dim, int(unbiased), keepdim
        )
        TABLE[f"{name}.correction"] = lambda self, dim=None, *, correction=None, keepdim=False, by=by: by(
            self, dim, correction, keepdim
        )


_moment_ops()


@decompose("_logsumexp")
def _logsumexp(self: Any, dim: Sequence[int], keepdim: bool = False) -> Any:
    self = self.to(fl.get_default_dtype()) if self.dtype is fl.bool else self
    high = fl.amax(self, dim, keepdim=True)
    high = fl.where(fl.isinf(high), 0, high)
    total = fl.log(fl.sum(fl.exp(self - high), dim, keepdim=keepdim))
    return total + high.reshape(total.shape)


@decompose("_softmax")
def _softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    raised = fl.exp(self - fl.amax(self, dim, keepdim=True))
    return raised / fl.sum(raised, dim, keepdim=True)


@decompose("_log_softmax")
def _log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    lowered = self - fl.amax(self, dim, keepdim=True)
    return lowered - fl.log(fl.sum(fl.exp(lowered), dim, keepdim=True))


# ---------------------------------------------------------------- matrix products


@decompose("bmm")
def bmm(self: Any, mat2: Any) -> Any:
    if self.shape[0] == 0:
        return fl.empty((0, self.shape[1], mat2.shape[2]), dtype=self.dtype, device=self.device)
    return fl.stack([fl.mm(a, b) for a, b in zip(self.unbind(0), mat2.unbind(0))])


@decompose("mv")
def mv(self: Any, vec: Any) -> Any:
    return fl.mm(self, vec.unsqueeze(1)).squeeze(1)


@decompose("dot")
def dot(self: Any, tensor: Any) -> Any:
    return fl.sum(self * tensor, dtype=self.dtype)


@decompose("vdot")
def vdot(self: Any, other: Any) -> Any:
    return fl.sum(fl.conj_physical(self) * other, dtype=self.dtype)


@decompose("matmul")
def matmul(self: Any, other: Any) -> Any:
    if self.dim() == 1 and other.dim() == 1:
        return fl.sum(self * other)
    a = self.unsqueeze(0) if self.dim() == 1 else self
    b = other.unsqueeze(1) if other.dim() == 1 else other
    if a.dim() == 2 and b.dim() == 2:
        out = fl.mm(a, b)
    else:
        batch = fl.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left = a.expand([*batch, *a.shape[-2:]]).reshape([-1, *a.shape[-2:]])
        right = b.expand([*batch, *b.shape[-2:]]).reshape([-1, *b.shape[-2:]])
        out = fl.bmm(left, right).reshape([*batch, a.shape[-2], b.shape[-1]])
    if self.dim() == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if other.dim() == 1 else out


@decompose("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    out = fl.matmul(input, weight.t() if weight.dim() == 2 else weight)
    return out if bias is None else out + bias


def _scaled(product: Any, self: Any, beta: Any, alpha: Any) -> Any:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


TABLE["addmm"] = lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.mm(a, b), self, beta, alpha)
TABLE["addmv"] = lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.mv(a, b), self, beta, alpha)
TABLE["baddbmm"] = lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.bmm(a, b), self, beta, alpha)
TABLE["addbmm"] = lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.sum(fl.bmm(a, b), 0), self, beta, alpha)


@decompose("_cdist")
def _cdist(x1: Any, x2: Any, p: float, through_matmul: bool) -> Any:
    if not through_matmul:
        return fl.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, dim=-1)
    dtype = x1.dtype
    x1, x2 = (t if t.dtype is fl.float64 else t.to(fl.float32) for t in (x1, x2))
    squares = fl.sum(x1 * x1, -1, keepdim=True) + fl.sum(x2 * x2, -1).unsqueeze(-2)
    return fl.sqrt((squares - 2 * fl.matmul(x1, x2.transpose(-1, -2))).clamp(min=0)).to(dtype)


def _fourier(self: Any, dims: Sequence[int], forward: bool) -> Any:
    """Discrete Fourier transform as a product with the matrix of roots of unity."""
    for d in dims:
        n = self.shape[d]
        k = _positions(n, self.device)
        turns = fl.remainder(k.unsqueeze(1) * k, n).to(fl.float64) * ((-2 if forward else 2) * math.pi / max(n, 1))
        roots = fl.complex(fl.cos(turns), fl.sin(turns)).to(self.dtype)
        self = fl.matmul(self.movedim(d, -1), roots).movedim(-1, d)
    return self


@decompose("_fft_c2c")
def _fft_c2c(self: Any, dim: Sequence[int], scale: float, forward: bool) -> Any:
    return _fourier(self, dim, forward) * scale


@decompose("_fft_r2c")
def _fft_r2c(self: Any, dim: Sequence[int], scale: float, forward: bool, onesided: bool) -> Any:
    wide = fl.complex128 if self.dtype is fl.float64 else fl.complex64
    full = _fourier(self.to(wide), dim, forward) * scale
    return full.narrow(dim[-1], 0, self.shape[dim[-1]] // 2 + 1) if onesided else full


@decompose("_fft_c2r")
def _fft_c2r(self: Any, dim: Sequence[int], scale: float, forward: bool, last_size: int) -> Any:
    last = dim[-1]
    half = self.narrow(last, 0, last_size // 2 + 1)
    rest = last_size - half.shape[last]
    # The missing half of the spectrum is the conjugate of the other, backwards.
    mirror = fl.flip(half.narrow(last, 1, rest), [last]).conj_physical() if rest else half.narrow(last, 0, 0)
    others = _fourier(fl.cat([half, mirror], last), [last], forward) if len(dim) == 1 else None
    if others is None:
        spread = _fourier(half, dim[:-1], forward)
        flipped = _fourier(half.conj_physical(), dim[:-1], not forward).conj_physical()
        mirror = fl.flip(flipped.narrow(last, 1, rest), [last]).conj_physical() if rest else spread.narrow(last, 0, 0)
        others = _fourier(fl.cat([spread, mirror], last), [last], forward)
    return fl.real(others).clone() * scale


@decompose("linalg_cross")
def linalg_cross(self: Any, other: Any, *, dim: int = -1) -> Any:
    self, other = fl.broadcast_tensors(self, other)
    a, b = self.unbind(dim), other.unbind(dim)
    return fl.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], dim)


@decompose("native_dropout")
def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    if train is False:
        return input.clone(), fl.ones_like(input, dtype=fl.bool)
    keep = fl.rand(input.shape, device=input.device) >= p
    return fl.where(keep, input / (1 - p) if p < 1 else fl.zeros_like(input), fl.zeros_like(input)), keep


def _running_extreme(self: Any, dim: int, largest: bool) -> Any:
    """Running extreme and its last place: the extreme of each prefix, taken over a lower triangle."""
    if self.dim() == 0:
        return self.clone(), fl.zeros((), dtype=fl.int64, device=self.device)
    n = self.shape[dim]
    moved = self.movedim(dim, -1)
    prefix = _positions(n, self.device)
    allowed = prefix.unsqueeze(0) <= prefix.unsqueeze(1)
    rows = moved.unsqueeze(-2).expand([*moved.shape[:-1], n, n])
    extreme = fl.where(allowed, rows, moved.unsqueeze(-1) if n else rows)
    best = fl.amax(extreme, -1, keepdim=True) if largest else fl.amin(extreme, -1, keepdim=True)
    found = fl.logical_and(fl.logical_or(rows == best, rows != rows), allowed)
    place = fl.amax(fl.where(found, prefix, -1), -1)
    return best.squeeze(-1).movedim(-1, dim), place.movedim(-1, dim)


TABLE["cummax"] = lambda self, dim: _running_extreme(self, dim, True)
TABLE["cummin"] = lambda self, dim: _running_extreme(self, dim, False)


@decompose("logcumsumexp")
def logcumsumexp(self: Any, dim: int) -> Any:
    if self.dim() == 0:
        return self.clone()
    high = fl.amax(fl.real(self) if self.is_complex() else self, dim, keepdim=True)
    high = fl.where(fl.isinf(high), 0, high)
    return fl.log(fl.cumsum(fl.exp(self - high), dim)) + high


@decompose("kthvalue")
def kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, indices = fl.sort(self, dim=dim)
    if self.dim() == 0:
        return values, indices
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values.clone(), indices.clone()) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def find(name: str) -> Callable[..., Any] | None:
    """The definition of an operator by its full name."""
    from flambeau.ops import (  # noqa: F401 - fill the table
        counting_definitions,
        linalg_definitions,
        network_definitions,
        sampling_definitions,
        sequence_definitions,
    )

    return TABLE.get(name)
