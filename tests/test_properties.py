"""Random programs against NumPy: shapes of 0 to 5 dimensions (sizes 0 and 1 among them), strides of every kind, dtypes
and indices. Each case is made from its own seed, so a failure names the seed that repeats it.

FLAMBEAU_FUZZ_CASES sets how many cases each property runs, FLAMBEAU_FUZZ_SEED where their seeds start.
"""

from __future__ import annotations

import math
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl

CASES = int(os.environ.get("FLAMBEAU_FUZZ_CASES", "120"))
SEED = int(os.environ.get("FLAMBEAU_FUZZ_SEED", "0"))

DTYPES = {
    fl.float32: np.float32,
    fl.float64: np.float64,
    fl.float16: np.float16,
    fl.int64: np.int64,
    fl.int32: np.int32,
    fl.int16: np.int16,
    fl.int8: np.int8,
    fl.uint8: np.uint8,
    fl.bool: np.bool_,
    fl.complex64: np.complex64,
    fl.complex128: np.complex128,
}
REAL = [d for d in DTYPES if not d.is_complex]
NUMBERS = [d for d in REAL if d != fl.bool]
EXACT = [fl.float32, fl.float64, fl.int64, fl.int32]  # sums and products of small integers are exact in these

properties: list[Callable[..., None]] = []


def prop(function: Callable[[Case], None]) -> Callable[[Case], None]:
    properties.append(function)
    return function


class Case:
    """The generator of one case: tensors with their NumPy twins, and the pieces of random calls."""

    def __init__(self, seed: str) -> None:
        self.r = random.Random(seed)

    def shape(self, low: int = 0, high: int = 5, empty: bool = True) -> list[int]:
        sizes = [0, 1, 2, 3, 4, 5] if empty and self.r.random() < 0.25 else [1, 1, 2, 3, 4, 5]
        shape = [self.r.choice(sizes) for _ in range(self.r.randint(low, high))]
        if self.r.random() < 0.08 and shape:  # long enough for the vectorised and the parallel loops
            shape[self.r.randrange(len(shape))] = self.r.choice([17, 64, 67, 130])
        return shape

    def dtype(self, among: Any = None) -> Any:
        return self.r.choice(list(among or DTYPES))

    def values(self, shape: list[int], dtype: Any, low: int = -4, high: int = 4) -> np.ndarray:
        n = math.prod(shape)
        if dtype == fl.bool:
            flat: list[Any] = [self.r.random() < 0.5 for _ in range(n)]
        elif dtype == fl.uint8:
            flat = [self.r.randint(max(0, low), high) for _ in range(n)]
        elif dtype.is_complex:
            flat = [complex(self.r.randint(low, high), self.r.randint(low, high)) for _ in range(n)]
        else:
            flat = [self.r.randint(low, high) for _ in range(n)]
        return np.array(flat, dtype=DTYPES[dtype]).reshape(shape)

    def lay_out(self, a: np.ndarray, dtype: Any, writable: bool = False) -> fl.Tensor:
        """A tensor of the values of `a` with random strides and offset; expanded where `a` allows it."""
        r = self.r
        how = r.choice(["plain", "permuted", "sliced", "offset", "expanded", "channels", "flipped"])
        shape = list(a.shape)
        if not shape or how == "plain":
            return fl.tensor(a.tolist(), dtype=dtype).reshape(shape)
        if how == "permuted":
            order = list(range(a.ndim))
            r.shuffle(order)
            base = fl.tensor(np.ascontiguousarray(a.transpose(order)).tolist(), dtype=dtype)
            return base.reshape([shape[i] for i in order]).permute([order.index(i) for i in range(a.ndim)])
        if how == "channels" and a.ndim in (4, 5):
            plain = fl.tensor(a.tolist(), dtype=dtype).reshape(shape)
            return plain.contiguous(memory_format=fl.channels_last if a.ndim == 4 else fl.channels_last_3d)
        if how == "expanded" and not writable:
            at = r.randrange(a.ndim)
            if shape[at] > 0 and (a == np.take(a, [0], axis=at)).all():
                one = [1 if i == at else n for i, n in enumerate(shape)]
                return fl.tensor(np.take(a, [0], axis=at).tolist(), dtype=dtype).reshape(one).expand(shape)
        # A window with steps into something larger.
        steps = [r.choice([1, 1, 2, 3]) if how == "sliced" else 1 for _ in shape]
        starts = [r.randint(0, 2) for _ in shape]
        whole = fl.zeros([s + n * k + 1 for s, n, k in zip(starts, shape, steps)], dtype=dtype)
        view = whole[tuple(slice(s, s + n * k, k) for s, n, k in zip(starts, shape, steps))]
        view.copy_(fl.tensor(a.tolist(), dtype=dtype).reshape(shape))
        return view

    def tensor(self, shape: Any = None, dtype: Any = None, **kw: Any) -> tuple[fl.Tensor, np.ndarray]:
        shape = self.shape() if shape is None else shape
        dtype = self.dtype() if dtype is None else dtype
        writable = kw.pop("writable", False)
        a = self.values(shape, dtype, **kw)
        if self.r.random() < 0.15 and shape and not writable:
            at = self.r.randrange(len(shape))
            if shape[at]:
                a = np.ascontiguousarray(np.broadcast_to(np.take(a, [0], axis=at), shape))
        return self.lay_out(a, dtype, writable), a

    def broadcastable(self, shape: list[int]) -> list[int]:
        """A shape that broadcasts with `shape`."""
        other = [1 if self.r.random() < 0.3 else n for n in shape]
        if self.r.random() < 0.3:
            other = other[self.r.randint(0, len(other)) :]
        return other

    def dim(self, ndim: int) -> int:
        return self.r.randrange(-ndim, ndim)

    def dims(self, ndim: int) -> tuple[int, ...]:
        chosen = self.r.sample(range(ndim), self.r.randint(1, ndim))
        return tuple(d - ndim if self.r.random() < 0.3 else d for d in chosen)


