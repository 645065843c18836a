"""Questions about exported programs and their inputs, at PyTorch's path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.utils._pytree import register_dataclass

__all__ = [
    "get_buffer", "get_lifted_tensor_constant", "get_param", "is_buffer", "is_lifted_tensor_constant", "is_param",
    "register_dataclass_as_pytree_node", "sync_state", "wrap_method",
]  # fmt: skip


def is_param(program: Any, node: Any) -> bool:
    """Whether a node of the graph is a parameter that was made an input."""
    return node.name in program.graph_signature.inputs_to_parameters


def get_param(program: Any, node: Any) -> Any:
    return (
        program.state_dict[program.graph_signature.inputs_to_parameters[node.name]] if is_param(program, node) else None
    )


def is_buffer(program: Any, node: Any) -> bool:
    """Whether a node of the graph is a buffer that was made an input."""
    return node.name in program.graph_signature.inputs_to_buffers


def get_buffer(program: Any, node: Any) -> Any:
    if not is_buffer(program, node):
        return None
    name = program.graph_signature.inputs_to_buffers[node.name]
    return (
        program.constants[name] if name in program.graph_signature.non_persistent_buffers else program.state_dict[name]
    )


def is_lifted_tensor_constant(program: Any, node: Any) -> bool:
    """Whether a node of the graph is a constant that was made an input."""
    return node.name in program.graph_signature.inputs_to_lifted_tensor_constants


def get_lifted_tensor_constant(program: Any, node: Any) -> Any:
    if not is_lifted_tensor_constant(program, node):
        return None
    return program.constants[program.graph_signature.inputs_to_lifted_tensor_constants[node.name]]


def register_dataclass_as_pytree_node(
    cls: type,
    flatten_fn: Any = None,
    unflatten_fn: Any = None,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    return_none_fields: bool = False,
) -> None:
    """Makes a dataclass a container of its fields; of those that are None only with return_none_fields."""
    import dataclasses

    from flambeau.utils import _pytree

    if not dataclasses.is_dataclass(cls):
        raise AssertionError(
            f"[register_dataclass] expected a dataclass, got {cls}: Only dataclasses can be registered with this function"
        )
    if flatten_fn is None and unflatten_fn is None and not return_none_fields and to_dumpable_context is None:
        register_dataclass(cls, serialized_type_name=serialized_type_name)
        return
    names = [field.name for field in dataclasses.fields(cls) if field.init]

    def flatten(value: Any) -> tuple[list[Any], Any]:
        fields = [name for name in names if return_none_fields or getattr(value, name) is not None]
        return [getattr(value, name) for name in fields], [fields, [name for name in names if name not in fields]]

    def unflatten(values: Any, context: Any) -> Any:
        fields, none = context
        return cls(**dict(zip(fields, values, strict=True)), **dict.fromkeys(none))

    _pytree.register_pytree_node(
        cls,
        flatten_fn or flatten,
        unflatten_fn or unflatten,
        serialized_type_name=serialized_type_name,
        to_dumpable_context=to_dumpable_context,
        from_dumpable_context=from_dumpable_context,
    )


def sync_state(*modules: Any) -> None:
    """Makes exported modules share the parameters and buffers of the first of them that have one name."""
    if not modules:
        return
    first, *others = modules
    parameters, buffers = dict(first.named_parameters()), dict(first.named_buffers())
    for module in others:
        for name, _ in list(module.named_parameters()):
            if name in parameters:
                _replace(module, name, parameters[name], "_parameters")
        for name, _ in list(module.named_buffers()):
            if name in buffers:
                _replace(module, name, buffers[name], "_buffers")


def _replace(module: Any, name: str, value: Any, where: str) -> None:
    path, _, leaf = name.rpartition(".")
    getattr(module.get_submodule(path), where)[leaf] = value


class _Wrapped(fl.nn.Module):
    """A method of a module as the forward of another one, which has its state."""

    def __init__(self, method: Callable[..., Any]) -> None:
        super().__init__()
        owner = method.__self__  # type: ignore[attr-defined]
        self._parameters, self._buffers, self._modules = owner._parameters, owner._buffers, owner._modules
        self.__dict__["forward"] = method


def wrap_method(method: Callable[..., Any]) -> Any:
    """A module that shares the state of the method's own and calls the method."""
    if not isinstance(getattr(method, "__self__", None), fl.nn.Module):
        raise AssertionError(
            f"[wrap_method] expected a method of a module, got {method}: Expected a method of torch.nn.Module"
        )
    return _Wrapped(method)
