"""PyTorch in the same process: conversions without copying, and what mixing tensors of the two libraries says.

A tensor of one library among the arguments of the other is a mistake that both libraries' hooks for foreign classes would
answer by calling each other for ever. The native call asks here instead (`mixed`), and so does Tensor's own hook, which
PyTorch calls (`refuse`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import flambeau as fl

_CURE = "flambeau.from_torch(x) and x.to_torch() convert without copying"


def torch_module() -> Any:
    """PyTorch where the process has it loaded; None otherwise, and where its name stands for flambeau."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return None if tensor is None or tensor is fl.Tensor else torch


def is_torch(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch."""
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def named(value: Any) -> str:
    """The class of a value as errors name it: a tensor, parameter or layer of PyTorch says that it is, and what to do."""
    name = type(value).__name__
    torch = torch_module()
    if torch is not None and isinstance(value, torch.Tensor):
        return f"a torch.{name} of PyTorch: {_CURE}"
    if torch is not None and isinstance(value, torch.nn.Module):
        return f"a {name} of PyTorch: make the layer of flambeau and load its state_dict, which takes PyTorch's tensors"
    return name


def from_torch(tensor: Any) -> fl.Tensor:
    """A tensor of flambeau over the memory of one of PyTorch.

    The history of the tensor stays behind: the result is a leaf, which requires a gradient where the tensor does.

    >>> import torch
    >>> flambeau.from_torch(torch.arange(3))
    tensor([0, 1, 2])
    """
    if not is_torch(tensor):
        raise TypeError(f"[from_torch] expected a torch.Tensor, got {type(tensor).__name__}")
    plain = tensor.detach().resolve_conj().resolve_neg()
    return fl.from_dlpack(plain).requires_grad_(tensor.requires_grad)


def to_torch(self: fl.Tensor) -> Any:
    """A tensor of PyTorch over the memory of this one.

    The history of the tensor stays behind: the result is a leaf, which requires a gradient where this one does.
    """
    torch = import_module("torch")  # asked for by the user; nothing of the package needs it
    if torch.Tensor is fl.Tensor:
        raise RuntimeError(
            "[to_torch] expected PyTorch, got a process in which `import torch` is flambeau: start it without the alias"
        )
    plain = self.detach().resolve_conj().resolve_neg()
    return torch.from_dlpack(plain).requires_grad_(self.requires_grad)


def converted(value: Any) -> Any:
    """Tensors of PyTorch as tensors of flambeau, also in lists, tuples and dicts."""
    if is_torch(value):
        return from_torch(value)
    if isinstance(value, Mapping):
        return {key: converted(item) for key, item in value.items()}
    return type(value)(map(converted, value)) if type(value) in (list, tuple) else value


def mixed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with tensors of PyTorch among its arguments: a conversion converts, anything else is refused."""
    name = getattr(function, "__name__", "call")
    if name in ("tensor", "as_tensor", "asarray") and is_torch(args[0] if args else kwargs.get("data")):
        return function(*converted(args), **converted(kwargs))
    raise TypeError(f"[{name}] expected tensors of flambeau, got a torch.Tensor of PyTorch: {_CURE}")


def refuse(function: Callable[..., Any]) -> None:
    """Raise where a function that Tensor's own hook is asked to run is one of PyTorch's."""
    if torch_module() is None:
        return
    if isinstance(function, FunctionType):
        theirs = str(function.__globals__.get("__name__")).partition(".")[0] == "torch"
    elif type(function) in (MethodDescriptorType, WrapperDescriptorType):
        theirs = not issubclass(fl.Tensor, function.__objclass__)
    else:  # native functions of the package have a class of their own, or are found in its native module
        native = type(function) is BuiltinFunctionType
        theirs = native and getattr(fl._C, function.__name__, None) is not function
    if theirs:
        raise TypeError(f"[torch.{function.__name__}] expected tensors of PyTorch, got a flambeau.Tensor: {_CURE}")
