"""Tensors of integers that stand for `(i - zero_point) * scale`.

The object is the tensor of integers, seen as a subclass with its grid. Functions that move or order elements work on
the numbers; pooling, activations and comparisons are those of PyTorch's quantized kernels; all others are refused. Layers
are in `ao.nn.quantized`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import (
    QuantizedType,
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_tensor_affine,
    qint8,
    qint32,
    quint2x4,
    quint4x2,
    quint8,
)
from flambeau.ops import tags
from flambeau.overrides import DisableTorchFunctionSubclass, handle_torch_function, has_torch_function

__all__ = ["Grid", "QuantizedTensor", "dequantize", "quantize_per_channel", "quantize_per_tensor"]

Function = TypeVar("Function", bound=Callable[..., Any])

_STORED = {qint8: fl.int8, quint8: fl.uint8, qint32: fl.int32, quint4x2: fl.uint8, quint2x4: fl.uint8}
_TOP = {quint4x2: 15, quint2x4: 3}  # the largest integers of parts of a byte
_NAMES = {fl.int8: qint8, fl.uint8: quint8, fl.int32: qint32}


class Grid(NamedTuple):
    """Where the integers lie: one scale and zero point, or one for each index of a dimension."""

    dtype: QuantizedType
    scale: Any  # a float, or a tensor of float64
    zero_point: Any  # an int, or a tensor of int64
    axis: int | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        if self.dtype in _TOP:
            return 0, _TOP[self.dtype]
        info = fl.iinfo(_STORED[self.dtype])
        return info.min, info.max

    @property
    def scheme(self) -> Any:
        if self.axis is None:
            return per_tensor_affine
        return per_channel_affine_float_qparams if self.zero_point.is_floating_point() else per_channel_affine

    def spread(self, ndim: int) -> tuple[Any, Any]:
        """Scale and zero point as they broadcast to a tensor."""
        if self.axis is None:
            return self.scale, self.zero_point
        shape = [-1 if d == self.axis else 1 for d in range(ndim)]
        return self.scale.view(shape).float(), self.zero_point.view(shape)

    def quantize(self, values: Tensor) -> QuantizedTensor:
        scale, zero_point = self.spread(values.dim())
        if self.scheme is per_channel_affine_float_qparams:  # the zero point need not be on the grid
            whole = (values.float() * (1.0 / scale) + zero_point).round()
        else:
            whole = (values.float() * (1.0 / scale)).round() + zero_point
        return self.hold(whole.clamp(*self.bounds))

    def hold(self, whole: Tensor) -> QuantizedTensor:
        """Integers as a tensor on this grid."""
        quantized = Tensor._make_subclass(QuantizedTensor, whole.detach().to(_STORED[self.dtype]))
        quantized._grid = self
        return quantized


def _operator(function: Function) -> Function:
    """A function that modes and traces see as an operator of ATen."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if has_torch_function(()):
            return handle_torch_function(call, (), *args, **kwargs)
        return function(*args, **kwargs)

    vars(call)["_qualified_op_name"] = f"aten::{function.__name__}"
    return cast(Function, call)


@_operator
def quantize_per_tensor(input: Tensor, scale: Any, zero_point: Any, dtype: Any) -> QuantizedTensor:
    """The nearest numbers on a grid with one scale.

    >>> flambeau.quantize_per_tensor(flambeau.tensor([-0.5, 0.5]), 0.1, 10, flambeau.quint8).int_repr()
    tensor([ 5, 15], dtype=torch.uint8)
    """
    dtype = _checked("quantize_per_tensor", input, dtype)
    scale = float(scale.item() if isinstance(scale, Tensor) else scale)
    return Grid(dtype, scale, int(zero_point.item() if isinstance(zero_point, Tensor) else zero_point)).quantize(input)


