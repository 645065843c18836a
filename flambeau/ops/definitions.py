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
TABLE["new_full"] = lambda self, size, fill_value, **options: fl.empty(size, **_options(self, options)).fill_(fill_value)
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
        host = fl.empty(self.shape, dtype=self.dtype)
        return self.copy_(fl._C._operator_object(name)(host, *args, **options))

    return make


for _name in (
    "eye eye.m arange arange.start arange.start_step range linspace logspace rand randn randint randint.low randperm "
    "rand_like randn_like randint_like randint_like.low_dtype bernoulli multinomial poisson binomial tril_indices "
    "triu_indices _standard_gamma _sample_dirichlet"
).split():
    TABLE[_name] = on_host(_name)
for _name in "uniform_ normal_ random_ random_.to random_.from exponential_ bernoulli_.float geometric_ cauchy_ log_normal_".split():
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
    rows = moved.reshape(-1, width) if self.numel() else moved.reshape(math.prod(moved.shape[: moved.dim() - len(rest)]), width)
    picked = fl.gather(rows, 0, flat.reshape(-1, 1).expand(flat.numel(), width))
    out = picked.reshape([*shape, *rest])
    return out.permute([*range(len(shape), len(shape) + lead), *range(len(shape)), *range(len(shape) + lead, out.dim())])


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
    return fl.gather(self.reshape(-1), 0, index.reshape(-1)).reshape(index.shape)


@decompose("scatter.value")
def scatter_value(self: Any, dim: int, index: Any, value: Any) -> Any:
    return fl.scatter(self, dim, index, fl.full(index.shape, value, dtype=self.dtype, device=self.device))


@decompose("index_add")
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    view = [1] * self.dim()
    view[dim] = index.numel()
    return fl.scatter_add(self, dim, index.reshape(view).expand(source.shape).to(fl.int64), source * alpha)


@decompose("index_copy")
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    view = [1] * self.dim()
    view[dim] = index.numel()
    return fl.scatter(self, dim, index.reshape(view).expand(source.shape), source)


@decompose("masked_scatter")
def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    mask = mask.expand(self.shape)
    place = fl.cumsum(mask.reshape(-1).to(fl.int64), 0) - 1
    taken = fl.gather(source.reshape(-1), 0, fl.where(place < 0, 0, place))
    return fl.where(mask, taken.reshape(self.shape), self)


@decompose("masked_select")
def masked_select(self: Any, mask: Any) -> Any:
    self, mask = fl.broadcast_tensors(self, mask)
    return self[mask]


@decompose("index_fill")
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    if self.dim() == 0:
        return fl.full_like(self, value.item() if isinstance(value, fl.Tensor) else value)
    shape = [*self.shape]
    shape[dim] = index.numel()
    source = fl.empty(shape, dtype=self.dtype, device=self.device).fill_(value)
    return fl.index_copy(self, dim, index, source)


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
    counts = repeats.tolist()
    found = [i for i, n in enumerate(counts) for _ in range(n)]
    return fl.tensor(found, dtype=fl.int64).to(repeats.device)


@decompose("embedding")
def embedding(weight: Any, indices: Any, *_: Any, **__: Any) -> Any:
    return fl.index_select(weight, 0, indices.reshape(-1)).reshape([*indices.shape, weight.shape[1]])


@decompose("topk")
def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, indices = fl.sort(self, dim=dim, descending=largest)
    return values.narrow(dim, 0, k).clone(), indices.narrow(dim, 0, k).clone()


@decompose("argsort")
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
    for name, root, both in (("var", False, False), ("std", True, False), ("var_mean", False, True), ("std_mean", True, True)):

        def by(self: Any, dim: Any, correction: Any, keepdim: bool, root: bool = root, both: bool = both) -> Any:
            variance, mean = _moments(self, dim, correction, keepdim)
            value = fl.sqrt(variance) if root else variance
            return (value, mean) if both else value

        TABLE[name] = lambda self, unbiased=True, by=by: by(self, None, int(unbiased), False)
        TABLE[f"{name}.dim"] = lambda self, dim=None, unbiased=True, keepdim=False, by=by: by(self, dim, int(unbiased), keepdim)
        TABLE[f"{name}.correction"] = lambda self, dim=None, *, correction=None, keepdim=False, by=by: by(
            self, dim, correction, keepdim
        )


