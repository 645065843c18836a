"""Functions and methods of NumPy other than functions of elements, by operators on tensors.

Each takes `fn` (the operators, see `numpy_table.Calls`) and NumPy's own arguments. Importing this file fills the tables.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import flambeau as fl
from flambeau._dynamo.arrays import TracedArray, cast, numpy, refuse, tensor_dtype
from flambeau._dynamo.numpy_table import FUNCTIONS, Calls, Rule, entry
from flambeau._dynamo.sizes import SymInt, plain

# ---------------------------------------------------------------------------------------------- making arrays


def _shape(shape: Any) -> tuple[Any, ...]:
    if isinstance(shape, (tuple, list)):
        return tuple(shape)
    return (shape,)


def _order(order: Any) -> None:
    if order not in (None, "C", "K", "A"):
        refuse("an order of elements that is not C's")


def _maker(name: str) -> Rule:
    def run(fn: Calls, shape: Any, dtype: Any = float, order: Any = "C") -> Any:
        _order(order)
        return fn.new(getattr(fn, name)(_shape(shape), dtype=tensor_dtype(float if dtype is None else dtype)))

    return run


def _maker_like(name: str) -> Rule:
    def run(fn: Calls, a: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None) -> Any:
        _order(order)
        like = fn.array(a)
        sizes = like.shape if shape is None else _shape(shape)
        return fn.new(getattr(fn, name)(sizes, dtype=tensor_dtype(dtype if dtype is not None else like.dtype)))

    return run


for _name in ("zeros", "ones", "empty"):
    FUNCTIONS[_name] = _maker(_name)
    FUNCTIONS[_name + "_like"] = _maker_like(_name)


@entry("full")
def _full(fn: Calls, shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C") -> Any:
    _order(order)
    value = fn.array(fill_value)
    filled = cast(value.tensor, value.dtype if dtype is None else dtype)
    return fn.new(fn.clone(fn.broadcast_to(filled, _shape(shape)), memory_format=fl.contiguous_format))


@entry("full_like")
def _full_like(fn: Calls, a: Any, fill_value: Any, dtype: Any = None) -> Any:
    like = fn.array(a)
    return _full(fn, like.shape, fill_value, like.dtype if dtype is None else dtype)


@entry("arange")
def _arange(fn: Calls, *args: Any, dtype: Any = None) -> Any:
    if not all(type(a) in (int, SymInt) for a in args):
        refuse("np.arange of these arguments")
    return fn.new(fn.arange(*args, dtype=tensor_dtype(numpy().int64 if dtype is None else dtype)))


@entry("eye", "identity")
def _eye(fn: Calls, N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Any:
    if k:
        refuse("np.eye off the diagonal")
    return fn.new(fn.eye(N, N if M is None else M, dtype=tensor_dtype(float if dtype is None else dtype)))


@entry("asarray", "asanyarray", "ascontiguousarray")
def _asarray(fn: Calls, a: Any, dtype: Any = None, order: Any = None) -> Any:
    _order(order)
    array = fn.array(a)
    if array.scalar:
        array = fn.new(fn.clone(array.tensor))
    return array if dtype is None or array.dtype == numpy().dtype(dtype) else fn.new(cast(array.tensor, dtype))


@entry("array")
def _array(fn: Calls, object: Any, dtype: Any = None, copy: Any = True, order: Any = "K", ndmin: Any = 0) -> Any:
    if ndmin or copy is not True:
        refuse("np.array with these keywords")
    return _copy(fn, _asarray(fn, object, dtype, order))


@entry("copy")
def _copy(fn: Calls, a: Any, order: Any = "K") -> Any:
    _order(order)
    return fn.new(fn.clone(fn.array(a).tensor))


@entry("meshgrid")
def _meshgrid(fn: Calls, *xi: Any, indexing: Any = "xy") -> Any:
    grids = fn.meshgrid(*(fn.reshape(fn.tensor(x), (-1,)) for x in xi), indexing=indexing)
    return tuple(fn.new(fn.clone(m, memory_format=fl.contiguous_format)) for m in grids)


# ---------------------------------------------------------------------------------------------- reductions


def _axes(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    listed = [plain(a) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    axes = [operator.index(a) for a in listed]
    if any(not -ndim <= a < ndim for a in axes) or len({a % ndim for a in axes}) != len(axes):
        refuse("an axis that the array does not have")
    return [a % ndim for a in axes]


def _wide(dtype: Any, asked: Any) -> tuple[Any, Any]:
    """What sums and products are computed in, and what dtype they have: that of integers is a wide one."""
    np = numpy()
    if asked is not None:
        wanted = np.dtype(asked)
    elif dtype.kind in "bi":
        wanted = np.promote_types(dtype, np.int64)
    else:
        wanted = np.dtype(np.uint64) if dtype.kind == "u" else dtype
    return np.dtype(np.int64) if wanted.kind in "iu" else wanted, wanted


def _give(fn: Calls, tensor: Any, out: Any) -> Any:
    """The result of a function that may be told where to put it."""
    if out is None:
        return fn.result(tensor)
    if type(out) is not TracedArray or tuple(tensor.fake.shape) != out.shape:
        refuse("out= of another shape")
    out.write(cast(tensor, out.dtype))
    return out


def _given(keepdims: Any) -> bool:
    return keepdims is not numpy()._NoValue and bool(keepdims)


def _reduce(fn: Calls, name: str, tensor: Any, axis: Any, keepdims: Any) -> Any:
    """A reduction that tensors have, over any number of axes."""
    axes = _axes(axis, tensor.fake.ndim)
    if not axes:
        return fn.clone(tensor)
    return getattr(fn, name)(tensor, axes, _given(keepdims))


@entry("sum")
def _sum(fn: Calls, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    array = fn.array(a)
    inner, wanted = _wide(array.dtype, dtype)
    return _give(fn, cast(_reduce(fn, "sum", cast(array.tensor, inner), axis, keepdims), wanted), out)


@entry("prod")
def _prod(fn: Calls, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    array = fn.array(a)
    inner, wanted = _wide(array.dtype, dtype)
    tensor = cast(array.tensor, inner)
    for dim in sorted(_axes(axis, array.ndim), reverse=True):
        tensor = fn.prod(tensor, dim, _given(keepdims))
    return _give(fn, cast(tensor, wanted), out)


def _count(tensor: Any, axes: list[int]) -> Any:
    return math.prod(tensor.fake.shape[a] for a in axes)


def _float(fn: Calls, a: Any, dtype: Any = None) -> tuple[Any, Any]:
    """The elements as floats to calculate means with, and the dtype of the mean."""
    array = fn.array(a)
    wanted = numpy().dtype(dtype if dtype is not None else array.dtype if array.dtype.kind in "fc" else float)
    inner = numpy().dtype("float32") if wanted == numpy().float16 else wanted
    return cast(array.tensor, inner), wanted


@entry("mean")
def _mean(fn: Calls, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    tensor, wanted = _float(fn, a, dtype)
    total = _reduce(fn, "sum", tensor, axis, keepdims)
    return _give(fn, cast(fn.div(total, _count(tensor, _axes(axis, tensor.fake.ndim))), wanted), out)


@entry("average")
def _average(fn: Calls, a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return _mean(fn, a, axis, keepdims=keepdims)


def _spread(fn: Calls, a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any) -> tuple[Any, Any]:
    tensor, wanted = _float(fn, a, dtype)
    if tensor.fake.dtype.is_complex:
        refuse("np.var of complex numbers")
    axes = _axes(axis, tensor.fake.ndim)
    count = _count(tensor, axes)
    middle = fn.div(_reduce(fn, "sum", tensor, axis, True), count)
    off = tensor - middle
    total = _reduce(fn, "sum", off * off, axis, keepdims)
    left = count - ddof
    if type(left) is not SymInt and left <= 0:
        refuse("np.var of too few elements")
    return fn.div(total, left), wanted


@entry("var")
def _var(
    fn: Calls, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False
) -> Any:
    tensor, wanted = _spread(fn, a, axis, dtype, ddof, keepdims)
    return _give(fn, cast(tensor, wanted), out)


@entry("std")
def _std(
    fn: Calls, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False
) -> Any:
    tensor, wanted = _spread(fn, a, axis, dtype, ddof, keepdims)
    return _give(fn, cast(fn.sqrt(tensor), wanted), out)


def _filled(tensor: Any, axis: Any) -> Any:
    """The tensor, if there is something to choose from: otherwise NumPy says what it thinks of it."""
    if any(bool(tensor.fake.shape[i] == 0) for i in _axes(axis, tensor.fake.ndim)):
        refuse("an extreme of nothing")
    return tensor


def _extreme(name: str) -> Rule:
    def run(fn: Calls, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        return _give(fn, _reduce(fn, name, _filled(fn.tensor(a), axis), axis, keepdims), out)

    return run


FUNCTIONS.update(max=_extreme("amax"), amax=_extreme("amax"), min=_extreme("amin"), amin=_extreme("amin"))


@entry("ptp")
def _ptp(fn: Calls, a: Any, axis: Any = None) -> Any:
    tensor = fn.tensor(a)
    return fn.result(_reduce(fn, "amax", tensor, axis, False) - _reduce(fn, "amin", tensor, axis, False))


def _truths(name: str) -> Rule:
    def run(fn: Calls, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        tensor = fn.tensor(a, bool)
        for dim in sorted(_axes(axis, tensor.fake.ndim), reverse=True):
            tensor = getattr(fn, name)(tensor, dim, _given(keepdims))
        return _give(fn, tensor, out)

    return run


FUNCTIONS.update(all=_truths("all"), any=_truths("any"))


def _position(name: str) -> Rule:
    def run(fn: Calls, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        tensor = _filled(fn.tensor(a), axis)
        if tensor.fake.dtype == fl.bool:
            tensor = cast(tensor, numpy().uint8)
        if axis is None and _given(keepdims):
            refuse("np.argmax of all with keepdims")
        if axis is None:
            return _give(fn, getattr(fn, name)(fn.reshape(tensor, (-1,)), 0), out)
        return _give(fn, getattr(fn, name)(tensor, *_axes(axis, tensor.fake.ndim), _given(keepdims)), out)

    return run


FUNCTIONS.update(argmax=_position("argmax"), argmin=_position("argmin"))


def _running(name: str) -> Rule:
    def run(fn: Calls, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        array = fn.array(a)
        inner, wanted = _wide(array.dtype, dtype)
        tensor = cast(array.tensor, inner)
        if axis is None:
            tensor, axis = fn.reshape(tensor, (-1,)), 0
        return _give(fn, cast(getattr(fn, name)(tensor, *_axes(axis, tensor.fake.ndim)), wanted), out)

    return run


FUNCTIONS.update(cumsum=_running("cumsum"), cumprod=_running("cumprod"))


def _without_nan(name: str, other: Any) -> Rule:
    def run(fn: Calls, a: Any, axis: Any = None, keepdims: Any = False) -> Any:
        array = fn.array(a)
        if array.dtype.kind == "f":
            array = fn.new(fn.where(fn.isnan(array.tensor), other, array.tensor))
        return FUNCTIONS[name](fn, array, axis, keepdims=keepdims)

    return run


FUNCTIONS.update(nansum=_without_nan("sum", 0.0), nanprod=_without_nan("prod", 1.0))


@entry("nanmean")
def _nanmean(fn: Calls, a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    tensor, wanted = _float(fn, a)
    empty = fn.isnan(tensor)
    total = _reduce(fn, "sum", fn.where(empty, 0.0, tensor), axis, keepdims)
    count = _reduce(fn, "sum", fn.logical_not(empty), axis, keepdims)
    return fn.result(cast(fn.div(total, count), wanted))


@entry("median")
def _median(fn: Calls, a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    tensor, wanted = _float(fn, a)
    if axis is None:
        if keepdims:
            refuse("np.median of all with keepdims")
        tensor, axis = fn.reshape(tensor, (-1,)), 0
    (axis,) = _axes(axis, tensor.fake.ndim)
    count = int(tensor.fake.shape[axis])
    if not count:
        refuse("np.median of nothing")
    ordered = fn.sort(tensor, axis)[0]

    def at(index: int) -> Any:
        return fn.narrow(ordered, axis, index, 1)

    middle = at(count // 2) if count % 2 else (at(count // 2 - 1) + at(count // 2)) / 2
    middle = fn.where(fn.isnan(at(count - 1)), at(count - 1), middle)
    return fn.result(cast(middle if keepdims else fn.squeeze(middle, axis), wanted))