@_operator
def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any) -> QuantizedTensor:
    """The nearest numbers on a grid for each index of a dimension.

    >>> x, scales = flambeau.ones(2, 1), flambeau.tensor([0.1, 0.5])
    >>> flambeau.quantize_per_channel(x, scales, flambeau.zeros(2), 0, flambeau.qint8).int_repr()
    tensor([[10],
            [ 2]], dtype=torch.int8)
    """
    dtype = _checked("quantize_per_channel", input, dtype)
    if not 0 <= axis < input.dim() or scales.shape != (input.shape[axis],) or zero_points.shape != scales.shape:
        raise RuntimeError(
            f"[quantize_per_channel] expected a scale and a zero point for each index of dimension {axis} of "
            f"{tuple(input.shape)}, got {tuple(scales.shape)} and {tuple(zero_points.shape)}"
        )
    return channel_grid(dtype, scales, zero_points, axis).quantize(input)


def channel_grid(dtype: QuantizedType, scales: Tensor, zero_points: Tensor, axis: int) -> Grid:
    """A grid for each index of a dimension. Zero points are integers, or numbers of floating point beside the grid."""
    scales, zero_points = scales.detach(), zero_points.detach()
    if zero_points.is_floating_point():
        return Grid(dtype, scales.float(), zero_points.float(), axis)
    return Grid(dtype, scales.double(), zero_points.long(), axis)


@_operator
def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> QuantizedTensor:
    """On a grid between the smallest and the largest value.

    >>> flambeau.quantize_per_tensor_dynamic(flambeau.tensor([0.0, 2.55]), flambeau.quint8, False).int_repr()
    tensor([  0, 255], dtype=torch.uint8)
    """
    dtype = _checked("quantize_per_tensor_dynamic", input, dtype)
    _, scale, zero_point = fl._ops._quantized_dynamically(input, reduce_range)
    shift = 0 if dtype is quint8 else (64 if reduce_range else 128)
    return Grid(dtype, float(scale.item()), int(zero_point.item()) - shift).quantize(input)


def _choose_qparams_per_tensor(input: Tensor, reduce_range: bool = False) -> tuple[float, int]:
    """Scale and zero point of quint8 between the smallest and the largest value."""
    _, scale, zero_point = fl._ops._quantized_dynamically(input, reduce_range)
    return float(scale.item()), int(zero_point.item())


@_operator
def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> QuantizedTensor:
    """Integers as they are, on a grid."""
    return Grid(_NAMES[input.dtype], float(scale), int(zero_point)).hold(input)


@_operator
def _make_per_channel_quantized_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> QuantizedTensor:
    """Integers as they are, on a grid for each index of a dimension."""
    return channel_grid(_NAMES[input.dtype], scale, zero_point, axis).hold(input)


def _empty_affine_quantized(
    size: Any, *more: int, scale: float = 1.0, zero_point: int = 0, dtype: Any = quint8, **options: Any
) -> QuantizedTensor:
    shape = (size, *more) if isinstance(size, int) else tuple(size)
    return Grid(dtype, float(scale), int(zero_point)).hold(fl.empty(shape, dtype=_STORED[dtype], **options))


def _empty_per_channel_affine_quantized(
    size: Any, *, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any = quint8, **options: Any
) -> QuantizedTensor:
    return channel_grid(dtype, scales, zero_points, axis).hold(fl.empty(tuple(size), dtype=_STORED[dtype], **options))


def rebuild(storage: Any, offset: int, size: Any, stride: Any, quantizer: Any, *ignored: Any) -> QuantizedTensor:
    """A tensor of a checkpoint: its integers, and what PyTorch keeps of its grid."""
    from flambeau.serialization.unpickler import rebuild_tensor

    integers = rebuild_tensor(storage, offset, size, stride)
    scheme, *values = quantizer
    if scheme is per_tensor_affine:
        return _make_per_tensor_quantized_tensor(integers, *values)
    if scheme not in (per_channel_affine, per_channel_affine_float_qparams) or len(values) != 3:
        raise RuntimeError(f"[load] expected a grid per tensor or per channel, got {scheme}")
    return _make_per_channel_quantized_tensor(integers, *values)


def dequantize(tensor: Any) -> Any:
    """Quantized tensors as float32; lists of them, too.

    >>> q = flambeau.quantize_per_tensor(flambeau.tensor([0.12, 0.99]), 0.1, 0, flambeau.quint8)
    >>> flambeau.dequantize(q)
    tensor([0.1000, 1.0000])
    """
    if isinstance(tensor, (list, tuple)):
        return tuple(map(dequantize, tensor))
    return tensor.dequantize()


