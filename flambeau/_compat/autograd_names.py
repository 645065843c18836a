"""Names of `torch._C` that look into autograd: kinds of nodes, references to tensors, hooks on what is saved."""

from __future__ import annotations

import sys
import weakref
from types import ModuleType
from typing import Any

from flambeau import _C
from flambeau._C import Tensor


class _WeakTensorRef:
    """Knows whether a tensor has died."""

    def __init__(self, tensor: Tensor) -> None:
        self._reference = weakref.ref(tensor)

    def expired(self) -> bool:
        return self._reference() is None


class _NodeKind(type):
    """A class that stands for the nodes of a name."""

    _node_name: str

    def __instancecheck__(cls, node: Any) -> bool:
        return isinstance(node, _C.Node) and node.name() == cls._node_name


class AccumulateGrad(_C.Node, metaclass=_NodeKind):  # type: ignore[misc]
    _node_name = "AccumulateGrad"


def _through(name: str, tensors: tuple[Any, ...], backward: Any) -> Any:
    """Copies of tensors over the same memory, with a node of their own."""
    node = _C._make_node(name, backward, None, tensors)
    copies = []
    for tensor in tensors:
        copy = None if tensor is None else tensor.detach()
        _C._attach_output(node, copy)
        copies.append(copy)
    return copies[0] if len(copies) == 1 else tuple(copies)


class DelayedError:
    """A function that gives tensors a history whose backward raises."""

    def __init__(self, message: str | bytes, num_inputs: int) -> None:
        self._message = message.decode() if isinstance(message, bytes) else message

    def __call__(self, *tensors: Any) -> Any:
        def refuse(node: Any, grads: Any) -> Any:
            raise RuntimeError(self._message)

        return _through("Error", tensors, refuse)


class UndefinedGrad:
    """A function through which no gradient comes back."""

    def __call__(self, *tensors: Any) -> Any:
        return _through("UndefinedGradBackward", tensors, lambda node, grads: (None,) * len(grads))


def _unsafe_set_version_counter(tensors: tuple[Tensor, ...], versions: tuple[int, ...]) -> None:
    for tensor, version in zip(tensors, versions, strict=True):
        if version < 0:
            raise RuntimeError(
                f"[_unsafe_set_version_counter] expected a version of at least 0, got {version}: Cannot set a version_counter to it"
            )
        _C._set_version(tensor, version)


def _saved_tensors_hooks_is_enabled() -> bool:
    from flambeau.autograd import graph

    return graph._hooks_are_enabled()


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(f"flambeau._C.{name}", "Names of PyTorch's native code.")
    module.__dict__.update(members)
    sys.modules[module.__name__] = module
    return module


_functions = _module(
    "_functions", AccumulateGrad=AccumulateGrad, DelayedError=DelayedError, UndefinedGrad=UndefinedGrad
)
_autograd = _module(
    "_autograd",
    SavedTensor=_C.SavedTensor,
    _saved_tensors_hooks_is_enabled=_saved_tensors_hooks_is_enabled,
    _get_current_graph_task_keep_graph=_C._get_current_graph_task_keep_graph,
    _unsafe_set_version_counter=_unsafe_set_version_counter,
)
