"""What pickles of tensors and storages call when they are read. The names are PyTorch's, as checkpoints hold them."""

from __future__ import annotations

import flambeau
from flambeau._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def _rebuild_untyped_storage(data: bytes | None, size: int, device: str) -> Any:
    from flambeau.storage import UntypedStorage, storage_of

    if not data:
        return UntypedStorage(size, device=device)
    return storage_of(flambeau.frombuffer(bytearray(data), dtype=flambeau.uint8).clone().to(device))


def _rebuild_typed_storage(storage: Any, dtype: Any) -> Any:
    from flambeau.storage import TypedStorage

    return TypedStorage(wrap_storage=storage, dtype=dtype)


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over a typed storage."""
    tensor = flambeau.empty(0, dtype=storage.dtype, device=storage.device)
    return tensor.set_(storage.untyped(), storage_offset, size, stride)


def _metadata_of(tensor: Tensor) -> dict[str, bool]:
    """What a pickle notes of a tensor that is the conjugate or the negative of what its storage holds."""
    return {name: True for name, noted in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if noted}


def _as_noted(tensor: Tensor, metadata: Any) -> Tensor:
    """The tensor that `metadata` was written for, of one that shows what the storage holds."""
    flags = metadata if isinstance(metadata, dict) else {}
    if flags.get("conj") is True:
        tensor = tensor.conj()
    return flambeau._neg_view(tensor) if flags.get("neg") is True else tensor


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    tensor = _as_noted(_rebuild_tensor(storage, storage_offset, size, stride), metadata)
    if requires_grad:
        tensor.requires_grad_()
    if backward_hooks:
        tensor._backward_hooks = backward_hooks
    return tensor


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Tensor:
    tensor = flambeau.empty(0, dtype=dtype, device=storage.device).set_(storage, storage_offset, size, stride)
    tensor = _as_noted(tensor, metadata)
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    tensor = flambeau.empty_strided(size, stride, dtype=dtype, device="meta")
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Tensor:
    from flambeau.sparse import methods

    return methods.rebuild(layout, data)


def _rebuild_qtensor(
    storage: Any, storage_offset: int, size: Any, stride: Any, quantizer_params: Any, requires_grad: bool, hooks: Any
) -> Tensor:
    from flambeau.ao import quantized_tensor

    return quantized_tensor.rebuild(storage, storage_offset, size, stride, quantizer_params)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Tensor:
    return flambeau.nn.Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Tensor:
    return _set_obj_state(flambeau.nn.Parameter(data, requires_grad), state)


def _rebuild_wrapper_subclass(
    cls: Any, dtype: Any, size: Any, stride: Any, storage_offset: int, layout: Any, device: Any, requires_grad: bool
) -> Tensor:
    return Tensor._make_wrapper_subclass(
        cls,
        size,
        strides=stride,
        storage_offset=storage_offset,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
    )


def _set_obj_state(obj: Any, state: Any) -> Any:
    """Attributes of an object: a dict, or a pair of a dict and the values of slots."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in (attributes or {}).items():
        setattr(obj, name, value)
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


def _rebuild_from_type_v2(func: Any, new_type: type, args: Any, state: Any) -> Any:
    """A tensor of a subclass: made as a plain one, then given its class and attributes."""
    tensor = func(*args)
    if type(tensor) is not new_type:
        tensor = tensor.as_subclass(new_type)
    if getattr(tensor.__class__, "__setstate__", Tensor.__setstate__) is not Tensor.__setstate__:
        tensor.__setstate__(state)
        return tensor
    return _set_obj_state(tensor, state)


def use_torch_names() -> None:
    """Where the package is known as torch, plain pickles name these functions so that PyTorch finds them."""
    import sys

    if sys.modules.get("torch") is not flambeau or _rebuild_tensor_v2.__module__ == "torch._utils":
        return
    import importlib

    for module, functions in (
        ("_utils", (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_meta_tensor_no_storage)),
        ("_utils", (_rebuild_sparse_tensor,)),
        ("_utils", (_rebuild_parameter, _rebuild_parameter_with_state, _rebuild_wrapper_subclass)),
        ("_tensor", (_rebuild_from_type_v2,)),
    ):
        place = importlib.import_module(f"flambeau.{module}")
        for function in functions:
            setattr(place, function.__name__, function)
            function.__module__ = f"torch.{module}"


def _get_obj_state(obj: Any) -> Any:
    own: Any = type(obj).__getstate__
    if own is not object.__getstate__:
        return own(obj)
    slots = [name for cls in type(obj).__mro__ for name in getattr(cls, "__slots__", ()) if hasattr(obj, name)]
    attributes = getattr(obj, "__dict__", {})
    return (attributes, {name: getattr(obj, name) for name in slots}) if slots else attributes


def _find_function(module: str, name: str, method: bool) -> Any:
    """The function or method of the library that a pickle names; modules are named as in PyTorch."""
    if method:
        return getattr(Tensor, name)
    place: Any = flambeau
    for part in module.split(".")[1:]:
        place = getattr(place, part)
    return getattr(place, name)


class KeyErrorMessage(str):
    """A message whose repr, which KeyError prints, keeps its lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception on its way from another thread or process, with its traceback as text."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        import sys
        import traceback

        exc_info = sys.exc_info() if exc_info is None else exc_info
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self) -> None:
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            exception = self.exc_type(message)
        except Exception:  # a class that is not made from a message
            raise RuntimeError(message) from None
        raise exception


def _element_size(dtype: Any) -> int:
    """The bytes of one element."""
    if not isinstance(dtype, flambeau.dtype):
        raise RuntimeError(f"[_element_size] expected a dtype, got {type(dtype).__name__}: expected torch.dtype")
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """The elements of tensors of one dtype in one row."""
    return flambeau.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple[Tensor, ...]:
    """Views of a row, with the shapes of tensors."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors))


def _take_tensors(tensors: Any, size_limit: int) -> Iterator[list[Tensor]]:
    """Tensors in groups of one type whose bytes stay within a limit, each as soon as it is full, then the rest."""
    groups: dict[tuple[Any, Any, Any], list[Tensor]] = {}
    for tensor in tensors:
        kind = tensor.dtype, tensor.device.type, tensor.layout
        group = groups.setdefault(kind, [])
        if group and sum(t.nbytes for t in group) + tensor.nbytes > size_limit:
            yield group
            group = groups[kind] = []
        group.append(tensor)
    yield from groups.values()


def _get_available_device_type() -> str | None:
    """The type of the machine's accelerator, if it has one."""
    accelerator = flambeau.accelerator.current_accelerator()
    return None if accelerator is None else accelerator.type


def _get_device_module(device_type: str) -> Any:
    return flambeau.get_device_module(device_type)


def is_compiling() -> bool:
    """Whether the caller is being captured; the older name of `compiler.is_compiling`."""
    return flambeau.compiler.is_compiling()
