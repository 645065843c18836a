"""Kinds of Python objects that capture tells apart: constants, callables, named tuples, modules."""

from __future__ import annotations

import sys
import types
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo.traced import NULL

Function = type(fl.sin)
OverridableFunction = type(fl.tensor)
MISSING: Any = object()
Size = fl.Size
LITERALS = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)})
TENSOR_CONSTANTS = frozenset(
    {type(fl.float32), fl.device, type(fl.strided), type(fl.contiguous_format), fl.Size, slice, range}
)
CONSTANTS = LITERALS | TENSOR_CONSTANTS
CALLABLES = (types.BuiltinFunctionType, Function, type, types.ModuleType, type(fl.tensor), types.MethodDescriptorType,
             types.WrapperDescriptorType, type(_C.Tensor.sin), type(_C.Tensor.type), types.MethodWrapperType,
             types.GetSetDescriptorType, types.ClassMethodDescriptorType, types.CodeType)  # fmt: skip


def is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and cls is not tuple


def is_result_tuple(cls: type) -> bool:
    """The named results of an operator."""
    return issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields")


def lookup_type(cls: type, name: str) -> Any:
    """Raw lookup along the bases, without descriptors; NULL when there is none."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return NULL


def has_default_equality(cls: Any) -> bool:
    """Whether instances are equal, and hashed, by identity."""
    return cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__


def is_native_class(cls: type) -> bool:
    """A class whose construction runs no Python code."""
    return not (cls.__flags__ & (1 << 9))  # not a heap type


def is_mutable_class(cls: type) -> bool:
    """Whether attributes of a class can be set. What its `__module__` says proves nothing: a class made by exec() in a bare
    namespace claims to be a built-in."""
    return not (cls.__flags__ & (1 << 8))


def is_parameter_class(cls: type) -> bool:
    module = sys.modules.get("flambeau.nn.parameter")  # imported late; the class may say that it is PyTorch's
    return module is not None and cls in (module.Parameter, module.Buffer)


def is_plain_tensor(cls: type) -> bool:
    """Whether tensors of a class behave as those of the base class."""
    return cls is _C.Tensor or is_parameter_class(cls)


def fl_module() -> Any:
    try:
        from flambeau.nn.modules.module import Module
    except ImportError:
        return ()
    return Module
