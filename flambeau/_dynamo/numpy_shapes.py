"""More of NumPy's functions by operators on tensors: shapes, choosing elements, products; and methods of arrays.

Importing this file fills the tables.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import flambeau as fl
from flambeau._dynamo import arrays
from flambeau._dynamo.arrays import TracedArray, cast, numpy, refuse, tensor_dtype, view
from flambeau._dynamo.numpy_functions import _axes, _float, _give, _order, _shape, _sum
from flambeau._dynamo.numpy_table import FUNCTIONS, METHODS, Calls, Rule, entry
from flambeau._dynamo.sizes import plain
from flambeau.ops.geometry import contiguous_strides

# ---------------------------------------------------------------------------------------------- shapes


@entry("reshape")
def _reshape(fn: Calls, a: Any, shape: Any, order: Any = "C") -> Any:
    _order(order)
    array = fn.array(a)
    if array.lazy is not None:
        refuse("a reversed array in another shape")
    if not array.writable and not _is_contiguous(array.base.fake):
        refuse("an array that cannot be written to in another shape")  # a view cannot, a copy can
    return _loose(view(array, lambda tensor: fn.reshape(tensor, _shape(shape)), "reshape"))


def _loose(array: TracedArray) -> TracedArray:
    """An array: what was a scalar is none any more."""
    array.scalar = False
    return array


def _is_contiguous(fake: Any) -> bool:
    """Whether the elements lie one after the other, which is guarded: it decides between a view and a copy."""
    sizes, strides = fake.geometry.sizes, fake.geometry.strides
    return all(bool(n == 1) or bool(s == c) for n, s, c in zip(sizes, strides, contiguous_strides(sizes)))


@entry("ravel")
def _ravel(fn: Calls, a: Any, order: Any = "C") -> Any:
    _order(order)
    array = fn.array(a)
    if array.lazy is None and not _is_contiguous(array.base.fake):
        return fn.new(fn.clone(fn.reshape(array.base, (-1,)), memory_format=fl.contiguous_format))
    return _reshape(fn, array, -1)


@entry("transpose", "permute_dims")
def _transpose(fn: Calls, a: Any, axes: Any = None) -> Any:
    array = fn.array(a)
    order = list(reversed(range(array.ndim))) if axes is None else [plain(x) for x in axes]
    return view(array, lambda tensor: fn.permute(tensor, order), "transpose", tuple(order)) if array.ndim else array


@entry("swapaxes")
def _swapaxes(fn: Calls, a: Any, axis1: Any, axis2: Any) -> Any:
    return view(fn.array(a), lambda tensor: fn.transpose(tensor, axis1, axis2), "swapaxes", axis1, axis2)


@entry("moveaxis")
def _moveaxis(fn: Calls, a: Any, source: Any, destination: Any) -> Any:
    return view(fn.array(a), lambda tensor: fn.movedim(tensor, source, destination), "moveaxis", source, destination)


@entry("expand_dims")
def _expand_dims(fn: Calls, a: Any, axis: Any) -> Any:
    array = fn.array(a)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = array.ndim + len(axes)
    places = _axes(axes, ndim)
    key = tuple(None if i in places else slice(None) for i in range(ndim))
    return view(array, lambda tensor: tensor[key], "expand_dims", tuple(axes))


@entry("squeeze")
def _squeeze(fn: Calls, a: Any, axis: Any = None) -> Any:
    array = fn.array(a)
    axes = _axes(axis, array.ndim)
    if axis is None:
        axes = [i for i in axes if bool(array.shape[i] == 1)]
    elif not all(bool(array.shape[i] == 1) for i in axes):
        refuse("np.squeeze of an axis that is longer than one")
    return view(array, lambda tensor: fn.squeeze(tensor, tuple(axes)), "squeeze", tuple(axes)) if axes else array


@entry("broadcast_to")
def _broadcast_to(fn: Calls, array: Any, shape: Any) -> Any:
    result = view(fn.array(array), lambda tensor: fn.broadcast_to(tensor, _shape(shape)), "broadcast_to", _shape(shape))
    result.writable = False
    return _loose(result)


def _atleast(count: int) -> Rule:
    def run(fn: Calls, *arys: Any) -> Any:
        name = f"atleast_{count}d"
        results = tuple(_loose(view(fn.array(a), getattr(fn, name), name)) for a in arys)
        return results[0] if len(results) == 1 else results

    return run


for _count_of in (1, 2, 3):
    FUNCTIONS[f"atleast_{_count_of}d"] = _atleast(_count_of)


def _common(fn: Calls, values: Any, dtype: Any = None) -> list[Any]:
    """Arrays as tensors of their common dtype."""
    converted = [fn.array(v) for v in values]
    wanted = numpy().result_type(*(a.dtype for a in converted)) if dtype is None else dtype
    return [cast(a.tensor, wanted) for a in converted]


def _sequence(values: Any) -> Any:
    return list(values) if type(values) is TracedArray else values


@entry("concatenate", "concat")
def _concatenate(fn: Calls, arrays: Any, axis: Any = 0, dtype: Any = None) -> Any:
    tensors = _common(fn, _sequence(arrays), dtype)
    if axis is None:
        return fn.new(fn.cat([fn.reshape(t, (-1,)) for t in tensors], 0))
    if any(not t.fake.ndim for t in tensors) or len({t.fake.ndim for t in tensors}) > 1:
        refuse("np.concatenate of arrays with different numbers of dimensions")
    return fn.new(fn.cat(tensors, *_axes(axis, tensors[0].fake.ndim)))


@entry("append")
def _append(fn: Calls, arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate(fn, [arr, values], axis)


@entry("stack")
def _stack(fn: Calls, arrays: Any, axis: Any = 0, dtype: Any = None) -> Any:
    return fn.new(fn.stack(_common(fn, _sequence(arrays), dtype), axis))


def _stacker(name: str) -> Rule:
    return lambda fn, tup, dtype=None: fn.new(getattr(fn, name)(_common(fn, _sequence(tup), dtype)))


for _name in ("vstack", "hstack", "dstack", "column_stack"):
    FUNCTIONS[_name] = _stacker(_name)


@entry("array_split")
def _array_split(fn: Calls, ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    return _split(fn, ary, indices_or_sections, axis, exact=False)


@entry("split")
def _split(fn: Calls, ary: Any, indices_or_sections: Any, axis: Any = 0, *, exact: bool = True) -> Any:
    array = fn.array(ary)
    (axis,) = _axes(axis, array.ndim)
    size = int(array.shape[axis])
    if isinstance(indices_or_sections, (tuple, list)):
        marks = [0, *(plain(i) for i in indices_or_sections), size]
        if marks != sorted(marks) or any(i < 0 for i in marks):
            refuse("np.split at these places")
    else:
        sections = plain(indices_or_sections)
        each, more = divmod(size, sections)
        if more and exact:
            refuse("np.split into parts of different sizes")
        marks = [each * i + min(i, more) for i in range(sections + 1)]
    parts = [slice(a, b) for a, b in itertools.pairwise(marks)]
    return [arrays.subscript(fn.tracer, array, (slice(None),) * axis + (part,)) for part in parts]


@entry("tile")
def _tile(fn: Calls, A: Any, reps: Any) -> Any:
    return fn.new(fn.clone(fn.tile(fn.tensor(A), _shape(reps))))


@entry("repeat")
def _repeat(fn: Calls, a: Any, repeats: Any, axis: Any = None) -> Any:
    tensor = fn.tensor(a)
    if axis is None:
        tensor, axis = fn.reshape(tensor, (-1,)), 0
    return fn.new(fn.repeat_interleave(tensor, int(plain(repeats)), *_axes(axis, tensor.fake.ndim)))


@entry("roll")
def _roll(fn: Calls, a: Any, shift: Any, axis: Any = None) -> Any:
    tensor = fn.tensor(a)
    return fn.new(fn.roll(tensor, shift) if axis is None else fn.roll(tensor, shift, axis))


@entry("flip")
def _flip(fn: Calls, m: Any, axis: Any = None) -> Any:
    array = fn.array(m)
    axes = _axes(axis, array.ndim)
    key = tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(array.ndim))
    return arrays.subscript(fn.tracer, array, key)


@entry("flipud")
def _flipud(fn: Calls, m: Any) -> Any:
    return _flip(fn, m, 0)


@entry("fliplr")
def _fliplr(fn: Calls, m: Any) -> Any:
    return _flip(fn, m, 1)


@entry("pad")
def _pad(fn: Calls, array: Any, pad_width: Any, mode: Any = "constant", constant_values: Any = 0) -> Any:
    padded = fn.array(array)
    if mode != "constant" or not isinstance(constant_values, (int, float)):
        refuse("np.pad with this mode")
    width = pad_width
    if isinstance(width, int):
        width = [(width, width)] * padded.ndim
    elif not isinstance(width[0], (tuple, list)):
        width = [tuple(width) if len(width) == 2 else (width[0], width[0])] * padded.ndim
    flat = [side for pair in reversed(width) for side in pair]
    value = arrays.number(constant_values, padded.dtype)
    if not padded.ndim or len(flat) != 2 * padded.ndim:
        refuse("np.pad with these widths")
    return fn.new(fn.tracer.builder.call_function(fl.nn.functional.pad, (padded.tensor, flat, "constant", value), {}))


# ---------------------------------------------------------------------------------------------- choosing


def _scalar_type(value: Any) -> Any:
    """What result_type() is to be told of an operand."""
    return value.dtype if type(value) is TracedArray else value.kind(0) if value.kind in _WEAK else value.kind


_WEAK = (int, float, complex)


def _choices(fn: Calls, *values: Any) -> list[Any]:
    """Operands of one common dtype, as tensors."""
    choices = [arrays.operand(fn.tracer, v) for v in values]
    dtype = numpy().result_type(*(_scalar_type(v) for v in choices))
    out = []
    for value in choices:
        if type(value) is TracedArray:
            out.append(cast(value.tensor, dtype))
        else:
            out.append(fn.full((), arrays.number(value.value, dtype), dtype=tensor_dtype(dtype)))
    return out


@entry("where")
def _where(fn: Calls, condition: Any, *values: Any) -> Any:
    if len(values) != 2:
        refuse("np.where with one argument, whose result has a shape that depends on values")
    return fn.new(fn.where(fn.tensor(condition, bool), *_choices(fn, *values)))


@entry("clip")
def _clip(
    fn: Calls, a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, min: Any = None, max: Any = None
) -> Any:
    low, high = a_min if a_min is not None else min, a_max if a_max is not None else max
    np, result = numpy(), a
    if low is None and high is None:
        refuse("np.clip without limits")
    if low is not None:
        result = arrays.call_ufunc(fn.tracer, np.maximum, (result, low), {})
    if high is not None:
        result = arrays.call_ufunc(fn.tracer, np.minimum, (result, high), {})
    return result if out is None else _give(fn, result.tensor, out)


@entry("round", "around")
def _round(fn: Calls, a: Any, decimals: Any = 0, out: Any = None) -> Any:
    tensor = fn.tensor(a)
    if not tensor.fake.dtype.is_floating_point:
        if tensor.fake.dtype == fl.bool or decimals < 0:
            refuse("np.round of integers")
        return _give(fn, fn.clone(tensor), out)
    return _give(fn, fn.round(tensor, decimals=decimals) if decimals else fn.round(tensor), out)


@entry("nan_to_num")
def _nan_to_num(fn: Calls, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if copy is not True:
        refuse("np.nan_to_num in place")
    return fn.result(fn.nan_to_num(fn.tensor(x), nan, posinf, neginf))


@entry("isclose")
def _isclose(fn: Calls, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Any:
    return fn.result(fn.isclose(*fn.broadcast_tensors(*_choices(fn, a, b)), rtol=rtol, atol=atol, equal_nan=equal_nan))


@entry("sort")
def _sort(fn: Calls, a: Any, axis: Any = -1, kind: Any = None) -> Any:
    tensor = fn.tensor(a)
    if axis is None:
        tensor, axis = fn.reshape(tensor, (-1,)), 0
    return fn.new(fn.sort(tensor, *_axes(axis, tensor.fake.ndim))[0])


@entry("argsort")
def _argsort(fn: Calls, a: Any, axis: Any = -1, kind: Any = None, stable: Any = None) -> Any:
    tensor = fn.tensor(a)
    if axis is None:
        tensor, axis = fn.reshape(tensor, (-1,)), 0
    return fn.new(fn.argsort(tensor, dim=_axes(axis, tensor.fake.ndim)[0], stable=True))


@entry("take")
def _take(fn: Calls, a: Any, indices: Any, axis: Any = None) -> Any:
    array = fn.array(a)
    if axis is None:
        array, axis = _reshape(fn, array, -1), 0
    (axis,) = _axes(axis, array.ndim)
    return arrays.subscript(fn.tracer, array, (slice(None),) * axis + (fn.array(indices),))


@entry("take_along_axis")
def _take_along_axis(fn: Calls, arr: Any, indices: Any, axis: Any = -1) -> Any:
    tensor = fn.tensor(arr)
    return fn.new(fn.take_along_dim(tensor, fn.tensor(indices, numpy().int64), *_axes(axis, tensor.fake.ndim)))


@entry("searchsorted")
def _searchsorted(fn: Calls, a: Any, v: Any, side: Any = "left") -> Any:
    return fn.result(fn.searchsorted(*_common(fn, (a, v)), right=side == "right"))


@entry("diff")
def _diff(fn: Calls, a: Any, n: Any = 1, axis: Any = -1) -> Any:
    return fn.new(fn.diff(fn.tensor(a), n, axis))


# ---------------------------------------------------------------------------------------------- products


@entry("dot")
def _dot(fn: Calls, a: Any, b: Any, out: Any = None) -> Any:
    left, right = _common(fn, (a, b))
    if not left.fake.ndim or not right.fake.ndim:
        return _give(fn, left * right, out)
    if (left.fake.ndim > 2 and right.fake.ndim > 1) or right.fake.ndim > 2:
        return _give(fn, fn.tensordot(left, right, ([left.fake.ndim - 1], [right.fake.ndim - 2])), out)
    return _give(fn, fn.matmul(left, right), out)


@entry("inner")
def _inner(fn: Calls, a: Any, b: Any) -> Any:
    return fn.result(fn.inner(*_common(fn, (a, b))))


@entry("vdot")
def _vdot(fn: Calls, a: Any, b: Any) -> Any:
    left, right = (fn.reshape(t, (-1,)) for t in _common(fn, (a, b)))
    return fn.result(fn.vdot(left, right))


@entry("outer")
def _outer(fn: Calls, a: Any, b: Any) -> Any:
    left, right = (fn.reshape(t, (-1,)) for t in _common(fn, (a, b)))
    return fn.new(fn.outer(left, right))


@entry("tensordot")
def _tensordot(fn: Calls, a: Any, b: Any, axes: Any = 2) -> Any:
    left, right = _common(fn, (a, b))
    if not isinstance(axes, int):
        axes = [[x] if isinstance(x, int) else list(x) for x in axes]
    return fn.new(fn.tensordot(left, right, axes))


@entry("einsum")
def _einsum(fn: Calls, subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    if not isinstance(subscripts, str):
        refuse("np.einsum with lists")
    return fn.result(fn.einsum(subscripts.replace(" ", ""), *_common(fn, operands)))


@entry("kron")
def _kron(fn: Calls, a: Any, b: Any) -> Any:
    return fn.new(fn.kron(*_common(fn, (a, b))))


@entry("cross")
def _cross(fn: Calls, a: Any, b: Any) -> Any:
    left, right = _common(fn, (a, b))
    return fn.new(fn.linalg_cross(left, right))


@entry("trace")
def _trace(fn: Calls, a: Any) -> Any:
    array = fn.array(a)
    if array.ndim != 2:
        refuse("np.trace of several matrices")
    return _sum(fn, fn.new(fn.diagonal(array.tensor)))


@entry("diagonal")
def _diagonal(fn: Calls, a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    result = view(
        fn.array(a), lambda tensor: fn.diagonal(tensor, offset, axis1, axis2), "diagonal", offset, axis1, axis2
    )
    result.writable = False
    return result


@entry("diag")
def _diag(fn: Calls, v: Any, k: Any = 0) -> Any:
    array = fn.array(v)
    if array.ndim == 2:
        return _diagonal(fn, array, k)
    return fn.new(fn.diag(array.tensor, k))


def _triangle(name: str) -> Rule:
    return lambda fn, m, k=0: fn.new(getattr(fn, name)(fn.tensor(m), k))


FUNCTIONS.update(tril=_triangle("tril"), triu=_triangle("triu"))


@entry("linalg.norm")
def _norm(fn: Calls, x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:
    tensor, wanted = _float(fn, x)
    vector = isinstance(axis, int) or (axis is None and (ord is None or tensor.fake.ndim == 1))
    if not vector or not (ord is None or isinstance(ord, (int, float))):
        refuse("np.linalg.norm of matrices")
    norm = fn.linalg_vector_norm(tensor, 2 if ord is None else ord, axis, bool(keepdims))
    return fn.result(cast(norm, wanted))


def _linear(name: str, count: int) -> Rule:
    def run(fn: Calls, *values: Any) -> Any:
        if len(values) != count:
            refuse(f"np.linalg.{name} with these arguments")
        tensors = [_float(fn, v)[0] for v in values]
        if any(fn.array(v).dtype == numpy().float16 for v in values):
            refuse("np.linalg on half precision")
        if name == "solve" and tensors[1].fake.ndim not in (1, 2):
            refuse("np.linalg.solve for several systems")
        return fn.result(getattr(fn, f"linalg_{name}")(*_common(fn, [fn.new(t) for t in tensors])))

    return run


for _name, _inputs in (("inv", 1), ("det", 1), ("cholesky", 1), ("solve", 2), ("pinv", 1)):
    FUNCTIONS[f"linalg.{_name}"] = _linear(_name, _inputs)
FUNCTIONS["linalg.matmul"] = lambda fn, a, b: arrays.call_ufunc(fn.tracer, numpy().matmul, (a, b), {})


# ---------------------------------------------------------------------------------------------- questions


@entry("shape")
def _shape_of(fn: Calls, a: Any) -> Any:
    return fn.array(a).shape


@entry("ndim")
def _ndim(fn: Calls, a: Any) -> Any:
    return fn.array(a).ndim


@entry("size")
def _size(fn: Calls, a: Any, axis: Any = None) -> Any:
    array = fn.array(a)
    return math.prod(array.shape) if axis is None else array.shape[axis]


@entry("result_type")
def _result_type(fn: Calls, *arrays_and_dtypes: Any) -> Any:
    return numpy().result_type(*(a.dtype if type(a) is TracedArray else a for a in arrays_and_dtypes))


@entry("isscalar")
def _isscalar(fn: Calls, element: Any) -> Any:
    return element.scalar


@entry("real")
def _real(fn: Calls, val: Any) -> Any:
    return arrays.load(fn.tracer, fn.array(val), "real")


@entry("imag")
def _imag(fn: Calls, val: Any) -> Any:
    return arrays.load(fn.tracer, fn.array(val), "imag")


# ---------------------------------------------------------------------------------------------- methods


@entry("astype", table=METHODS)
def _astype(fn: Calls, a: Any, dtype: Any, order: Any = "K", casting: Any = "unsafe", copy: Any = True) -> Any:
    _order(order)
    if casting != "unsafe":
        refuse("astype with casting")
    if copy is False and a.dtype == numpy().dtype(dtype):
        return a
    result = fn.clone(a.tensor) if a.dtype == numpy().dtype(dtype) else cast(a.tensor, dtype)
    return TracedArray(fn.tracer, result, scalar=a.scalar)


@entry("reshape", table=METHODS)
def _reshape_method(fn: Calls, a: Any, *shape: Any, order: Any = "C") -> Any:
    return _reshape(fn, a, shape[0] if len(shape) == 1 else shape, order)


@entry("transpose", table=METHODS)
def _transpose_method(fn: Calls, a: Any, *axes: Any) -> Any:
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        return _transpose(fn, a, axes[0])
    return _transpose(fn, a, axes or None)


@entry("copy", table=METHODS)
def _copy_method(fn: Calls, a: Any, order: Any = "C") -> Any:
    _order(order)
    result = fn.clone(a.tensor, memory_format=fl.contiguous_format) if order == "C" else fn.clone(a.tensor)
    return TracedArray(fn.tracer, result, scalar=a.scalar)


@entry("flatten", table=METHODS)
def _flatten(fn: Calls, a: Any, order: Any = "C") -> Any:
    _order(order)
    return fn.new(fn.clone(fn.reshape(a.tensor, (-1,))))


@entry("fill", table=METHODS)
def _fill(fn: Calls, a: Any, value: Any) -> None:
    arrays.store(fn.tracer, a, Ellipsis, value)


@entry("sort", table=METHODS)
def _sort_method(fn: Calls, a: Any, axis: Any = -1) -> None:
    a.write(fn.sort(a.tensor, *_axes(axis, a.ndim))[0])


@entry("conj", "conjugate", table=METHODS)
def _conj(fn: Calls, a: Any) -> Any:
    return arrays.call_ufunc(fn.tracer, numpy().conjugate, (a,), {})


@entry("clip", table=METHODS)
def _clip_method(fn: Calls, a: Any, min: Any = None, max: Any = None, out: Any = None) -> Any:
    return _clip(fn, a, min, max, out)
