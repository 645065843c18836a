"""The Python half of Tensor: construction from data, NumPy, printing, and methods that are not operators."""

from __future__ import annotations

from typing import Any

from flambeau import _C
from flambeau._C import Tensor

__all__ = ["tensor", "as_tensor", "from_numpy", "is_tensor"]


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


_NUMPY_TO_DTYPE = {
    "b1": _C.bool, "u1": _C.uint8, "i1": _C.int8, "i2": _C.int16, "i4": _C.int32, "i8": _C.int64,
    "f2": _C.float16, "f4": _C.float32, "f8": _C.float64, "c8": _C.complex64, "c16": _C.complex128,
}  # fmt: skip
_DTYPE_TO_NUMPY = {v: "|" + k if k[-1] == "1" and len(k) == 2 else "<" + k for k, v in _NUMPY_TO_DTYPE.items()}


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of a NumPy array."""
    interface = getattr(array, "__array_interface__", None)
    if interface is None:
        raise TypeError(f"[from_numpy] expected a NumPy array, got {type(array).__name__}")
    kind = interface["typestr"]
    dtype = _NUMPY_TO_DTYPE.get(kind[1:])
    if dtype is None or kind[0] == ">":
        raise TypeError(f"[from_numpy] expected a numeric or bool array in native byte order, got dtype {array.dtype}")
    item = dtype.itemsize
    strides = array.strides
    if any(s < 0 for s in strides):
        raise ValueError("[from_numpy] expected strides that are not negative, got a reversed array; copy() it first")
    if any(s % item for s in strides):
        raise ValueError("[from_numpy] expected strides that are multiples of the element size, got a structured array")
    return _C._from_pointer(array, interface["data"][0], array.shape, [s // item for s in strides], dtype)


def _infer(data: Any) -> Tensor | None:
    """A tensor sharing memory with array-like data, or None when data is plain Python."""
    if isinstance(data, Tensor):
        return data
    if hasattr(data, "__array_interface__") and not isinstance(data, (int, float, complex)):
        if data.__array_interface__["typestr"][1:] in _NUMPY_TO_DTYPE:
            import numpy

            array = numpy.asarray(data)
            return from_numpy(array if all(s >= 0 for s in array.strides) else array.copy())
    return None


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A new tensor with a copy of data."""
    found = _infer(data)
    if found is not None:
        out = found.detach().clone() if dtype is None or dtype == found.dtype else found.detach().to(dtype)
    else:
        if isinstance(data, (list, tuple)):
            data = _plain(data)
        out = _C._from_data(data, dtype)
    if device is not None:
        out = out.to(device)
    return out.requires_grad_() if requires_grad else out


def _plain(data: Any) -> Any:
    """Nested sequences with arrays and tensors in them turned into plain lists."""
    if isinstance(data, (list, tuple)):
        return [_plain(x) for x in data] if any(not isinstance(x, (int, float)) for x in data) else data
    if isinstance(data, Tensor) and data.dim() > 0:
        return data.tolist()
    if hasattr(data, "tolist") and hasattr(data, "__array_interface__"):
        return data.tolist() if getattr(data, "shape", ()) else data
    if isinstance(data, (range,)) or (hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, (str, bytes, dict, Tensor))):
        return [_plain(x) for x in data]
    return data


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of data, sharing its memory when dtype and device allow."""
    found = _infer(data)
    if found is None:
        return tensor(data, dtype=dtype, device=device)
    if dtype is not None or device is not None:
        return found.to(device=device, dtype=dtype) if device is not None else found.to(dtype)
    return found


def index_tensor(data: Any) -> Tensor:
    """Lists, tuples and arrays used as an index."""
    found = as_tensor(data)
    return found.to(_C.int64) if found.numel() == 0 else found


def value_tensor(value: Any, like: Tensor) -> Tensor:
    """The right-hand side of an indexed assignment."""
    return as_tensor(value, dtype=like.dtype if not hasattr(value, "__array_interface__") else None)


def construct(cls: type, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor(...)`: the legacy constructor (sizes, a sequence, another tensor)."""
    import flambeau as fl

    kwargs.pop("device", None)
    if kwargs:
        raise TypeError(f"[Tensor] expected sizes or data, got keyword {next(iter(kwargs))!r}")
    if not args:
        made = fl.empty(0)
    elif len(args) == 1 and isinstance(args[0], Tensor):
        made = args[0].detach()
    elif len(args) == 1 and not isinstance(args[0], int):
        made = fl.empty(tuple(args[0])) if isinstance(args[0], fl.Size) else tensor(args[0], dtype=fl.get_default_dtype())
    else:
        made = fl.empty(args)
    return made if cls is Tensor else _C._make_subclass(cls, made)


def _method(fn: Any) -> Any:
    setattr(Tensor, fn.__name__, fn)
    return fn


@_method
def numpy(self: Tensor, *, force: bool = False) -> Any:
    """The tensor as a NumPy array over the same memory."""
    import numpy as np

    if force:
        self = self.detach().cpu()
    if self.requires_grad:
        raise RuntimeError("[numpy] expected a tensor that does not require grad, got one that does; use detach().numpy()")
    if self.device.type != "cpu":
        raise TypeError(f"[numpy] expected a CPU tensor, got one on {self.device}; use .cpu() first")
    kind = _DTYPE_TO_NUMPY.get(self.dtype)
    if kind is None:
        raise TypeError(f"[numpy] expected a dtype that NumPy has, got {self.dtype}")
    return np.asarray(_ArrayView(self, kind))


class _ArrayView:
    """Carries the array interface and keeps the tensor alive."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor, kind: str) -> None:
        self.tensor = tensor
        item = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": kind,
            "data": (tensor.data_ptr() or tensor._storage_address(), False),
            "strides": tuple(s * item for s in tensor.stride()),
        }
