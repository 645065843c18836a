"""The Python half of Tensor: construction from data, NumPy, printing, copying, and methods that are not operators."""

from __future__ import annotations

import warnings

from flambeau import _C
from flambeau._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "from_dlpack", "is_tensor"]


def is_tensor(obj: Any, /) -> bool:
    """Whether an object is a tensor.

    >>> flambeau.is_tensor(flambeau.ones(1)), flambeau.is_tensor(1.0)
    (True, False)
    """
    return isinstance(obj, Tensor)


# ---------------------------------------------------------------------------------------------- from data

_NUMPY_TO_DTYPE = {
    "b1": _C.bool, "u1": _C.uint8, "i1": _C.int8, "i2": _C.int16, "i4": _C.int32, "i8": _C.int64,
    "u2": _C.uint16, "u4": _C.uint32, "u8": _C.uint64,
    "f2": _C.float16, "f4": _C.float32, "f8": _C.float64, "c8": _C.complex64, "c16": _C.complex128,
}  # fmt: skip


def from_numpy(array: Any, /) -> Tensor:
    """A tensor over the memory of a NumPy array.

    >>> import numpy
    >>> a = numpy.zeros(2)
    >>> x = flambeau.from_numpy(a)
    >>> a[0] = 1
    >>> x
    tensor([1., 0.], dtype=torch.float64)
    """
    is_array = hasattr(type(array), "__setitem__")  # a scalar of NumPy has all else, and never changes
    if is_array and type(array).__module__ == "numpy":
        tensor = _C._from_array(array)
        if tensor is not None:
            return tensor
    interface = getattr(array, "__array_interface__", None)
    if interface is None or not hasattr(array, "strides") or not is_array:
        raise TypeError(f"[from_numpy] expected a NumPy array, got {type(array).__name__}")
    kind = interface["typestr"]
    dtype = _NUMPY_TO_DTYPE.get(kind[1:])
    if dtype is None:
        raise TypeError(f"[from_numpy] expected a numeric or bool array, got dtype {array.dtype}")
    if kind[0] == ">":
        raise ValueError(f"[from_numpy] expected an array in native byte order, got dtype {array.dtype}")
    item = dtype.itemsize
    strides = array.strides
    if any(s < 0 for s in strides):
        raise ValueError("[from_numpy] expected strides that are not negative, got a reversed array; copy() it first")
    if any(s % item for s in strides):
        raise ValueError("[from_numpy] expected strides that are multiples of the element size, got a structured array")
    return _C._from_pointer(array, interface["data"][0], array.shape, [s // item for s in strides], dtype)


def _shared(data: Any) -> Tensor | None:
    """A tensor over the memory of array-like data, or None when data is plain Python."""
    if isinstance(data, Tensor):
        return data
    if type(data).__module__ == "flambeau.storage":
        return data._view()
    if isinstance(data, (list, tuple, int, float, complex)) and not hasattr(data, "__array_interface__"):
        return None
    # Asking the class first: arrays make their description anew each time.
    if hasattr(type(data), "__array_interface__") or hasattr(data, "__array_interface__"):
        import numpy

        array = numpy.asarray(data)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("="))
        writable = getattr(array, "flags", None) is None or array.flags.writeable or not array.size
        item = array.itemsize
        usable = writable and all(s >= 0 and s % item == 0 for s in array.strides)
        return from_numpy(array if usable else array.copy())
    if hasattr(data, "__dlpack__"):
        return from_dlpack(data)
    if hasattr(data, "__array__"):
        import numpy

        return from_numpy(numpy.asarray(data))
    return None


def _from_python(data: Any, dtype: Any) -> Tensor:
    """A new CPU tensor from numbers and nested sequences, which may hold arrays and tensors."""
    if data is None or isinstance(data, dict):
        raise RuntimeError(f"[tensor] expected data with a dtype, got {type(data).__name__}")
    if isinstance(data, (list, tuple)):
        element_dtype = _element_dtype(data)
        dtype = element_dtype if dtype is None else dtype
    if dtype is _C.uint64:
        return _from_unsigned(data)
    try:
        return _C._from_data(data, dtype)
    except (TypeError, ValueError, RuntimeError):
        plain = _plain(data)
        if plain is data:
            raise
        return _C._from_data(plain, dtype)


def _from_unsigned(data: Any) -> Tensor:
    """uint64 from integers, of which those beyond int64 pass as the negative numbers with the same bits."""

    def wrapped(item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return [wrapped(x) for x in item]
        return item - 2**64 if isinstance(item, int) and 2**63 <= item < 2**64 else item

    return _C._from_data(wrapped(_plain(data)), _C.uint64)


def _element_dtype(data: Any) -> Any:
    """The dtype of the arrays, NumPy numbers or tensors that a sequence starts with; None for Python's own numbers."""
    first = data
    depth = 0
    while isinstance(first, (list, tuple)):
        if not first:
            return None
        first = first[0]
        depth += 1
        if depth > 64:  # which a list that holds itself reaches too
            raise ValueError("[tensor] expected at most 64 dimensions, got deeper nesting")
    if type(first) in (int, float, bool, complex):
        return None
    if isinstance(first, Tensor):
        return _common_dtype(data)
    interface = getattr(first, "__array_interface__", None)
    return _NUMPY_TO_DTYPE.get(interface["typestr"][1:]) if interface is not None else None


def _common_dtype(data: Any) -> Any:
    """Promotion over a nested sequence of tensors and numbers."""
    common = None
    for item in data:
        if isinstance(item, (list, tuple)):
            dtype = _common_dtype(item)
        elif isinstance(item, Tensor):
            dtype = item.dtype
        else:
            dtype = _C._from_data(item, None).dtype
        if dtype is not None:
            common = dtype if common is None else _C.promote_types(common, dtype)
    return common


_DEEPEST_LIST = 128  # of nested sequences, which is how one that contains itself is recognized


def _plain(data: Any, depth: int = 0) -> Any:
    """Nested sequences with arrays and ranges in them turned into plain lists."""
    if isinstance(data, (list, tuple)):
        if depth > _DEEPEST_LIST:
            raise TypeError(
                f"[tensor] expected at most {_DEEPEST_LIST} nested sequences, got more: too many dimensions; self-referential lists "
                "are incompatible with tensors"
            )
        return [_plain(x, depth + 1) for x in data]
    if isinstance(data, (str, bytes, dict, Tensor)):
        return data
    if hasattr(data, "tolist") and hasattr(data, "__array_interface__"):
        return data.tolist()
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return [_plain(data[i], depth + 1) for i in range(len(data))]
    return data


def _of_storage(storage: Any, dtype: Any) -> Tensor:
    """The elements of a storage: of its own type, or bytes read as those of the dtype that is asked for."""
    own = getattr(storage, "dtype", None)
    if own is not None and dtype is not None and own != dtype:
        raise RuntimeError(
            f"[tensor] expected a storage of {dtype}, got one of {own}: Expected a Storage of type {dtype} or an UntypedStorage, but got "
            f"type {own} for argument 1 'storage'"
        )
    dtype = dtype or own or _C.get_default_dtype()
    return _package.empty(0, dtype=dtype, device=storage.device).set_(storage if own is None else storage.untyped())


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor with a copy of data.

    >>> flambeau.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    >>> flambeau.tensor(0.5, dtype=flambeau.float64)
    tensor(0.5000, dtype=torch.float64)
    """
    if isinstance(data, Tensor):
        warnings.warn(
            "[tensor] expected data, got a tensor: write data.clone(), or data.detach().clone() to leave its history",
            stacklevel=2,
        )
    shared = _of_storage(data, dtype) if type(data).__module__ == "flambeau.storage" else _shared(data)
    if shared is not None:
        device = device if device is not None or data is not shared else shared.device
        out = shared.detach().to(dtype=dtype, copy=True) if dtype is not None else shared.detach().clone()
    else:
        out = _from_python(data, dtype)
    device = device if device is not None else _C._get_default_device()
    if device is not None:
        out = out.to(device)
    return out.requires_grad_() if requires_grad else out


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of data, sharing its memory when dtype and device allow.

    >>> x = flambeau.tensor([1, 2])
    >>> flambeau.as_tensor(x) is x, flambeau.as_tensor([0.5, 1.5])
    (True, tensor([0.5000, 1.5000]))
    """
    shared = _shared(data)
    if shared is None:
        return tensor(data, dtype=dtype, device=device)
    if device is None and data is not shared:
        device = _C._get_default_device()
    return shared.to(device=device, dtype=dtype)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of an object: an array, a buffer or a sequence; shares its memory where it can unless copy=True.

    >>> flambeau.asarray([1, 2], dtype=flambeau.float64)
    tensor([1., 2.], dtype=torch.float64)
    """
    shared = _shared(obj)
    if type(obj).__name__ == "PyCapsule":
        shared = _C._from_dlpack(obj)
    if shared is None and not isinstance(obj, (list, tuple, int, float, complex)):
        try:
            shared = frombuffer(obj, dtype=dtype or _C.get_default_dtype())
        except (TypeError, BufferError, NotABuffer):
            shared = None
    if shared is None:
        if copy is False:
            raise ValueError(
                f"[asarray] expected an object that can be shared, got {type(obj).__name__} with copy=False"
            )
        out = tensor(obj, dtype=dtype, device=device)
    else:
        out = shared.to(device=device, dtype=dtype)
        shares = out.untyped_storage().data_ptr() == shared.untyped_storage().data_ptr()
        if copy is False and not shares:
            raise ValueError("[asarray] expected dtype and device of the object itself with copy=False, got others")
        if copy and shares:
            out = out.clone()
    if requires_grad and not out.requires_grad:
        out = out.detach().requires_grad_()
    return out


class NotABuffer(ValueError):
    """An object without the buffer protocol, where one with it is needed."""


def _warn_readonly() -> None:
    import warnings

    warnings.warn(
        "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can write to the "
        "underlying (supposedly non-writable) buffer using the tensor. You may want to copy the buffer to protect its data or "
        "make it writable before converting it to a tensor.",
        stacklevel=3,
    )


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor over the memory of an object with the buffer protocol.

    >>> flambeau.frombuffer(bytearray(b"\\x01\\x02"), dtype=flambeau.uint8)
    tensor([1, 2], dtype=torch.uint8)
    """
    try:
        view = memoryview(buffer)
    except TypeError:
        raise NotABuffer(
            f"[frombuffer] expected an object with the buffer protocol, got {type(buffer).__name__}: object does not implement "
            "Python buffer protocol."
        ) from None
    if view.readonly:
        _warn_readonly()
    view = view.cast("B")
    item = dtype.itemsize
    length = len(view)
    if length == 0:
        raise ValueError(
            f"[frombuffer] expected a buffer that is not empty, got 0 bytes: both buffer length (0) and count ({count}) must not "
            "be 0"
        )
    if count == 0 or count < -1:
        raise ValueError(
            f"[frombuffer] expected a positive count or -1, got {count}: both buffer length ({length}) and count ({count}) must "
            "not be 0"
        )
    if not 0 <= offset < length:
        raise ValueError(
            f"[frombuffer] expected an offset in [0, {length - 1}], got {offset}: offset ({offset} bytes) must be non-negative and "
            f"no greater than buffer length ({length} bytes) minus 1"
        )
    if count == -1:
        if (length - offset) % item:
            raise ValueError(
                f"[frombuffer] expected a multiple of {item} bytes after the offset, got {length - offset}: buffer length "
                f"({length - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({item})"
            )
        count = (length - offset) // item
    if offset + count * item > length:
        raise ValueError(
            f"[frombuffer] expected {offset + count * item} bytes, got a buffer of {length}: requested buffer length ({count} * "
            f"{item} bytes) after offset ({offset} bytes) must not be greater than actual buffer length ({length} bytes)"
        )
    if count == 0:
        raise ValueError(f"[frombuffer] expected room for an element of {item} bytes, got {length - offset}")
    address, owner = _C._buffer_address(buffer)
    out = _C._from_pointer(owner, address + offset, (count,), (1,), dtype)
    return out.requires_grad_() if requires_grad else out


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array, or of a DLPack capsule.

    >>> import numpy
    >>> flambeau.from_dlpack(numpy.arange(3))
    tensor([0, 1, 2])
    """
    capsule = _capsule_of(ext_tensor) if hasattr(ext_tensor, "__dlpack__") else ext_tensor
    if type(capsule).__name__ != "PyCapsule":
        raise RuntimeError(
            f"[from_dlpack] expected an array with __dlpack__ or a capsule, got {type(capsule).__name__}"
        )
    out = _C._from_dlpack(capsule)
    if device is not None:
        out = out.to(device)
    return out.clone() if copy else out


def _capsule_of(array: Any) -> Any:
    kind, index = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else (_DLPACK_CPU, 0)
    if kind != _DLPACK_CUDA:
        return array.__dlpack__()
    import flambeau as fl

    return array.__dlpack__(stream=fl.cuda.current_stream(int(index)).cuda_stream or 1)  # 1 is the default one


def index_tensor(data: Any) -> Tensor:
    """Lists, tuples and arrays used as an index: masks stay masks, anything else is a list of positions."""
    if isinstance(data, str):
        raise TypeError(f"[index] expected integers, slices, None, Ellipsis, tensors, arrays or lists, got {data!r}")
    index = as_tensor(data)
    return index if index.dtype in (_C.bool, _C.uint8) and index.numel() > 0 else index.to(_C.int64)


def construct(cls: type, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor(...)`: the legacy constructor (sizes, a sequence, another tensor)."""
    tensor = legacy_new(_C.get_default_dtype(), *args, **kwargs)
    return tensor if cls is Tensor else _C._make_subclass(cls, tensor)


def legacy_new(dtype: Any, *args: Any, device: Any = None, size: Any = None, data: Any = None) -> Tensor:
    """What the typed constructors share: nothing, sizes, a Size, a storage, a sequence or another tensor."""
    import flambeau as fl

    if size is not None:
        args = (size if isinstance(size, fl.Size) else fl.Size(size),)
    elif data is not None:
        args = (data,)
    if not args:
        return fl.empty(0, dtype=dtype, device=device)
    first = args[0]
    if len(args) == 1 and isinstance(first, Tensor) and (first.dim() > 0 or first.is_floating_point()):
        return first.detach()
    if len(args) == 1 and isinstance(first, fl.Size):
        return fl.empty(tuple(first), dtype=dtype, device=device)
    if len(args) == 1 and type(first).__name__.endswith("Storage"):
        return fl.empty(0, dtype=dtype).set_(first)
    if len(args) == 1 and (not hasattr(first, "__index__") or getattr(first, "ndim", False)):
        if not hasattr(first, "__len__"):
            raise TypeError(f"[Tensor] expected sizes, a sequence or a tensor, got {type(first).__name__}")
        return tensor(first, dtype=dtype, device=device)
    return fl.empty(args, dtype=dtype, device=device)


# ---------------------------------------------------------------------------------------------- methods


def _method(fn: Any) -> Any:
    setattr(Tensor, fn.__name__, fn)
    return fn


_numpy_api: tuple[Any, Any] | None = None  # NumPy's table of functions for extensions, and its array type


@_method
def numpy(self: Tensor, *, force: bool = False) -> Any:
    """The tensor as a NumPy array over the same memory.

    >>> flambeau.arange(3).numpy()
    array([0, 1, 2])
    """
    global _numpy_api
    if _numpy_api is None:
        import numpy as np

        core = np._core if hasattr(np, "_core") else np.core
        _numpy_api = (core.multiarray._ARRAY_API, np.ndarray)
    if force:
        self = self.detach().cpu()
    if self.requires_grad and _C.is_grad_enabled():
        raise RuntimeError(
            "[numpy] expected a tensor that does not require grad, got one that does: Can't call numpy() on Tensor that requires "
            "grad. Use tensor.detach().numpy() instead."
        )
    if not self.is_cpu:
        raise TypeError(f"[numpy] expected a CPU tensor, got one on {self.device}; use .cpu() first")
    return _C._to_array(self, *_numpy_api)


@_method
def __array__(self: Tensor, dtype: Any = None, copy: Any = None) -> Any:
    array = self.numpy()
    return array if dtype is None else array.astype(dtype, copy=False)


@_method
def __array_wrap__(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    if array.dtype == bool:
        array = array.astype("uint8")
    return as_tensor(array)


Tensor.__array_priority__ = 1000


_DLPACK_CPU, _DLPACK_CUDA = 1, 2


@_method
def __dlpack__(
    self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
) -> Any:
    """A capsule; on CUDA `stream`, by its handle, is made to wait for what this thread's stream has to do (-1: none is)."""
    if self.requires_grad:
        raise BufferError("[dlpack] expected a tensor that does not require grad, got one that does; use detach()")
    if self.is_conj() or self.is_neg():
        raise BufferError(
            "[dlpack] expected a tensor whose memory holds its elements, got one that is conjugated or negated when it is "
            "read: Can't export tensors with the conjugate bit set; use resolve_conj() and resolve_neg()"
        )
    if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
        if tuple(dl_device) != (_DLPACK_CPU, 0) or copy is False:
            raise BufferError(f"[dlpack] expected the tensor's device or a copy on the CPU, got {tuple(dl_device)}")
        return _C._to_dlpack(self.cpu())
    exported = self.clone() if copy else self
    if self.is_cuda and stream != -1:
        import flambeau as fl

        here = fl.cuda.current_stream(self.device)
        there = fl.cuda.ExternalStream(0 if stream in (None, 1) else stream, self.device)
        if there != here:
            there.wait_stream(here)
    return _C._to_dlpack(exported)


@_method
def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    if self.is_meta:
        raise ValueError(f"[dlpack] expected a tensor with memory, got one on {self.device}")
    return _C._dlpack_device(self)


def _cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """The tensor's memory, as Numba and CuPy ask for it."""
    if not self.is_cuda:  # hasattr() tells whether there is one
        raise AttributeError(f"[__cuda_array_interface__] expected a CUDA tensor, got one on {self.device}")
    if self.requires_grad:
        raise RuntimeError("[__cuda_array_interface__] expected a tensor without grad, got one with; use detach()")
    kinds = {dtype: kind for kind, dtype in _NUMPY_TO_DTYPE.items()}
    if self.dtype not in kinds:
        raise TypeError(f"[__cuda_array_interface__] expected a dtype that NumPy has, got {self.dtype}")
    size = self.element_size()
    return {
        "typestr": ("|" if size == 1 else "<") + kinds[self.dtype],
        "shape": tuple(self.shape),
        "strides": None if self.is_contiguous() else tuple(s * size for s in self.stride()),
        "data": (self.data_ptr() if self.numel() else 0, False),
        "version": 2,
    }


Tensor.__cuda_array_interface__ = property(_cuda_array_interface)


@_method
def __repr__(self: Tensor, *, tensor_contents: Any = None) -> str:
    from flambeau._tensor import printing

    if _C._has_torch_function_unary(self):
        from flambeau.overrides import handle_torch_function

        return handle_torch_function(Tensor.__repr__, (self,), self, tensor_contents=tensor_contents)
    return printing._str(self, tensor_contents=tensor_contents)


@_method
def __format__(self: Tensor, spec: str) -> str:
    if self.dim() == 0 and not self.is_meta and type(self) is Tensor:
        return self.item().__format__(spec)
    return object.__format__(self, spec)


@_method
def __iter__(self: Tensor) -> Any:
    if self.dim() == 0:
        raise TypeError("[iter] expected a tensor with at least one dimension, got a 0-d tensor")
    return iter(self.unbind(0))


@_method
def __reversed__(self: Tensor) -> Tensor:
    return self if self.dim() == 0 else self.flip(0)


@_method
def __contains__(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, int, float, complex)):
        raise RuntimeError(
            f"[contains] expected a tensor or a number, got {type(element).__name__}: Tensor.__contains__ only supports Tensor or scalar, "
            f"but you passed in a {type(element)}."
        )
    return bool((self == element).any())


# Attributes that are views.
import flambeau as _package  # noqa: E402

for _name in ("T", "mT", "H", "mH"):
    setattr(Tensor, _name, property(getattr(_package._ops, "_numpy_T" if _name == "T" else f"_{_name}")))


def _settable(part: Any) -> property:
    """A view of the parts of complex numbers, as an attribute."""
    return property(part, lambda self, value: part(self).copy_(as_tensor(value)))


setattr(Tensor, "real", _settable(_package.real))  # noqa: B010
setattr(Tensor, "imag", _settable(_package.imag))  # noqa: B010