def check(got: fl.Tensor, want: Any, dtype: Any = None, rtol: float = 0.0) -> None:
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape, f"shape {tuple(got.shape)}, expected {want.shape}"
    if dtype is not None:
        assert got.dtype == dtype, f"dtype {got.dtype}, expected {dtype}"
    have = np.array(got.tolist(), dtype=want.dtype).reshape(want.shape)
    if rtol:
        np.testing.assert_allclose(have, want, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(have, want)


# ---------------------------------------------------------------- pointwise


def promoted(x: fl.Tensor, y: fl.Tensor) -> Any:
    return fl.result_type(x, y)


@prop
def binary(case: Case) -> None:
    shape = case.shape()
    x, a = case.tensor(shape)
    y, b = case.tensor(case.broadcastable(shape))
    common = promoted(x, y)
    if common == fl.complex32:
        return  # half and a complex number without dimensions; NumPy has no such dtype
    a, b = a.astype(DTYPES[common]), b.astype(DTYPES[common])
    names = ["add", "mul", "eq", "ne"]
    if fl.bool not in (x.dtype, y.dtype):
        names.append("sub")
    if not common.is_complex:
        names += ["maximum", "minimum", "lt", "le", "gt", "ge"]
    if not common.is_complex and not common.is_floating_point:
        names += ["bitwise_and", "bitwise_or", "bitwise_xor"]
    name = case.r.choice(names)
    theirs = {
        "add": np.add, "mul": np.multiply, "sub": np.subtract, "maximum": np.maximum, "minimum": np.minimum,
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
        "ge": np.greater_equal, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
    }[name]  # fmt: skip
    want = theirs(a, b)
    dtype = fl.bool if name in ("eq", "ne", "lt", "le", "gt", "ge") else common
    check(getattr(fl, name)(x, y), want, dtype)


@prop
def divisions(case: Case) -> None:
    dtype = case.dtype([d for d in NUMBERS if d != fl.float16])
    shape = case.shape()
    x, a = case.tensor(shape, dtype, low=-20, high=20)
    y, b = case.tensor(case.broadcastable(shape), dtype, low=1, high=5)
    check(fl.floor_divide(x, y), np.floor_divide(a, b), dtype)
    check(fl.remainder(x, y), np.remainder(a, b), dtype)
    check(fl.fmod(x, y), np.fmod(a, b), dtype)
    check(fl.div(x, y, rounding_mode="trunc"), np.trunc(a / b).astype(DTYPES[dtype]), dtype)


@prop
def unary(case: Case) -> None:
    x, a = case.tensor(dtype=case.dtype([fl.float32, fl.float64, fl.int64, fl.int32, fl.int16]))
    check(fl.neg(x), -a, x.dtype)
    check(fl.abs(x), np.abs(a), x.dtype)
    check(fl.square(x), a * a, x.dtype)
    check(fl.sign(x), np.sign(a), x.dtype)
    check(x.clamp(-2, 3), np.clip(a, -2, 3), x.dtype)
    floating = fl.float64 if x.dtype == fl.float64 else fl.float32
    for name in ("exp", "sin", "tanh", "arctan", "cosh"):
        check(getattr(fl, name)(x), getattr(np, name)(a.astype(DTYPES[floating])), floating, rtol=3e-6)


@prop
def where(case: Case) -> None:
    shape = case.shape()
    c, condition = case.tensor(case.broadcastable(shape), fl.bool)
    x, a = case.tensor(shape)
    y, b = case.tensor(case.broadcastable(shape))
    dtype = promoted(x, y)
    check(fl.where(c, x, y), np.where(condition, a, b).astype(DTYPES[dtype]), dtype)


@prop
def python_numbers_promote(case: Case) -> None:
    x, a = case.tensor(dtype=case.dtype(EXACT))
    number = case.r.choice([2, -3, 0.5, True])
    want = fl.float32 if isinstance(number, float) and not x.dtype.is_floating_point else x.dtype
    check(x * number, (a.astype(DTYPES[want]) * number).astype(DTYPES[want]), want)
    check(number - x if number is not True else number + x,
          (number - a.astype(DTYPES[want]) if number is not True else 1 + a).astype(DTYPES[want]), want)  # fmt: skip


# ---------------------------------------------------------------- reductions and scans


@prop
def reductions(case: Case) -> None:
    x, a = case.tensor(dtype=case.dtype(EXACT))
    keep = case.r.random() < 0.5
    dims = case.dims(a.ndim) if a.ndim and case.r.random() < 0.8 else None
    if dims is None:
        check(x.sum(), a.sum())
        check(x.ne(0).any(), (a != 0).any(), fl.bool)
        check(x.ne(0).all(), (a != 0).all(), fl.bool)
        if a.size:
            check(x.max(), a.max(), x.dtype)
            check(x.argmin(), a.argmin(), fl.int64)
        return
    want = x.dtype if x.dtype.is_floating_point else fl.int64
    check(x.sum(dims, keepdim=keep), a.sum(axis=dims, keepdims=keep, dtype=DTYPES[want]), want)
    check(fl.count_nonzero(x, dims), np.count_nonzero(a, axis=dims), fl.int64)
    check(fl.any(x, dims, keep), a.any(axis=dims, keepdims=keep), fl.bool)
    check(fl.all(x, dims, keep), a.all(axis=dims, keepdims=keep), fl.bool)
    count = math.prod(a.shape[d] for d in dims)
    if count:
        check(fl.amax(x, dims, keep), a.max(axis=dims, keepdims=keep), x.dtype)
        check(fl.amin(x, dims, keep), a.min(axis=dims, keepdims=keep), x.dtype)
        floating = x.to(fl.float64)
        check(floating.mean(dims, keepdim=keep), a.astype(np.float64).mean(axis=dims, keepdims=keep), rtol=1e-12)
        if count > 1:
            want_var = a.astype(np.float64).var(axis=dims, ddof=1, keepdims=keep)
            check(floating.var(dims, keepdim=keep), want_var, rtol=1e-12)
    d = dims[0]
    check(x.prod(d, keepdim=keep), a.astype(DTYPES[want]).prod(axis=d, keepdims=keep), want, rtol=1e-5)
    if a.shape[d]:
        check(x.argmax(d, keepdim=keep), a.argmax(axis=d, keepdims=keep), fl.int64)
        values, at = x.min(d, keepdim=True)
        check(values, a.min(axis=d, keepdims=True), x.dtype)
        check(fl.gather(x, d, at), a.min(axis=d, keepdims=True))


@prop
def scans(case: Case) -> None:
    x, a = case.tensor(case.shape(1), case.dtype(EXACT), low=-2, high=2)
    d = case.dim(a.ndim)
    want = x.dtype if x.dtype.is_floating_point else fl.int64
    check(x.cumsum(d), a.cumsum(axis=d, dtype=DTYPES[want]), want)
    check(x.double().cumprod(d), a.astype(np.float64).cumprod(axis=d))
    if a.size:
        check(x.cummax(d).values, np.maximum.accumulate(a, axis=d), x.dtype)
        check(x.diff(dim=d), np.diff(a, axis=d), x.dtype)


@prop
def sorting(case: Case) -> None:
    x, a = case.tensor(case.shape(1), case.dtype(NUMBERS))
    d = case.dim(a.ndim)
    values, at = fl.sort(x, dim=d, stable=True)
    check(values, np.sort(a, axis=d, kind="stable"), x.dtype)
    check(at, np.argsort(a, axis=d, kind="stable"), fl.int64)
    check(fl.argsort(x, dim=d, stable=True), np.argsort(a, axis=d, kind="stable"), fl.int64)
    down, at = fl.sort(x, dim=d, stable=True, descending=True)
    check(down, np.flip(np.sort(a, axis=d), axis=d), x.dtype)
    check(at, np.argsort(-a.astype(np.int64), axis=d, kind="stable"), fl.int64)
    k = case.r.randint(0, a.shape[d])
    top, where_top = fl.topk(x, k, dim=d)
    check(top, np.flip(np.sort(a, axis=d), axis=d).take(range(k), axis=d), x.dtype)
    check(fl.gather(x, d, where_top), np.array(top.tolist()).reshape(top.shape))
    if a.ndim == 1:
        check(fl.unique(x), np.unique(a), x.dtype)


# ---------------------------------------------------------------- joining and rearranging


@prop
def joining(case: Case) -> None:
    shape = case.shape(1)
    d = case.dim(len(shape))
    pairs = []
    for _ in range(case.r.randint(1, 4)):
        other = list(shape)
        other[d] = case.r.randint(0, 4)
        pairs.append(case.tensor(other, case.dtype([fl.float32, fl.float64, fl.int64, fl.int32, fl.bool, fl.int8])))
    dtype = pairs[0][0].dtype
    for t, _ in pairs:
        dtype = fl.promote_types(dtype, t.dtype)
    whole = np.concatenate([a for _, a in pairs], axis=d).astype(DTYPES[dtype])
    joined = fl.cat([t for t, _ in pairs], d)
    check(joined, whole, dtype)
    for part, (_, a) in zip(joined.split([a.shape[d] for _, a in pairs], d), pairs):
        check(part, a.astype(DTYPES[dtype]))
    same = [case.tensor(shape, fl.int32) for _ in range(case.r.randint(1, 3))]
    at = case.r.randrange(-len(shape) - 1, len(shape) + 1)
    stacked = fl.stack([t for t, _ in same], at)
    check(stacked, np.stack([a for _, a in same], axis=at), fl.int32)
    for part, (_, a) in zip(stacked.unbind(at), same):
        check(part, a)


@prop
def rearranging(case: Case) -> None:
    x, a = case.tensor(case.shape(1))
    dims = case.dims(a.ndim)
    shifts = tuple(case.r.randint(-7, 7) for _ in dims)
    check(fl.roll(x, shifts, dims), np.roll(a, shifts, axis=dims), x.dtype)
    check(fl.flip(x, dims), np.flip(a, axis=dims), x.dtype)
    counts = [case.r.randint(0, 3) for _ in range(a.ndim + case.r.randint(0, 1))]
    if a.size * math.prod(counts) < 20000:
        check(x.repeat(counts), np.tile(a, counts), x.dtype)
    check(x.repeat_interleave(2, dim=dims[0]), np.repeat(a, 2, axis=dims[0]), x.dtype)
    if a.ndim >= 2:
        k = case.r.randint(-3, 3)
        check(fl.tril(x, k), np.tril(a, k), x.dtype)
        check(fl.triu(x, k), np.triu(a, k), x.dtype)
        check(fl.diagonal(x, k, 0, 1), np.diagonal(a, k, 0, 1) if -a.shape[0] < k < a.shape[1] else
              np.zeros((*a.shape[2:], 0)))  # fmt: skip
        check(fl.rot90(x, k), np.rot90(a, k), x.dtype)


@prop
def view_chains(case: Case) -> None:
    x, a = case.tensor()
    for _ in range(case.r.randint(1, 6)):
        what = case.r.randrange(8)
        if what == 0:
            order = list(range(a.ndim))
            case.r.shuffle(order)
            x, a = x.permute(order), a.transpose(order)
        elif what == 1 and a.ndim:
            d = case.dim(a.ndim)
            start, stop = sorted((case.r.randint(0, a.shape[d]), case.r.randint(0, a.shape[d])))
            x, a = x.narrow(d, start, stop - start), np.take(a, range(start, stop), axis=d)
        elif what == 2 and a.ndim < 6:
            d = case.r.randint(0, a.ndim)
            x, a = x.unsqueeze(d), np.expand_dims(a, d)
        elif what == 3:
            x, a = x.squeeze(), np.squeeze(a)
        elif what == 4 and a.size:
            n = a.size
            factors = [k for k in range(1, n + 1) if n % k == 0]
            k = case.r.choice(factors)
            x, a = x.reshape(k, -1), a.reshape(k, -1)
        elif what == 5 and a.ndim >= 2:
            d = case.r.randrange(a.ndim - 1)
            x = x.flatten(d, d + 1)
            a = a.reshape(*a.shape[:d], a.shape[d] * a.shape[d + 1], *a.shape[d + 2 :])
        elif what == 6 and a.ndim:
            d = case.dim(a.ndim)
            k = case.r.randint(1, 3)
            at = (slice(None),) * (d % a.ndim) + (slice(case.r.randint(0, 2), None, k),)
            x, a = x[at], a[at]
        elif what == 7 and a.ndim < 5:
            x, a = x.expand(2, *a.shape), np.broadcast_to(a, (2, *a.shape))
        if a.size > 20000:
            break
    check(x, a)
    check(x.contiguous(), a)
    check(x.clone(), a)
    assert x.contiguous().is_contiguous()
    if x.is_contiguous():
        check(x.view(-1), a.reshape(-1))


@prop
def copies_between_dtypes(case: Case) -> None:
    shape = case.shape()
    target, source = case.dtype(), case.dtype()
    x, a = case.tensor(shape, target, writable=True)
    y, b = case.tensor(case.broadcastable(shape), source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if target.is_complex or target == fl.bool or not source.is_complex:
            want = np.broadcast_to(b, a.shape)
            x.copy_(y)
        else:
            want = np.broadcast_to(b.real, a.shape)
            x.copy_(y)
        if target == fl.uint8:
            want = want.astype(np.int64)
        check(x, want.astype(DTYPES[target]), target)
        check(y.to(target), (b if target.is_complex or target == fl.bool else b.real if source.is_complex else b)
              .astype(np.int64 if target == fl.uint8 else DTYPES[target]).astype(DTYPES[target]), target)  # fmt: skip


# ---------------------------------------------------------------- indexing


def index_expression(case: Case, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The same random index for tensors and arrays: integers, slices, None, ..., masks and broadcast index tensors."""
    mine: list[Any] = []
    theirs: list[Any] = []
    d = 0
    broadcast = case.shape(0, 2, empty=False)
    ellipsis = False
    while d < len(shape) and case.r.random() < 0.85:
        what = case.r.randrange(7)
        n = shape[d]
        if what == 0 and n:
            i = case.r.randrange(-n, n)
            mine.append(i)
            theirs.append(i)
            d += 1
        elif what in (1, 2):
            limits = [case.r.choice([None, case.r.randint(-n - 2, n + 2)]) for _ in range(2)]
            s = slice(limits[0], limits[1], case.r.choice([None, 1, 2, 3]))
            mine.append(s)
            theirs.append(s)
            d += 1
        elif what == 3:
            mine.append(None)
            theirs.append(None)
        elif what == 4 and not ellipsis:
            mine.append(Ellipsis)
            theirs.append(Ellipsis)
            ellipsis = True
            d += case.r.randint(0, len(shape) - d)
            break
        elif what == 5 and n:
            sub = case.broadcastable(broadcast)
            at = np.array([case.r.randrange(-n, n) for _ in range(math.prod(sub))], dtype=np.int64).reshape(sub)
            mine.append(case.lay_out(at, fl.int64))
            theirs.append(at)
            d += 1
        elif what == 6 and not any(isinstance(t, np.ndarray) for t in theirs):
            width = case.r.randint(1, min(2, len(shape) - d))
            mask = case.values(list(shape[d : d + width]), fl.bool)
            mine.append(case.lay_out(mask, fl.bool))
            theirs.append(mask)
            d += width
            broadcast = [int(mask.sum())]
            if not broadcast[0]:
                break
    return tuple(mine), tuple(theirs)


def mixes_integers_and_arrays(index: tuple[Any, ...]) -> bool:
    """NumPy counts integers among the advanced indices when it places the result's dimensions; PyTorch does not."""
    integers = [
        i for i in index if type(i) is int or (isinstance(i, np.ndarray) and i.dtype != np.bool_ and i.ndim == 0)
    ]
    return any(isinstance(i, np.ndarray) for i in index) and bool(integers)


@prop
def index_get(case: Case) -> None:
    x, a = case.tensor(case.shape(1))
    mine, theirs = index_expression(case, a.shape)
    if mixes_integers_and_arrays(theirs):
        return
    check(x[mine], a[theirs], x.dtype)


@prop
def index_set(case: Case) -> None:
    x, a = case.tensor(case.shape(1), writable=True)
    a = a.copy()
    mine, theirs = index_expression(case, a.shape)
    if mixes_integers_and_arrays(theirs):
        return
    target = a[theirs]
    if case.r.random() < 0.4:
        x[mine] = 3
        a[theirs] = 3
    else:
        # One value for all, so that the order of writes to one place does not matter.
        y, b = case.tensor(case.broadcastable(list(target.shape)), x.dtype)
        if any(isinstance(i, np.ndarray) and i.dtype == np.int64 for i in theirs):
            y, b = y[(0,) * b.ndim] if b.size else y, b[(0,) * b.ndim] if b.size else b
        x[mine] = y
        a[theirs] = b
    check(x, a, x.dtype)


@prop
def gathering(case: Case) -> None:
    x, a = case.tensor(case.shape(1, empty=False), case.dtype(EXACT))
    d = case.dim(a.ndim)
    axis = d % a.ndim
    n = a.shape[d]
    shape = [case.r.randint(0, 6) if i == axis else case.r.randint(0, s) for i, s in enumerate(a.shape)]
    at = np.array([case.r.randrange(n) for _ in range(math.prod(shape))], dtype=np.int64).reshape(shape)
    index = case.lay_out(at, fl.int64)
    part = a[tuple(slice(None) if i == axis else slice(0, s) for i, s in enumerate(shape))]
    check(fl.gather(x, d, index), np.take_along_axis(part, at, axis=axis), x.dtype)
    source, b = case.tensor(shape, x.dtype)
    want = a.copy()
    grid = list(np.indices(shape))
    grid[axis] = at
    np.add.at(want, tuple(grid), b)
    check(fl.scatter_add(x, d, index, source), want, x.dtype)
    one = np.array([case.r.randrange(n) for _ in range(case.r.randint(0, 6))], dtype=np.int64)
    check(fl.index_select(x, d, case.lay_out(one, fl.int64)), np.take(a, one, axis=axis), x.dtype)
    many, b = case.tensor([len(one) if i == axis else s for i, s in enumerate(a.shape)], x.dtype)
    want = a.copy()
    np.add.at(want, (slice(None),) * axis + (one,), b)
    check(fl.index_add(x, d, case.lay_out(one, fl.int64), many), want, x.dtype)
    full = [case.r.randint(0, 6) if i == axis else case.r.choice([s, 1]) for i, s in enumerate(a.shape)]
    at = np.array([case.r.randrange(n) for _ in range(math.prod(full))], dtype=np.int64).reshape(full)
    check(fl.take_along_dim(x, case.lay_out(at, fl.int64), d), np.take_along_axis(a, at, axis=axis), x.dtype)
    flat = np.array([case.r.randrange(-a.size, a.size) for _ in range(5)], dtype=np.int64)
    check(fl.take(x, fl.tensor(flat.tolist())), np.take(a, flat), x.dtype)
    mask, m = case.tensor(case.broadcastable(list(a.shape)), fl.bool)
    check(fl.masked_select(x, mask), a[np.broadcast_to(m, a.shape)], x.dtype)
    check(x.masked_fill(mask, 2), np.where(m, 2, a), x.dtype)
    check(fl.nonzero(x), np.argwhere(a), fl.int64)


# ---------------------------------------------------------------- products


@prop
def products(case: Case) -> None:
    dtype = case.dtype([*EXACT, fl.complex64, fl.complex128, fl.int8])
    n, k, m = (case.r.choice([0, 1, 2, 3, 5, 8, 33]) for _ in range(3))
    lead = case.shape(0, 2)
    left = [*case.broadcastable(lead), n, k] if case.r.random() < 0.8 else [k]
    right = [*lead, k, m] if case.r.random() < 0.8 else [k]
    x, a = case.tensor(left, dtype, low=-2, high=2)
    y, b = case.tensor(right, dtype, low=-2, high=2)
    check(fl.matmul(x, y), np.matmul(a, b), dtype)
    if len(left) == 2 and len(right) == 2:
        z, c = case.tensor(case.broadcastable([n, m]), dtype)
        check(fl.addmm(z, x, y), c + a @ b, dtype)


@prop
def einsums(case: Case) -> None:
    dtype = case.dtype([fl.float64, fl.int64, fl.complex128])
    sizes = {c: case.r.choice([0, 1, 2, 3, 4]) if case.r.random() < 0.2 else case.r.randint(1, 4) for c in "abcdef"}
    terms = ["".join(case.r.choices("abcdef", k=case.r.randint(0, 3))) for _ in range(case.r.randint(1, 3))]
    used = sorted(set("".join(terms)))
    out = "".join(case.r.sample(used, case.r.randint(0, len(used))))
    equation = ",".join(terms) + "->" + out
    pairs = [case.tensor([sizes[c] for c in term], dtype, low=-2, high=2) for term in terms]
    check(fl.einsum(equation, *[t for t, _ in pairs]), np.einsum(equation, *[a for _, a in pairs]), dtype, rtol=1e-9)


# ---------------------------------------------------------------- writes


@prop
def writes_through_views(case: Case) -> None:
    """An in-place write to a view changes that part of its base and nothing else."""
    base, a = case.tensor(case.shape(1), case.dtype(EXACT), writable=True)
    a = a.copy()
    view, part = base, a
    for _ in range(case.r.randint(1, 4)):
        what = case.r.randrange(5)
        if what == 0:
            order = list(range(part.ndim))
            case.r.shuffle(order)
            view, part = view.permute(order), part.transpose(order)
        elif what == 1 and part.ndim:
            d = case.dim(part.ndim)
            at = (slice(None),) * (d % part.ndim) + (slice(case.r.randint(0, 2), None, case.r.randint(1, 3)),)
            view, part = view[at], part[at]
        elif what == 2 and part.ndim and part.shape[0]:
            i = case.r.randrange(part.shape[0])
            view, part = view.select(0, i), part[i, ...]
        elif what == 3:
            view, part = view.unsqueeze(-1), part[..., None]
        elif what == 4 and part.ndim >= 2 and 0 not in part.shape:
            view, part = (
                view.diagonal(0, 0, 1),
                np.einsum("ii...->...i", part[: min(part.shape[:2]), : min(part.shape[:2])]),
            )
    y, b = case.tensor(case.broadcastable(list(part.shape)), view.dtype)
    what = case.r.randrange(7)
    if what == 0:
        view.add_(y)
        part += b
    elif what == 1:
        view.mul_(y)
        part *= b
    elif what == 2:
        view.copy_(y)
        part[...] = b
    elif what == 3:
        view.fill_(7)
        part[...] = 7
    elif what == 4:
        view.neg_()
        part *= -1
    elif what == 5:
        mask, m = case.tensor(case.broadcastable(list(part.shape)), fl.bool)
        view.masked_fill_(mask, 5)
        part[np.broadcast_to(m, part.shape)] = 5
    else:
        view.clamp_(-1, 2)
        np.clip(part, -1, 2, out=part)
    check(view, part)
    check(base, a)


@prop
def out_forms(case: Case) -> None:
    dtype = case.dtype(EXACT)
    shape = case.shape(1)
    x, a = case.tensor(shape, dtype)
    y, b = case.tensor(case.broadcastable(shape), dtype)
    out, _ = case.tensor(shape, dtype, writable=True)
    strides = out.stride()
    name, want = case.r.choice([("add", np.add), ("mul", np.multiply), ("maximum", np.maximum), ("sub", np.subtract)])
    assert getattr(fl, name)(x, y, out=out) is out
    check(out, want(a, b), dtype)
    assert out.stride() == strides
    d = case.dim(len(shape))
    if dtype != fl.int32:
        total, _ = case.tensor([n for i, n in enumerate(shape) if i != d % len(shape)], dtype, writable=True)
        fl.sum(x, d, out=total)
        check(total, a.sum(axis=d), dtype)
        fl.cumsum(x, d, out=out)
        check(out, a.cumsum(axis=d), dtype)
        fl.cat([x, x], d, out=(joined := fl.empty(0, dtype=dtype)))
        check(joined, np.concatenate([a, a], axis=d), dtype)
    # The output may be one of the operands.
    z, c = case.tensor(shape, dtype, writable=True)
    fl.add(z, y, out=z)
    check(z, c + b, dtype)


@prop
def interchange_with_numpy(case: Case) -> None:
    x, a = case.tensor()
    check(fl.from_numpy(a.copy()), a, x.dtype)
    np.testing.assert_array_equal(x.numpy(), a)
    assert x.tolist() == a.tolist()


# ---------------------------------------------------------------- the runs


@pytest.mark.parametrize("function", properties, ids=lambda f: f.__name__)
def test_matches_numpy(function: Callable[[Case], None]) -> None:
    with np.errstate(all="ignore"):
        for seed in range(SEED, SEED + CASES):
            try:
                function(Case(f"{function.__name__}/{seed}"))
            except Exception as error:
                error.add_note(f"case {function.__name__}/{seed}")
                raise


def test_inverse_error_function_of_single_precision_is_that_of_double():
    x = fl.cat([fl.linspace(-0.99999, 0.99999, 4001), fl.tensor([1e-30, -1e-7, 0.99999994, -0.0])])
    want = fl.erfinv(x.double())
    fl.testing.assert_close(fl.erfinv(x).double(), want, rtol=1.3e-7, atol=0)
    ends = fl.erfinv(fl.tensor([1.0, -1.0, 1.5, -2.0, float("nan")])).tolist()
    assert ends[:2] == [float("inf"), float("-inf")] and all(v != v for v in ends[2:])