def _checked(name: str, input: Tensor, dtype: Any) -> QuantizedType:
    dtype = _NAMES.get(dtype, dtype)
    if dtype not in _STORED:
        raise RuntimeError(f"[{name}] expected qint8, quint8 or qint32, got {dtype}")
    if input.dtype != fl.float32:
        raise RuntimeError(f"[{name}] expected a tensor of float32, got {input.dtype}")
    return dtype


# ---------------------------------------------------------------------------------------------- functions

_COMPARISONS = frozenset("__eq__ __ne__ __lt__ __le__ __gt__ __ge__".split())
_AS_DATA = frozenset(
    "size dim ndimension numel nelement stride is_contiguous storage_offset element_size __len__ __hash__ data_ptr "
    "get_device is_same_size requires_grad_ is_floating_point is_complex is_signed is_conj is_neg is_inference storage "
    "untyped_storage".split()
)


class QuantizedTensor(Tensor):
    """A tensor on a grid of integers."""

    _grid: Grid

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        return self._grid.dtype

    @property
    def is_quantized(self) -> bool:  # type: ignore[override]
        return True

    def qscheme(self) -> Any:  # type: ignore[override]
        return self._grid.scheme

    def quantizer(self) -> tuple[Any, ...]:
        """What checkpoints keep of the grid."""
        grid = self._grid
        return (grid.scheme, grid.scale, grid.zero_point, *([] if grid.axis is None else [grid.axis]))

    def copy_(self, src: Tensor, non_blocking: bool = False) -> QuantizedTensor:  # type: ignore[override]
        """From values: to the grid of this tensor. From a quantized tensor: with its grid."""
        if isinstance(src, QuantizedTensor):
            self._grid, values = src._grid, src.int_repr()
        else:
            values = self._grid.quantize(src).int_repr()
        self.int_repr().copy_(values)
        return self

    def fill_(self, value: Any) -> QuantizedTensor:
        """The nearest integer to a value, everywhere."""
        if self._grid.axis is None:
            self.int_repr().fill_(self._filling(float(value)))
        else:
            self._write(fl.full((), float(value)))
        return self

    def masked_fill_(self, mask: Tensor, value: Any) -> QuantizedTensor:
        """The nearest integer to a value, where the mask is set."""
        self._need(True, "masked_fill_")
        self.int_repr().masked_fill_(mask, self._filling(float(value)))
        return self

    def masked_fill(self, mask: Tensor, value: Any) -> QuantizedTensor:
        return self._grid.hold(self.int_repr().clone()).masked_fill_(mask, value)

    def _write(self, values: Tensor) -> None:
        """Values, broadcast to this tensor, on its grid."""
        self.int_repr().copy_(self._grid.quantize(values.expand(self.shape)).int_repr())

    def zero_(self) -> QuantizedTensor:
        return self.fill_(0.0)

    def index_put_(self, indices: Any, values: Any, accumulate: bool = False) -> QuantizedTensor:
        """Values on the grid of this tensor, where the indices say."""
        self._need(True, "index_put_")
        if accumulate:
            raise NotImplementedError("[index_put_] expected accumulate=False for a quantized tensor, got True")
        values = values if isinstance(values, QuantizedTensor) else self._grid.quantize(values)
        whole = values.int_repr() if values._grid == self._grid else self._grid.quantize(values.dequantize()).int_repr()
        self.int_repr().index_put_(indices, whole)
        return self

    def index_put(self, indices: Any, values: Any, accumulate: bool = False) -> QuantizedTensor:
        return self._grid.hold(self.int_repr().clone()).index_put_(indices, values, accumulate)

    def unsqueeze(self, dim: int) -> QuantizedTensor:
        axis, at = self._grid.axis, dim % (self.dim() + 1)
        grid = self._grid if axis is None else self._grid._replace(axis=axis + (at <= axis))
        return grid.hold(self.int_repr().unsqueeze(dim))

    def squeeze(self, dim: Any = None) -> QuantizedTensor:  # type: ignore[override]
        axis, whole = self._grid.axis, self.int_repr()
        if axis is None:
            return self._grid.hold(whole.squeeze() if dim is None else whole.squeeze(dim))
        dims = range(self.dim()) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
        gone = [d % self.dim() for d in dims if self.shape[d] == 1]
        if axis in gone:
            raise RuntimeError(
                f"[squeeze] expected a dimension without a grid for each index, got {axis}: "
                "Squeeze is only possible on non-axis dimension for Per-Channel Quantized Tensors."
            )
        return self._grid._replace(axis=axis - sum(d < axis for d in gone)).hold(whole.squeeze(tuple(gone)))

    def _filling(self, value: float) -> int:
        self._need(True, "fill_")
        return int(self._grid.quantize(fl.tensor(value)).int_repr())

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._grid.axis is not None:
            values = _plain(value)
            self[key]._write(fl.as_tensor(values, dtype=fl.float32))
            return
        if isinstance(value, QuantizedTensor) and value._grid != self._grid:
            value = value.dequantize()
        if not isinstance(value, QuantizedTensor):
            value = self._grid.quantize(fl.as_tensor(value, dtype=fl.float32))
        self.int_repr()[key] = value.int_repr()

    @_operator
    def int_repr(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._integers()

    def _integers(self) -> Tensor:
        with DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor).detach()

    @_operator
    def dequantize(self) -> Tensor:
        whole = self._integers()
        scale, zero_point = self._grid.spread(whole.dim())
        return (whole.to(fl.int32) - zero_point).float() * scale

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        return self.int_repr().is_contiguous(*args, **kwargs)

    def q_scale(self) -> float:  # type: ignore[override]
        self._need(True, "q_scale")
        return self._grid.scale

    def q_zero_point(self) -> int:  # type: ignore[override]
        self._need(True, "q_zero_point")
        return self._grid.zero_point

    def q_per_channel_scales(self) -> Tensor:  # type: ignore[override]
        self._need(False, "q_per_channel_scales")
        return self._grid.scale

    def q_per_channel_zero_points(self) -> Tensor:  # type: ignore[override]
        self._need(False, "q_per_channel_zero_points")
        return self._grid.zero_point

    def q_per_channel_axis(self) -> int:  # type: ignore[override]
        self._need(False, "q_per_channel_axis")
        return self._grid.axis  # type: ignore[return-value]

    def _need(self, single: bool, name: str) -> None:
        if (self._grid.axis is None) != single:
            wanted = "one scale" if single else "a scale for each channel"
            raise RuntimeError(f"[{name}] expected a tensor with {wanted}, got {self.qscheme()}")

    def item(self) -> Any:
        return self.dequantize().item()

    def tolist(self) -> Any:
        return self.dequantize().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "[numpy] expected a tensor that NumPy has, got a quantized one; see int_repr() and dequantize()"
        )

    def __bool__(self) -> bool:
        return bool(self.item())

    def __deepcopy__(self, memo: Any) -> QuantizedTensor:
        memo[id(self)] = copy = self._grid.hold(self.int_repr().clone())
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self.int_repr(), tuple(self._grid))

    def __repr__(self) -> str:
        from flambeau._tensor import printing as text

        grid = self._grid
        suffixes = [f"size={tuple(self.shape)}", f"dtype={grid.dtype}", f"quantization_scheme={self.qscheme()}"]
        suffixes += [f"scale={grid.scale}", f"zero_point={grid.zero_point}"]
        suffixes += [] if grid.axis is None else [f"axis={grid.axis}"]
        return text.with_suffixes(
            "tensor(" + text.values_text(self.dequantize(), len("tensor(")), suffixes, len("tensor(")
        )

    __str__ = __repr__

    def __getitem__(self, key: Any) -> QuantizedTensor:
        grid = self._grid if self._grid.axis is None else _indexed(self._grid, key, self.dim())
        return grid.hold(self.int_repr()[key])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        first = args[0] if args else None
        own = cls.__dict__.get(name)
        if callable(own) and isinstance(first, QuantizedTensor):
            return own(*args, **kwargs)
        if name in _AS_DATA or name in ("__get__", "__set__"):
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if name in _COMPARISONS or name in tags.functions("comparison"):
            return func(*map(_plain, args), **kwargs)
        if name in ("cat", "stack"):
            return _joined(func, *args, **kwargs)
        if isinstance(first, QuantizedTensor):
            result = _call(func, name, first, args[1:], kwargs)
            if result is not NotImplemented:
                return result
        raise NotImplementedError(
            f"[{name}] expected plain tensors, got a quantized one: it is not written for them; please use dequantize() first"
        )


