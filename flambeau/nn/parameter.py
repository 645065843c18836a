"""Tensors that belong to a module: parameters, buffers, and those whose shape is not known yet."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import flambeau as fl
from flambeau import _C, _utils
from flambeau._C import Tensor
from flambeau._tensor import beside_torch
from flambeau.overrides import DisableTorchFunctionSubclass

__all__ = [
    "Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer", "UninitializedTensorMixin", "is_lazy",
]  # fmt: skip


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """Tensors of other subclasses count as parameters when they carry the mark `_is_param`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers as its parameter when it is assigned as an attribute.

    - data: the tensor, whose memory it shares; requires_grad: whether it is trained.

    >>> layer = nn.Module()
    >>> layer.scale = nn.Parameter(flambeau.ones(2))
    >>> [name for name, _ in layer.named_parameters()]
    ['scale']
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = fl.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return _C._make_subclass(cls, data, requires_grad)
        if not isinstance(data, Tensor):
            raise TypeError(f"[Parameter] expected data to be a Tensor or None, got {beside_torch.named(data)}")
        parameter = data.detach().requires_grad_(requires_grad)
        if type(parameter) is not type(data):
            raise RuntimeError(
                f"[Parameter] expected detach() of {type(data).__name__} to keep the class, got {type(parameter).__name__}"
            )
        parameter._is_param = True
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copy = type(self)(self.data.clone(memory_format=fl.preserve_format), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        _utils.use_torch_names()
        state = _utils._get_obj_state(self)
        rest: tuple[Any, ...] = (self.data, self.requires_grad, OrderedDict())
        if not state:
            return _utils._rebuild_parameter, rest
        return _utils._rebuild_parameter_with_state, (*rest, state)

    __torch_function__ = _C._disabled_torch_function_impl


if Tensor.__module__ == "torch":  # under the alias, both classes say where programs know them from
    Parameter.__module__ = "torch.nn.parameter"


class UninitializedTensorMixin:
    """A tensor whose shape is decided by the first call of its lazy module."""

    _allowed = frozenset(
        "_is_param __reduce_ex__ __reduce__ __class__ __dict__ __deepcopy__ __repr__ __hash__ __torch_function__ "
        "materialize share_memory_ cls_to_become device dtype data requires_grad requires_grad_ is_leaf grad is_meta "
        "_backward_hooks _version is_floating_point is_complex numel to half float double bfloat16 cpu cuda char short "
        "int long detach layout is_sparse names untyped_storage grad_fn copy_".split()
    )
    cls_to_become: Any

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives the tensor its shape and memory, and its final class."""
        data = object.__getattribute__(self, "data")
        self.data = fl.empty(shape, device=device or data.device, dtype=dtype or data.dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "[shape] expected an initialised parameter, got one whose shape is not known yet: call forward once with a "
            "sample input, or materialize(), before asking for it"
        )

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "[share_memory_] expected an initialised parameter, got one whose shape is not known yet: call forward once"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        data = object.__getattribute__(self, "data")
        return _rebuild_uninitialized, (type(self), self.requires_grad, data.device, data.dtype)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        owner = getattr(func, "__self__", None)  # the property whose getter or setter this is
        if name in cls._allowed or getattr(owner, "__name__", "") in cls._allowed:
            with DisableTorchFunctionSubclass():
                result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and type(result) is Tensor and name != "__get__":
                return result.as_subclass(cls)
            return result
        raise ValueError(
            f"[{name or func}] expected an initialised parameter, got one whose shape is not known yet: call forward "
            "once with a sample input, or materialize(), before using it"
        )


def _rebuild_uninitialized(cls: Any, requires_grad: bool, device: Any, dtype: Any) -> Any:
    return cls(requires_grad, device=device, dtype=dtype)


def is_lazy(param: Any) -> bool:
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[override]
    """A parameter without a shape; the first call of its lazy module materializes it.

    >>> weight = nn.UninitializedParameter()
    >>> weight.materialize((2, 3))
    >>> weight.shape
    torch.Size([2, 3])
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return _C._make_subclass(cls, fl.empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        data = object.__getattribute__(self, "data")
        copy = type(self)(self.requires_grad, data.device, data.dtype)
        memo[id(self)] = copy
        return copy


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)
        )


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module registers as its buffer when it is assigned as an attribute.

    - data: the tensor; persistent: whether it belongs to the state dict.

    >>> layer = nn.Module()
    >>> layer.mean = nn.Buffer(flambeau.zeros(2))
    >>> [name for name, _ in layer.named_buffers()]
    ['mean']
    """

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        buffer: Any = (
            (fl.empty(0) if data is None else data)
            .detach()
            .requires_grad_(False if data is None else data.requires_grad)
        )
        buffer._is_buffer = True
        buffer.persistent = persistent
        return buffer

    __torch_function__ = _C._disabled_torch_function_impl


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[override]
    """A buffer without a shape; the first call of its lazy module materializes it.

    >>> mean = nn.UninitializedBuffer()
    >>> mean.materialize((2,))
    >>> mean.shape
    torch.Size([2])
    """

    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        buffer = _C._make_subclass(cls, fl.empty(0, device=device, dtype=dtype), requires_grad)
        buffer._is_buffer = True
        buffer.persistent = persistent
        return buffer
