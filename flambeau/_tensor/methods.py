"""Tensor methods that are not operators: types, storage, copies and pickles, subclasses, and small queries."""

from __future__ import annotations

import flambeau as fl
from flambeau import _C
from flambeau._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _method(fn: Any) -> Any:
    setattr(Tensor, fn.__name__, fn)
    return fn


def _overridden(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    from flambeau.overrides import handle_torch_function

    return handle_torch_function(function, (self,), self, *args, **kwargs)


# ---------------------------------------------------------------------------------------------- types and devices


@_method
def type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The name of the tensor's type, or the tensor converted to one.

    >>> flambeau.ones(1).type()
    'torch.FloatTensor'
    >>> flambeau.ones(1).type(flambeau.int64)
    tensor([1])
    """
    from flambeau._tensor import legacy_types

    if dtype is None:
        return legacy_types.type_name(self)
    return self.to(legacy_types.dtype_of(dtype), non_blocking)


@_method
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    if not fl.cuda.is_available():
        raise AssertionError(
            "[cuda] expected a CUDA device, got a machine or build without one: `flambeau env` says what was looked for; "
            "write .to(device) with device = flambeau.accelerator.current_accelerator() or 'cpu' to run on either"
        )
    return self.to("cuda" if device is None else device, non_blocking=non_blocking, memory_format=memory_format)


@_method
def get_device(self: Tensor) -> int:
    return -1 if self.device.type in ("cpu", "meta") else self.device.index or 0


@_method
def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **ignored: Any
) -> Tensor:
    """A new tensor of data with this tensor's dtype and device unless others are given.

    >>> flambeau.ones(1, dtype=flambeau.float64).new_tensor([1, 2])
    tensor([1., 2.], dtype=torch.float64)
    """
    dtype = self.dtype if dtype is None else dtype
    return fl.tensor(data, dtype=dtype, device=self.device if device is None else device, requires_grad=requires_grad)


@_method
def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The legacy constructor with this tensor's dtype and device.

    >>> flambeau.ones(1).new([1, 2])
    tensor([1., 2.])
    """
    from flambeau._tensor import legacy_new

    kwargs.setdefault("device", self.device)
    if self.is_sparse and not args:
        return fl.sparse_coo_tensor((0,), dtype=self.dtype, **kwargs)
    if self.is_sparse and args and isinstance(args[0], Tensor):
        return fl.sparse_coo_tensor(*args, **kwargs)
    if len(args) == 1 and isinstance(args[0], Tensor) and args[0].dim() > 0 and args[0].dtype != self.dtype:
        raise TypeError(f"[new] expected a tensor of {self.dtype}, got {args[0].dtype}")
    return legacy_new(self.dtype, *args, **kwargs)


@_method
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    if fl.cuda.is_available():
        return fl._C._pin_memory(self)
    from flambeau.backends import pinned

    return pinned.pin(self, device)


@_method
def is_pinned(self: Tensor, device: Any = None) -> bool:
    if fl.cuda.is_available() or fl.accelerator.current_accelerator() is None:
        return fl._C._is_pinned(self)
    from flambeau.backends import pinned

    return pinned.is_pinned(self, device)


@_method
def is_shared(self: Tensor) -> bool:
    return self.untyped_storage().is_shared()


@_method
def share_memory_(self: Tensor) -> Tensor:
    self.untyped_storage().share_memory_()
    return self


@_method
def is_distributed(self: Tensor) -> bool:
    return False


_CONJUGATE, _NEGATIVE = 21, 22  # numbers of the dispatch keys that say so


@_method
def is_conj(self: Tensor) -> bool:
    return bool(_C._tensor_keys(self) >> _CONJUGATE & 1)


@_method
def is_neg(self: Tensor) -> bool:
    return bool(_C._tensor_keys(self) >> _NEGATIVE & 1)


def _needs(kind: str, error: Any, names: str) -> None:
    """Methods of tensors of another kind, which a strided tensor refuses with the error PyTorch has for it."""
    for name in names.split():

        def refuse(self: Tensor, *args: Any, _name: str = name, **kwargs: Any) -> Any:
            raise error(f"[{_name}] expected a {kind} tensor, got a strided one")

        refuse.__name__ = refuse.__qualname__ = name
        _method(refuse)


_needs("quantized", NotImplementedError, "int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points")
_needs("quantized", NotImplementedError, "q_scale q_zero_point qscheme")
_needs("nested", NotImplementedError, "to_padded_tensor")


def _of_sparse(error: Any, names: str) -> None:
    """Methods of sparse tensors, which a strided one refuses."""
    for name in names.split():

        def method(self: Tensor, *args: Any, _name: str = name, **kwargs: Any) -> Any:
            if self.layout is _C.strided:
                kind = {"crow_indices": "row compressed ", "col_indices": "row compressed ", "values": ""}.get(
                    _name, "coordinate "
                )
                kind = "column compressed " if _name in ("ccol_indices", "row_indices") else kind
                raise error(
                    f"[{_name}] expected a sparse tensor, got a strided one: {_name} expected sparse {kind}tensor layout but got Strided"
                )
            from flambeau.sparse import methods

            return getattr(methods, _name)(self, *args, **kwargs)

        method.__name__ = method.__qualname__ = name
        _method(method)


def _to_sparse(names: str) -> None:
    """Methods that lead from one layout to another."""
    for name in names.split():

        def method(self: Tensor, *args: Any, _name: str = name, **kwargs: Any) -> Any:
            from flambeau.sparse import methods

            return getattr(methods, _name)(self, *args, **kwargs)

        method.__name__ = method.__qualname__ = name
        _method(method)


_of_sparse(RuntimeError, "coalesce indices values is_coalesced col_indices crow_indices ccol_indices row_indices")
_of_sparse(
    NotImplementedError, "_coalesced_ _indices _nnz _values sparse_resize_ sparse_resize_and_clear_ resize_as_sparse_"
)
_to_sparse("to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc sparse_mask")


@_method
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    if self.layout is _C.strided:
        return self if dtype is None else self.to(dtype)
    from flambeau.sparse import methods

    return methods.to_dense(self, dtype)


@_method
def sparse_dim(self: Tensor) -> int:
    if self.layout is _C.strided:
        return 0
    from flambeau.sparse import methods

    return methods.sparse_dim(self)


@_method
def dense_dim(self: Tensor) -> int:
    if self.layout is _C.strided:
        return self.dim()
    from flambeau.sparse import methods

    return methods.dense_dim(self)


@_method
def chalf(self: Tensor, *, memory_format: Any = None) -> Tensor:
    return self.to(_C.complex32, memory_format=memory_format or _C.preserve_format)


@_method
def xpu(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    raise AssertionError("[xpu] expected an XPU device, got a machine or build without one")


@_method
def _fix_weakref(self: Tensor) -> None:
    """Weak references stay right by themselves: an object lives as long as its tensor."""


def _ambiguous(tensor: Tensor) -> str:
    return f"Boolean value of Tensor with {'more than one value' if tensor.numel() else 'no values'} is ambiguous"


@_method
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost.

    >>> flambeau.ones(2, 3).t().dim_order()
    (1, 0)
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(f, _C.memory_format) for f in formats):
        raise TypeError(
            f"[dim_order] expected ambiguity_check to be a bool or a list of memory formats, got {ambiguity_check!r}: The "
            "ambiguity_check argument must be a bool or a list of memory formats."
        )
    if self.layout != _C.strided:
        raise AttributeError(
            f"[dim_order] expected a strided tensor, got one of layout {self.layout}: it has no dim order"
        )
    fitting = [f for f in formats if self.is_contiguous(memory_format=f)]
    if len(fitting) == 1:
        return _format_order(self.dim(), fitting[0])
    strides = self.stride()
    order = tuple(sorted(range(self.dim()), key=lambda d: -strides[d]))
    if ambiguity_check and _has_several_orders(self):
        raise RuntimeError(
            f"[dim_order] expected strides that determine an order, got sizes {tuple(self.shape)} and strides {strides}: The tensor does "
            "not have unique dim order, or cannot map to exact one of the given memory formats."
        )
    return order


def _format_order(dimensions: int, memory_format: Any) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost, in a memory format."""
    if memory_format in (_C.channels_last, _C.channels_last_3d):
        return (0, *range(2, dimensions), 1)
    return tuple(range(dimensions))


def _has_several_orders(tensor: Tensor) -> bool:
    """Whether dimensions can change places without a change of the strides of what is kept."""
    sizes, strides = tensor.shape, tensor.stride()
    return any(size == 1 for size in sizes) or len(set(strides)) < len(strides)


def _removed(name: str, instead: str) -> Any:
    """A function that PyTorch keeps only to say what took its place."""

    def refuse(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"[{name}] expected a function that still exists, got a removed one: This function was deprecated since version 1.9 and is now removed. Use {instead} instead."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Removed; write `{instead}`.\n\n>>> callable(flambeau.{instead})\nTrue"
    return refuse


lstsq = _method(_removed("lstsq", "linalg.lstsq"))
symeig = _method(_removed("symeig", "linalg.eigh"))
eig = _method(_removed("eig", "linalg.eig"))
solve = _method(_removed("solve", "linalg.solve"))
matrix_rank = _removed("matrix_rank", "linalg.matrix_rank")


# ---------------------------------------------------------------------------------------------- storage


@_method
def untyped_storage(self: Tensor) -> Any:
    from flambeau.storage import storage_of

    return storage_of(self)


@_method
def _typed_storage(self: Tensor) -> Any:
    from flambeau.storage import TypedStorage, storage_of

    return TypedStorage(wrap_storage=storage_of(self), dtype=self.dtype, _internal=True)


@_method
def storage(self: Tensor) -> Any:
    from flambeau.storage import _warn_typed_storage_removal

    _warn_typed_storage_removal()
    return self._typed_storage()


@_method
def storage_type(self: Tensor) -> Any:
    from flambeau.storage import LEGACY_CLASSES

    return LEGACY_CLASSES[self._typed_storage().pickle_storage_type()]


@_method
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Make this tensor a window on the storage of a tensor or on a storage.

    >>> x = flambeau.zeros(2)
    >>> x.set_(flambeau.ones(3))
    tensor([1., 1., 1.])
    """
    from flambeau.storage import TypedStorage, UntypedStorage

    if source is None:
        source = fl.empty(0, dtype=self.dtype, device=self.device)
    if isinstance(source, Tensor):
        if source.dtype != self.dtype:
            raise RuntimeError(f"[set_] expected a source of dtype {self.dtype}, got {source.dtype}")
        if size is None:
            storage_offset, size, stride = source.storage_offset(), source.shape, source.stride()
    elif isinstance(source, (TypedStorage, UntypedStorage)):
        if isinstance(source, TypedStorage) and source.dtype != self.dtype:
            raise RuntimeError(
                f"[set_] expected a storage of dtype {self.dtype}, got {source.dtype}: Expected a Storage of type {self.dtype}"
            )
        untyped = source.untyped()
        if size is None:
            size = (untyped.nbytes() // self.element_size(),)
        source = untyped._view()
    else:
        raise TypeError(f"[set_] expected a tensor or a storage, got {source.__class__.__name__}")
    if stride is None:
        stride = fl.empty(size, device="meta").stride()
    result = fl._ops._set_storage_(self, source, storage_offset, tuple(size), tuple(stride))
    self._forget_accumulator()
    return result


@_method
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same window on the same storage.

    >>> x = flambeau.ones(2)
    >>> x.is_set_to(x.view(2)), x.is_set_to(x.clone())
    (True, False)
    """
    same = self._storage_id() == tensor._storage_id() and self.storage_offset() == tensor.storage_offset()
    return same and self.shape == tensor.shape and self.stride() == tensor.stride()


@_method
def is_same_size(self: Tensor, other: Tensor) -> bool:
    return self.shape == other.shape


@_method
def resize(self: Tensor, *sizes: Any) -> Tensor:
    """The tensor with other sizes of as many elements.

    >>> flambeau.arange(4).resize(2, 2)
    tensor([[0, 1],
            [2, 3]])
    """
    return self.reshape(*sizes)


@_method
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """The tensor with the sizes of another of as many elements.

    >>> flambeau.arange(4).resize_as(flambeau.zeros(2, 2)).shape
    torch.Size([2, 2])
    """
    return self.reshape(tensor.shape)


# ---------------------------------------------------------------------------------------------- element by element


def _assign(self: Tensor, values: list[Any]) -> Tensor:
    return self.copy_(fl.tensor(values, dtype=self.dtype).reshape(self.shape))


def _needs_cpu(name: str, self: Tensor) -> None:
    if self.device.type != "cpu":
        raise TypeError(f"[{name}] expected a CPU tensor, got one on {self.device}")


def _needs_plain(name: str, self: Tensor, *others: Tensor) -> None:
    _needs_cpu(name, self)
    if any(t.requires_grad for t in (self, *others)):
        raise RuntimeError(
            f"[{name}] expected tensors without gradient, got one that requires grad: Can't call {name}() on a Variable that requires grad"
        )


@_method
def apply_(self: Tensor, callable: Any, /) -> Tensor:
    """Replace each element by what a Python function makes of it.

    >>> flambeau.tensor([1.0, 2.0]).apply_(lambda x: x * x)
    tensor([1., 4.])
    """
    _needs_plain("apply_", self)
    return _assign(self, [callable(x) for x in self.flatten().tolist()])


@_method
def map_(self: Tensor, tensor: Tensor, callable: Any, /) -> Tensor:
    _needs_plain("map_", self, tensor)
    pairs = zip(self.flatten().tolist(), tensor.expand_as(self).flatten().tolist(), strict=True)
    return _assign(self, [callable(x, y) for x, y in pairs])


@_method
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any, /) -> Tensor:
    _needs_plain("map2_", self, x, y)
    columns = (t.expand_as(self).flatten().tolist() for t in (self, x, y))
    return _assign(self, [callable(*row) for row in zip(*columns, strict=True)])


# ---------------------------------------------------------------------------------------------- copies and pickles


@_method
def __deepcopy__(self: Tensor, memo: dict[Any, Any]) -> Tensor:
    """A copy whose storage is copied once for all tensors that share it."""
    if _C._has_torch_function_unary(self):
        return _overridden(Tensor.__deepcopy__, self, memo)
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError(
            "[deepcopy] expected a tensor made by the user, got a result that requires grad; detach() it first"
        )
    from copy import deepcopy

    if self.layout is not _C.strided:
        copy = self.detach().clone()
    else:
        storage = self.untyped_storage().__deepcopy__(memo)
        copy = fl.empty(0, dtype=self.dtype, device=self.device).set_(
            storage, self.storage_offset(), self.shape, self.stride()
        )
        if self.is_conj() or self.is_neg():
            from flambeau import _utils

            copy = _utils._as_noted(copy, _utils._metadata_of(self))
    if self.__class__ is not Tensor:
        copy = copy.as_subclass(self.__class__)
    if self.requires_grad:
        copy.requires_grad_()
    if self.grad is not None:
        copy.grad = self.grad.__deepcopy__(memo)
    memo[id(self)] = copy
    for name, value in self.__dict__.items():
        setattr(copy, name, deepcopy(value, memo))
    return copy


@_method
def __reduce_ex__(self: Tensor, protocol: Any) -> Any:
    if (
        _C._has_torch_function_unary(self)
        and self.__class__.__torch_function__.__func__ is not __torch_function__.__func__
    ):
        return _overridden(Tensor.__reduce_ex__, self, protocol)
    from flambeau import _utils

    _utils.use_torch_names()
    function, args = self._reduce_ex_internal(protocol)
    state = _utils._get_obj_state(self)
    if self.__class__ is Tensor and not state:
        return (function, args)
    return (_utils._rebuild_from_type_v2, (function, self.__class__, args, state))


@_method
def _reduce_ex_internal(self: Tensor, protocol: Any) -> Any:
    from collections import OrderedDict

    from flambeau import _utils

    if self.layout is not _C.strided:
        from flambeau.sparse import methods

        return (_utils._rebuild_sparse_tensor, (self.layout, methods.data_of(self)))
    if self.is_meta:
        return (
            _utils._rebuild_meta_tensor_no_storage,
            (self.dtype, tuple(self.shape), self.stride(), self.requires_grad),
        )
    hooks = getattr(self, "_backward_hooks", None) or OrderedDict()
    from flambeau.storage import STORAGE_NAMES

    if self.dtype not in STORAGE_NAMES:  # no typed storage: the dtype is written beside the bytes
        where = (self.untyped_storage(), self.storage_offset(), tuple(self.shape), self.stride())
        metadata = _utils._metadata_of(self)
        return (_utils._rebuild_tensor_v3, (*where, self.requires_grad, hooks, self.dtype, metadata))
    args = (self._typed_storage(), self.storage_offset(), tuple(self.shape), self.stride(), self.requires_grad, hooks)
    metadata = _utils._metadata_of(self)
    return (_utils._rebuild_tensor_v2, (*args, metadata) if metadata else args)


@_method
def __setstate__(self: Tensor, state: Any) -> None:
    self.__dict__.update(state)


# ---------------------------------------------------------------------------------------------- subclasses


@_method
def as_subclass(self: Tensor, cls: Any) -> Any:
    """The same data as an object of a subclass, with the same history.

    >>> type(flambeau.ones(1).as_subclass(flambeau.nn.Parameter)).__name__
    'Parameter'
    """
    return _C._as_subclass(self, cls)


setattr(Tensor, "_make_subclass", staticmethod(_C._make_subclass))  # noqa: B010


def _default_torch_function(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    from flambeau.overrides import default_torch_function

    return default_torch_function(cls, func, types, args, kwargs)


__torch_function__ = classmethod(_default_torch_function)
setattr(Tensor, "__torch_function__", __torch_function__)  # noqa: B010


def _init_subclass(cls: Any, **kwargs: Any) -> None:
    """A class that handles operators gets results as its handler returns them: functions are not overridden too, unless
    the class says so itself."""
    super(Tensor, cls).__init_subclass__(**kwargs)
    if "__torch_dispatch__" in cls.__dict__ and "__torch_function__" not in cls.__dict__:
        cls.__torch_function__ = _C._disabled_torch_function_impl


setattr(Tensor, "__init_subclass__", classmethod(_init_subclass))  # type: ignore[arg-type]  # noqa: B010


# ---------------------------------------------------------------------------------------------- odds and ends


@_method
def __array_namespace__(self: Tensor, *, api_version: str | None = None) -> Any:
    """The module with the functions of the array API standard."""
    from flambeau import array_api

    if api_version not in (None, "2021.12", "2022.12", "2023.12", array_api.__array_api_version__):
        raise ValueError(f"[__array_namespace__] expected a version up to 2024.12, got {api_version!r}")
    return array_api


@_method
def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on another device, as the array API standard names it.

    >>> flambeau.ones(1).to_device("cpu")
    tensor([1.])
    """
    return self.to(device)


@_method
def to_torch(self: Tensor) -> Any:
    """A tensor of PyTorch over the memory of this one; its history stays behind.

    >>> flambeau.ones(2).to_torch()
    tensor([1., 1.])
    """
    from flambeau._tensor import beside_torch

    return beside_torch.to_torch(self)


Tensor.is_maia = property(lambda self: False, doc="Whether the elements are on an MAIA device; always False here.")
Tensor.is_mtia = property(lambda self: False, doc="Whether the elements are on an MTIA device; always False here.")
Tensor.is_hpu = property(lambda self: False, doc="Whether the elements are on an HPU device; always False here.")
Tensor._base = getattr(Tensor, "_base", property(lambda self: None))
Tensor.__div__ = Tensor.__truediv__  # type: ignore[method-assign]
Tensor.__idiv__ = Tensor.__itruediv__  # type: ignore[method-assign]
Tensor.__long__ = Tensor.__int__  # type: ignore[method-assign]
Tensor.__nonzero__ = Tensor.__bool__  # type: ignore[method-assign]


@_method
def record_stream(self: Tensor, stream: Any) -> None:
    """Keeps memory for the work of another stream; on the CPU there is nothing to wait for."""
    if self.device.type in ("cpu", "meta"):
        raise NotImplementedError("[record_stream] expected a tensor on an accelerator, got one on the CPU")
    if self.is_cuda:
        fl.cuda._library.call("record_stream", self.untyped_storage().data_ptr(), self.get_device(), stream.cuda_stream)


@_method
def dequantize(self: Tensor) -> Tensor:
    """The values of a quantized tensor in float32.

    >>> x = flambeau.quantize_per_tensor(flambeau.tensor([0.1, 1.0]), 0.5, 0, flambeau.quint8)
    >>> x.dequantize()
    tensor([0., 1.])
    """
    return self.float()


@_method
def __rdiv__(self: Tensor, other: Any) -> Tensor:
    return self.reciprocal() * other


@_method
def __complex__(self: Tensor) -> complex:
    return complex(self.item())


@_method
def is_nonzero(self: Tensor) -> bool:
    if self.numel() != 1:
        raise RuntimeError(f"[is_nonzero] expected one element, got shape {tuple(self.shape)}: {_ambiguous(self)}")
    return bool(self.item())


@_method
def __dir__(self: Tensor) -> list[str]:
    """The public and special names. Without the private ones they are few enough for Python to suggest some."""
    private = {name for name in vars(Tensor) if name.startswith("_") and not name.startswith("__")}
    return sorted({*dir(self.__class__), *self.__dict__} - private)


@_method
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` puts in place of this tensor.

    >>> flambeau.zeros(2).module_load(flambeau.ones(2))
    tensor([1., 1.])
    """
    return other if assign else self.copy_(other).detach()


# ---------------------------------------------------------------------------------------------- __torch_function__

# About the object rather than its values, or asking by themselves.
_NOT_OVERRIDABLE = frozenset(
    "__new__ __init__ __init_subclass__ __class_getitem__ __torch_function__ __torch_dispatch__ __repr__ __format__ "
    "__dir__ __iter__ "
    "__reduce_ex__ __setstate__ __deepcopy__ _reduce_ex_internal as_subclass".split()
)


_FUNCTION = _method.__class__


def make_overridable() -> None:
    """Let subclasses and modes see the methods and attributes written in Python, as they see the native ones."""
    for name, value in list(vars(Tensor).items()):
        if name in _NOT_OVERRIDABLE:
            continue
        if isinstance(value, property):
            setattr(Tensor, name, _C._overridable_property(name, value))
        elif isinstance(value, _FUNCTION):
            setattr(Tensor, name, _C._overridable(value, True))