_moment_ops()


@decompose("_logsumexp")
def _logsumexp(self: Any, dim: Sequence[int], keepdim: bool = False) -> Any:
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


@decompose("dot", "vdot")
def dot(self: Any, tensor: Any) -> Any:
    return fl.sum(self * tensor)


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


# ---------------------------------------------------------------- windows: convolution and pooling


def _windows(self: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """View (N, C, *out, *kernel) of a padded (N, C, *space)."""
    out = self
    for d, (k, s, step) in enumerate(zip(kernel, stride, dilation)):
        out = out.unfold(2 + d, step * (k - 1) + 1, s)
        out = fl._ops.slice(out, out.dim() - 1, 0, None, step)
    return out


@decompose("convolution", "_convolution")
def convolution(
    input: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    space = input.dim() - 2
    stride, padding, dilation, output_padding = (
        list(x) * (space if len(x) == 1 else 1) for x in (stride, padding, dilation, output_padding)
    )
    kernel = list(weight.shape[2:])
    if transposed:
        # The input spread out by the stride, convolved with the flipped kernel.
        spread_shape = [*input.shape[:2], *((n - 1) * s + 1 for n, s in zip(input.shape[2:], stride))]
        spread = fl.zeros(spread_shape, dtype=input.dtype, device=input.device)
        window = spread
        for d, s in enumerate(stride):
            window = fl._ops.slice(window, 2 + d, 0, None, s)
        window.copy_(input)
        input = spread
        per_group = weight.shape[0] // groups
        weight = fl.flip(weight, list(range(2, 2 + space)))
        weight = weight.reshape([groups, per_group, *weight.shape[1:]]).transpose(1, 2)
        weight = weight.reshape([-1, per_group, *kernel])
        reach = [step * (k - 1) for step, k in zip(dilation, kernel)]
        sides = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding)]
        stride = [1] * space
    else:
        sides = [(p, p) for p in padding]
    pad = [side for pair in reversed(sides) for side in pair]
    if any(pad):
        input = fl.constant_pad_nd(input, pad, 0)
    windows = _windows(input, kernel, stride, dilation)  # N, C, *out, *kernel
    places = list(windows.shape[2 : 2 + space])
    order = [0, *range(2, 2 + space), 1, *range(2 + space, 2 + 2 * space)]
    rows = windows.permute(order).reshape([-1, groups, windows.shape[1] // groups * math.prod(kernel)])
    filters = weight.reshape([groups, weight.shape[0] // groups, -1])
    out = fl.bmm(rows.transpose(0, 1), filters.transpose(1, 2))  # group, place, filter
    out = out.transpose(0, 1).reshape([input.shape[0], *places, weight.shape[0]])
    out = out.permute([0, space + 1, *range(1, space + 1)])
    return out.clone() if bias is None else out + bias.reshape([-1] + [1] * space)


def _conv(ndim: int, transposed: bool) -> Callable[..., Any]:
    def plain(input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1):  # type: ignore[no-untyped-def]
        return run(input, weight, bias, stride, padding, dilation, False, (0,), groups)

    def spread(input, weight, bias=None, stride=(1,), padding=(0,), output_padding=(0,), groups=1, dilation=(1,)):  # type: ignore[no-untyped-def]
        return run(input, weight, bias, stride, padding, dilation, True, output_padding, groups)

    def run(input: Any, *rest: Any) -> Any:
        if input.dim() == ndim + 1:
            return fl.convolution(input.unsqueeze(0), *rest).squeeze(0)
        return fl.convolution(input, *rest)

    return spread if transposed else plain


for _n in (1, 2, 3):
    TABLE[f"conv{_n}d"], TABLE[f"conv_transpose{_n}d"] = _conv(_n, False), _conv(_n, True)


# ---------------------------------------------------------------- normalisation


@decompose("native_layer_norm")
def native_layer_norm(input: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = fl.mean(input, dims, keepdim=True)
    spread = input - mean
    rstd = fl.rsqrt(fl.mean(spread * spread, dims, keepdim=True) + eps)
    out = spread * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


@decompose("_fused_rms_norm")
def _fused_rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None) -> Any:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    rstd = fl.rsqrt(fl.mean(input * input, dims, keepdim=True) + (fl.finfo(input.dtype).eps if eps is None else eps))
    out = input * rstd
    return out if weight is None else out * weight, rstd


@decompose("native_group_norm")
def native_group_norm(
    input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    rows = input.reshape(N, group, -1)
    mean = fl.mean(rows, [2], keepdim=True)
    spread = rows - mean
    rstd = fl.rsqrt(fl.mean(spread * spread, [2], keepdim=True) + eps)
    out = (spread * rstd).reshape(input.shape)
    view = [C] + [1] * (input.dim() - 2)
    out = out if weight is None else out * weight.reshape(view)
    return out if bias is None else out + bias.reshape(view), mean.reshape(N, group), rstd.reshape(N, group)


@decompose("native_batch_norm")
def native_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    view = [1, input.shape[1]] + [1] * (input.dim() - 2)
    if training:
        dims = [0, *range(2, input.dim())]
        count = input.numel() // input.shape[1]
        mean = fl.mean(input, dims)
        spread = input - mean.reshape(view)
        variance = fl.mean(spread * spread, dims)
        if running_mean is not None:
            running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
        if running_var is not None:
            running_var.copy_(running_var * (1 - momentum) + variance * (momentum * count / max(count - 1, 1)))
        rstd = fl.rsqrt(variance + eps)
        saved = mean, rstd
    else:
        spread = input - running_mean.reshape(view)
        rstd = fl.rsqrt(running_var + eps)
        saved = input.new_empty(0), input.new_empty(0)
    out = spread * rstd.reshape(view)
    out = out if weight is None else out * weight.reshape(view)
    return (out if bias is None else out + bias.reshape(view), *saved)


def _softmax_in(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, dim, dtype=None: function(self if dtype is None else self.to(dtype), dim)


for _name in ("softmax.int", "special_softmax"):
    TABLE[_name] = _softmax_in(_softmax)
for _name in ("log_softmax.int", "special_log_softmax"):
    TABLE[_name] = _softmax_in(_log_softmax)


# ---------------------------------------------------------------- pooling


def _pool_windows(
    self: Any, ndim: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, fill: Any
) -> Any:
    """(N, C, *out, cells) of the padded input, the places outside it filled; the geometry."""
    kernel, padding, dilation = (list(x) * (ndim if len(x) == 1 else 1) for x in (kernel, padding, dilation))
    stride = list(stride) * (ndim if len(stride) == 1 else 1) if stride else kernel
    pad: list[int] = []
    for d in range(ndim):
        n = self.shape[2 + d]
        span = n + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1
        outs = -(-span // stride[d]) + 1 if ceil_mode else span // stride[d] + 1
        if ceil_mode and (outs - 1) * stride[d] >= n + padding[d]:
            outs -= 1
        after = (outs - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 - n - padding[d]
        pad = [padding[d], after, *pad]
    padded = fl.constant_pad_nd(self, pad, fill)
    windows = _windows(padded, kernel, stride, dilation)
    return windows.reshape([*windows.shape[: 2 + ndim], -1]), (kernel, stride, padding, dilation)


def _batched(self: Any, ndim: int) -> tuple[Any, bool]:
    return (self.unsqueeze(0), True) if self.dim() == ndim + 1 else (self, False)


def _lowest(dtype: Any) -> Any:
    return -math.inf if dtype.is_floating_point else fl.iinfo(dtype).min


def _max_pool(ndim: int, with_indices: bool) -> Callable[..., Any]:
    def run(self, kernel_size, stride=None, padding=(0,), dilation=(1,), ceil_mode=False, return_indices=False):  # type: ignore[no-untyped-def]
        self, single = _batched(self, ndim)
        windows, geometry = _pool_windows(self, ndim, kernel_size, stride, padding, dilation, ceil_mode, _lowest(self.dtype))
        values, cell = fl.max(windows, -1)
        if not with_indices:
            return values.squeeze(0) if single else values
        # From the cell of a window to the flat position in the input's space.
        flat = fl.zeros_like(cell)
        for d, (k, s, p, step) in enumerate(zip(*geometry)):
            inside = fl.remainder(fl.floor_divide(cell, math.prod(geometry[0][d + 1 :])), k)
            view = [1] * cell.dim()
            view[2 + d] = cell.shape[2 + d]
            place = _positions(cell.shape[2 + d], cell.device).reshape(view) * s - p + inside * step
            flat = flat * self.shape[2 + d] + place
        return (values.squeeze(0), flat.squeeze(0)) if single else (values, flat)

    return run


def _avg_pool(ndim: int) -> Callable[..., Any]:
    def run(self, kernel_size, stride=None, padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None):  # type: ignore[no-untyped-def]
        self, single = _batched(self, ndim)
        windows, (kernel, strides, pads, _) = _pool_windows(self, ndim, kernel_size, stride, padding, (1,), ceil_mode, 0)
        total = fl.sum(windows, [-1])
        if divisor_override is not None:
            total = total / divisor_override
        else:
            for d, (k, s, p) in enumerate(zip(kernel, strides, pads)):
                n = self.shape[2 + d]
                counts = []
                for o in range(total.shape[2 + d]):
                    start, end = o * s - p, min(o * s - p + k, n + p)
                    counts.append(float(end - start if count_include_pad else min(end, n) - max(start, 0)))
                view = [1] * total.dim()
                view[2 + d] = len(counts)
                total = total / fl.tensor(counts, dtype=self.dtype).to(self.device).reshape(view)
        return total.squeeze(0) if single else total

    return run


def _adaptive_cells(n: int, outs: int) -> list[tuple[int, int]]:
    return [(i * n // outs, -(-(i + 1) * n // outs)) for i in range(outs)]


def _adaptive_avg(ndim: int) -> Callable[..., Any]:
    def run(self: Any, output_size: Sequence[int]) -> Any:
        sizes = list(output_size) * (ndim if len(output_size) == 1 else 1)
        first = self.dim() - ndim
        for d, outs in enumerate(sizes):
            cells = _adaptive_cells(self.shape[first + d], outs)
            parts = [fl.mean(self.narrow(first + d, a, b - a), [first + d], keepdim=True) for a, b in cells]
            self = fl.cat(parts, first + d)
        return self

    return run


for _n in (1, 2, 3):
    TABLE[f"max_pool{_n}d"] = _max_pool(_n, False)
    TABLE[f"max_pool{_n}d_with_indices"] = _max_pool(_n, True)
    TABLE[f"avg_pool{_n}d"] = _avg_pool(_n)
    TABLE[f"adaptive_avg_pool{_n}d"] = _adaptive_avg(_n)


# ---------------------------------------------------------------- attention


@decompose("_flash_attention")
def _flash_attention(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None) -> Any:
    scores = fl.matmul(query, key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        allowed = fl.tril(fl.ones(scores.shape[-2:], dtype=fl.bool, device=query.device))
        scores = fl.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        scores = fl.where(attn_mask, scores, -math.inf) if attn_mask.dtype is fl.bool else scores + attn_mask
    total = fl.logsumexp(scores, [-1], keepdim=True)
    return fl.matmul(fl.exp(scores - total), value), total.squeeze(-1)