def _indexed(grid: Grid, key: Any, ndim: int) -> Grid:
    """The grid of a part of a tensor with a grid for each index of a dimension."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if not all(isinstance(k, (int, slice)) or k is None or k is Ellipsis for k in keys):
        raise NotImplementedError("[getitem] expected integers and slices for a grid of each channel, got others")
    taken = sum(isinstance(k, (int, slice)) for k in keys)
    filling = [slice(None)] * (ndim - taken)
    at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    keys[at : at + 1] = filling
    dimension = result = 0
    for k in keys:
        if k is None:
            result += 1
            continue
        if dimension == grid.axis:
            scale, zero_point = grid.scale[k], grid.zero_point[k]
            if isinstance(k, slice):
                return grid._replace(scale=scale, zero_point=zero_point, axis=result)
            return Grid(grid.dtype, scale.item(), int(zero_point.item()))
        dimension += 1
        result += isinstance(k, slice)
    raise IndexError(f"[getitem] expected up to {ndim} indices, got {len(keys)}")


def _rebuild(whole: Tensor, grid: Any) -> QuantizedTensor:
    return Grid(*grid).hold(whole)


def _plain(value: Any) -> Any:
    return value.dequantize() if isinstance(value, QuantizedTensor) else value


def _call(func: Any, name: str, x: QuantizedTensor, args: Any, kwargs: Any) -> Any:
    grid, whole = x._grid, x.int_repr()
    if name == "detach" or name in tags.functions("copy"):
        return grid.hold(func(whole, *args, **kwargs))
    if func is fl.empty_like and "dtype" not in kwargs:
        return grid.hold(func(whole, *args, **kwargs))
    if name == "to" and all(isinstance(a, (fl.device, str)) for a in args) and "dtype" not in kwargs:
        return grid.hold(whole.to(*args, **kwargs))
    if name in tags.functions("dropout") and kwargs.get("training", args[1] if len(args) > 1 else True) is False:
        return x
    if grid.axis is not None:
        return NotImplemented
    if name in tags.functions("moves") or name in tags.functions("chooses"):
        return _held(grid, func(whole, *args, **kwargs))
    if name in ("relu", "relu_"):
        return grid.hold(whole.clamp(min=grid.zero_point))
    if name in tags.functions("pads"):
        *before, value = (*args, 0.0) if len(args) < 3 else args[:3]
        value = kwargs.pop("value", value) or 0.0
        before = [*before, kwargs.pop("mode", "constant")][:2]
        return _held(grid, func(whole.float(), *before, float(x._filling(value)) if before[1] == "constant" else None))
    if name in tags.functions(
        "averages"
    ):  # by steps from zero as float32, so that padding is zero, rounded to whole ones
        return _held(grid, func(whole.float() - grid.zero_point, *args, **kwargs), grid.zero_point)
    if name in tags.functions("piecewise_linear"):  # by the values, rounded to the same grid
        return grid.quantize(func(x.dequantize(), *args, **kwargs))
    if name in tags.functions("unit_grid", "signed_unit_grid"):
        step, signed = (1 / 256, 0) if name in tags.functions("unit_grid") else (2 / 256, 128)
        zero_point = signed if grid.dtype is quint8 else signed - 128
        return Grid(grid.dtype, step, zero_point).quantize(func(x.dequantize(), *args, **kwargs))
    return NotImplemented


def _held(grid: Grid, result: Any, zero: int = 0) -> Any:
    """Values of a result on the grid, moved to its zero; indices as they are."""
    if isinstance(result, Tensor):
        if result.is_floating_point():
            return grid.hold((result.round() + zero).clamp(*grid.bounds))
        return grid.hold(result) if result.dtype == _STORED[grid.dtype] else result
    return type(result)([_held(grid, value, zero) for value in result])


def _joined(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> QuantizedTensor:
    grid = tensors[0]._grid
    parts = [t.int_repr() if t._grid == grid else grid.quantize(t.dequantize()).int_repr() for t in tensors]
    return grid.hold(func(parts, *args, **kwargs))
