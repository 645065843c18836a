"""The namespace of the Python array API standard (2024.12), for programs that are written to it.

`x.__array_namespace__()` returns this module. Functions of the package that already are as the standard has them are found
here by their names; the others are written below in terms of them: other names (`permute_dims`), other defaults
(`meshgrid`, `sort`), arguments that are positional only, results as named tuples, and dtypes of sums.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import Tensor, device

__array_api_version__ = "2024.12"

# ---------------------------------------------------------------- what is the same

from flambeau import (  # noqa: F401
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bool,
    complex64,
    complex128,
    cos,
    cosh,
    e,
    empty_like,
    exp,
    expm1,
    float32,
    float64,
    from_dlpack,
    full_like,
    inf,
    int8,
    int16,
    int32,
    int64,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    matmul,
    nan,
    negative,
    newaxis,
    ones_like,
    pi,
    positive,
    real,
    reciprocal,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    uint8,
    uint16,
    uint32,
    uint64,
    zeros_like,
)  # fmt: skip

bitwise_invert = fl.bitwise_not
conj = fl.conj
imag = fl.imag

Axis = int | tuple[int, ...] | None
_INTEGERS = {"signed integer": (int8, int16, int32, int64), "unsigned integer": (uint8, uint16, uint32, uint64)}
_KINDS: dict[str, tuple[Any, ...]] = {
    "bool": (bool,),
    **_INTEGERS,
    "integral": _INTEGERS["signed integer"] + _INTEGERS["unsigned integer"],
    "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
}
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


# ---------------------------------------------------------------- dtypes


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether a dtype is of a kind: a name such as "integral", a dtype, or a tuple of these."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, part) for part in kind)
    return dtype in _KINDS[kind] if isinstance(kind, str) else dtype == kind


def astype(x: Tensor, dtype: Any, /, *, copy: builtins.bool = True, device: Any = None) -> Tensor:
    return x.to(dtype=dtype, device=device, copy=copy)


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Whether every value of one dtype is one of another."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    try:
        return _promoted(source, to) == to
    except TypeError:
        return False


class FloatInfo(NamedTuple):
    """Limits of a floating dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IntegerInfo(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: Any


def finfo(type: Any, /) -> FloatInfo:
    dtype = type.dtype if isinstance(type, Tensor) else type
    info = fl.finfo(dtype)
    part = {complex64: float32, complex128: float64}.get(dtype, dtype)
    return FloatInfo(info.bits, info.eps, info.max, info.min, info.smallest_normal, part)


def iinfo(type: Any, /) -> IntegerInfo:
    dtype = type.dtype if isinstance(type, Tensor) else type
    info = fl.iinfo(dtype)
    return IntegerInfo(info.bits, info.max, info.min, dtype)


def _promoted(first: Any, second: Any) -> Any:
    """The dtype of two, as the standard has it; the package itself does not promote unsigned integers of several bytes."""
    wide = (uint16, uint32, uint64)
    if first == second or not (first in wide or second in wide):
        return fl.promote_types(first, second)
    unsigned, other = (first, second) if first in wide else (second, first)
    if other is bool:
        return unsigned
    if other not in _KINDS["integral"]:
        return other
    if other in _INTEGERS["unsigned integer"]:
        return builtins.max(unsigned, other, key=lambda dtype: int(dtype.itemsize))
    for dtype in _INTEGERS["signed integer"]:
        if dtype.itemsize > unsigned.itemsize and dtype.itemsize >= other.itemsize:
            return dtype
    raise TypeError(f"[result_type] expected dtypes that promote, got {first} and {second}")


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype in which arrays, dtypes and Python numbers are combined; numbers only choose a kind."""
    numbers = [value for value in arrays_and_dtypes if isinstance(value, (builtins.bool, int, float, complex))]
    others = [value for value in arrays_and_dtypes if not isinstance(value, (builtins.bool, int, float, complex))]
    if not others:
        raise ValueError("[result_type] expected at least one array or dtype, got numbers only")
    result = None
    for value in others:
        dtype = value.dtype if isinstance(value, Tensor) else value
        result = dtype if result is None else _promoted(result, dtype)
    for number in numbers:
        result = fl.result_type(fl.empty(1, dtype=result), number)
    return result


# ---------------------------------------------------------------- functions of two arrays, either of which may be a number


def _together(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Two arrays, or an array and a number, in their common dtype."""
    dtype = result_type(x1, x2)
    place = x1.device if isinstance(x1, Tensor) else x2.device
    first, second = (
        x.to(dtype) if isinstance(x, Tensor) else fl.asarray(x, dtype=dtype, device=place) for x in (x1, x2)
    )
    return first, second


def _of_two(function: Any) -> Any:
    def run(x1: Any, x2: Any, /) -> Tensor:
        if isinstance(x1, Tensor) and isinstance(x2, Tensor) and x1.dtype == x2.dtype:
            return function(x1, x2)
        return function(*_together(x1, x2))

    run.__name__ = run.__qualname__ = function.__name__
    run.__doc__ = function.__doc__
    return run


add = _of_two(fl.add)
atan2 = _of_two(fl.atan2)
bitwise_and = _of_two(fl.bitwise_and)
bitwise_left_shift = _of_two(fl.bitwise_left_shift)
bitwise_or = _of_two(fl.bitwise_or)
bitwise_right_shift = _of_two(fl.bitwise_right_shift)
bitwise_xor = _of_two(fl.bitwise_xor)
copysign = _of_two(fl.copysign)
divide = _of_two(fl.div)
equal = _of_two(fl.eq)
floor_divide = _of_two(fl.floor_divide)
greater = _of_two(fl.gt)
greater_equal = _of_two(fl.ge)
hypot = _of_two(fl.hypot)
less = _of_two(fl.lt)
less_equal = _of_two(fl.le)
logaddexp = _of_two(fl.logaddexp)
logical_and = _of_two(fl.logical_and)
logical_or = _of_two(fl.logical_or)
logical_xor = _of_two(fl.logical_xor)
maximum = _of_two(fl.maximum)
minimum = _of_two(fl.minimum)
multiply = _of_two(fl.multiply)
nextafter = _of_two(fl.nextafter)
not_equal = _of_two(fl.ne)
pow = _of_two(fl.pow)
remainder = _of_two(fl.remainder)
subtract = _of_two(fl.subtract)


# ---------------------------------------------------------------- functions of one array


def _is_integer(x: Tensor) -> builtins.bool:
    return not (x.is_floating_point() or x.is_complex())


def _of_integers(function: Any, x: Tensor) -> Tensor:
    """A function that integers pass unchanged."""
    return x.clone() if _is_integer(x) else function(x)


def sign(x: Tensor, /) -> Tensor:
    """NaN stays NaN, and zeros of complex numbers lose their signs."""
    if _is_integer(x):
        return fl.sign(x)
    signs = fl.sgn(x)
    return fl.where(
        fl.isnan(x), x.new_tensor(nan), fl.where(x == 0, fl.zeros_like(x), signs) if x.is_complex() else signs
    )


def ceil(x: Tensor, /) -> Tensor:
    return _of_integers(fl.ceil, x)


def floor(x: Tensor, /) -> Tensor:
    return _of_integers(fl.floor, x)


def trunc(x: Tensor, /) -> Tensor:
    return _of_integers(fl.trunc, x)


def round(x: Tensor, /) -> Tensor:
    if x.is_complex():
        return fl.complex(fl.round(x.real), fl.round(x.imag))
    return _of_integers(fl.round, x)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    if min is None and max is None:
        return x.clone()
    bounds = [fl.as_tensor(b, dtype=x.dtype) if isinstance(b, (int, float)) else b for b in (min, max)]
    return fl.clamp(x, *bounds).to(x.dtype)


# ---------------------------------------------------------------- creation


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: builtins.bool | None = None) -> Tensor:
    if copy is False and not isinstance(obj, Tensor) and not hasattr(obj, "__dlpack__"):
        raise ValueError(f"[asarray] expected an array that can be shared, got {type(obj).__name__} and copy=False")
    return fl.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    start, stop = (0, start) if stop is None else (start, stop)
    if (stop - start) * step <= 0:  # empty rather than an error
        kinds = [type(value) for value in (start, stop, step)]
        dtype = dtype or (fl.get_default_dtype() if float in kinds else int64)
        return fl.empty(0, dtype=dtype, device=device)
    if dtype in (uint16, uint32, uint64):
        return fl.arange(start, stop, step, dtype=int64, device=device).to(dtype)
    return fl.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return fl.empty(shape, dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return fl.ones(shape, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return fl.zeros(shape, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    n_cols = n_rows if n_cols is None else n_cols
    matrix = fl.zeros(n_rows, n_cols, dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        matrix.diagonal(k).fill_(1)
    return matrix


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return fl.full(shape, fill_value, dtype=dtype, device=device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: builtins.bool = True
) -> Tensor:
    if endpoint:
        return fl.linspace(start, stop, num, dtype=dtype, device=device)
    return fl.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    return list(fl.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    return fl.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    return fl.triu(x, k)


# ---------------------------------------------------------------- rearranging


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    return list(fl.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    return fl.broadcast_to(x, shape)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    return fl.moveaxis(x, source, destination)


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    return fl.roll(x, shift) if axis is None else fl.roll(x, shift, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    return fl.stack(list(arrays), axis)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    return fl.where(condition, *_together(x1, x2))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    return fl.tensordot(*_together(x1, x2), dims=axes)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    if axis is None:
        arrays, axis = [array.flatten() for array in arrays], 0
    return fl.cat(list(arrays), axis)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    return x.unsqueeze(axis)


def flip(x: Tensor, /, *, axis: Axis = None) -> Tensor:
    return fl.flip(x, _axes(x, axis))


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    return x.permute(axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    if x.ndim < 2:
        raise ValueError(f"[matrix_transpose] expected at least two dimensions, got {x.ndim}")
    return x.mT


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    return fl.repeat_interleave(x, repeats.to(int64) if isinstance(repeats, Tensor) else repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    if copy is False:
        return x.view(shape)
    return fl.reshape(x.clone() if copy else x, shape)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    axes = _axes(x, axis)
    for at in axes:
        if x.shape[at] != 1:
            raise ValueError(f"[squeeze] expected size 1 along axis {at}, got {x.shape[at]}")
    return x.squeeze(axes)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    return fl.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(fl.unbind(x, axis))


def _axes(x: Tensor, axis: Axis) -> tuple[int, ...]:
    """Axes as a tuple; None means all."""
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


# ---------------------------------------------------------------- indexing, searching, sorting, sets


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    if axis is None and x.ndim != 1:
        raise ValueError("[take] expected axis for an array of several dimensions, got None")
    return fl.index_select(x, axis or 0, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    return fl.take_along_dim(x, indices, axis)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    return fl.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    return fl.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    return sum(x != 0, axis=axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    if x.ndim == 0:
        raise ValueError("[nonzero] expected at least one dimension, got none")
    return fl.nonzero(x, as_tuple=True)


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    return fl.searchsorted(x1, x2, side=side, sorter=sorter)


def argsort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    return fl.sort(x, dim=axis, descending=descending, stable=stable).indices


def sort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    return fl.sort(x, dim=axis, descending=descending, stable=stable).values


class UniqueAllResult(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAllResult:
    values, inverse, counts = fl.unique(x, return_inverse=True, return_counts=True)
    flat = inverse.flatten()
    order = fl.argsort(flat, stable=True)  # the first of equal ones comes first
    firsts = order[fl.cumsum(counts, 0) - counts]
    return UniqueAllResult(values, firsts, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCountsResult:
    return UniqueCountsResult(*fl.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverseResult:
    return UniqueInverseResult(*fl.unique(x, return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    return fl.unique(x)


# ---------------------------------------------------------------- reductions


def _reduced(function: Any, x: Tensor, axis: Axis, keepdims: builtins.bool, **options: Any) -> Tensor:
    """A reduction over axes, none of which is every one of none."""
    axes = _axes(x, axis)
    return function(x, axes, keepdim=keepdims, **options) if axes else function(x.unsqueeze(0), (0,), **options)


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    return _reduced(fl.sum, x, axis, keepdims, dtype=dtype or _summed(x.dtype))


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    dtype = dtype or _summed(x.dtype)
    result = x.to(dtype)
    for at in sorted((at % x.ndim for at in _axes(x, axis)), reverse=True):
        result = fl.prod(result, at, keepdim=keepdims)
    return result


def _summed(dtype: Any) -> Any:
    """The dtype of sums and products: that of the widest integers of a kind, others their own."""
    if dtype in _KINDS["unsigned integer"]:
        return uint64
    return int64 if dtype in (*_KINDS["signed integer"], bool) else dtype


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    return _reduced(fl.mean, x, axis, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    return _reduced(fl.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    return _reduced(fl.amin, x, axis, keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    return fl.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    axes = _axes(x, axis)
    count = 1
    for at in axes:
        count *= x.shape[at]
    centred = x - mean(x, axis=axes, keepdims=True)
    return sum(centred.abs() ** 2, axis=axes, keepdims=keepdims) / builtins.max(count - correction, 0)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    return _reduced(fl.all, x != 0 if x.dtype is not bool else x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    return _reduced(fl.any, x != 0 if x.dtype is not bool else x, axis, keepdims)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
) -> Tensor:
    return _cumulative(fl.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
) -> Tensor:
    return _cumulative(fl.cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(
    function: Any, start: int, x: Tensor, axis: int | None, dtype: Any, include_initial: builtins.bool
) -> Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ValueError("[cumulative] expected axis for an array of several dimensions, got None")
        axis, x = 0, x.reshape(-1)
    result = function(x, axis, dtype=dtype or _summed(x.dtype))
    if include_initial:
        first = list(result.shape)
        first[axis] = 1
        result = fl.cat([fl.full(first, start, dtype=result.dtype, device=result.device), result], axis)
    return result


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Tensor:
    return fl.diff(x, n, axis, prepend, append)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    return fl.linalg.vecdot(x1, x2, dim=axis)


# ---------------------------------------------------------------- what the namespace can do


class _Info:
    """The answers of `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        return fl.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        default = fl.get_default_dtype()
        complex_dtype = complex128 if default is float64 else complex64
        return {"real floating": default, "complex floating": complex_dtype, "integral": int64, "indexing": int64}

    def devices(self) -> list[Any]:
        return [device("cpu"), *(device("cuda", index) for index in range(fl.cuda.device_count()))]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        known = _KINDS["bool"] + _KINDS["numeric"]
        return {str(d).rpartition(".")[2]: d for d in known if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> _Info:
    return _Info()


def __getattr__(name: str) -> Any:
    if name in ("linalg", "fft"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = sorted(
    name for name in globals() if not name.startswith("_") and name not in (
        "Any", "Axis", "NamedTuple", "Sequence", "Tensor", "annotations", "builtins", "device", "fl",
        "UniqueAllResult", "UniqueCountsResult", "UniqueInverseResult", "FloatInfo", "IntegerInfo", "import_module",
    )
)  # fmt: skip
