"""The graph that backward walks: nodes, edges, and hooks on what it saves and computes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import _C
from flambeau._C import Node, Tensor
from flambeau.autograd import transforming
from flambeau.autograd._methods import RemovableHandle

__all__ = [
    "Node", "GradientEdge", "get_gradient_edge", "saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks",
    "register_multi_grad_hook", "allow_mutation_on_saved_tensors", "increment_version",  # noqa: F822
    "set_warn_on_accumulate_grad_stream_mismatch",
]  # fmt: skip


class GradientEdge(NamedTuple):
    """Where in the graph the gradient of a tensor arrives."""

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    node, output = _C._gradient_edge(tensor)
    return GradientEdge(node, output, tensor if tensor.is_leaf else None)


def increment_version(tensor: Any) -> None:
    """Says that a tensor was written to by code that autograd did not see."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._bump_version()


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Accepted for compatibility."""


# ---------------------------------------------------------------- hooks on saved tensors

_state = threading.local()


class saved_tensors_hooks:
    """Packs the tensors that operations in the block save for backward, and unpacks them when backward asks."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> Any:
        message = getattr(_state, "disabled", None)
        if message is not None:
            raise RuntimeError(message)
        if transforming.levels[0]:
            raise RuntimeError(transforming.NO_HOOKS)
        _C._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)
        transforming.hooks[0] = _C._saved_tensors_hooks_depth()

    def __exit__(self, *error: Any) -> None:
        _C._pop_saved_tensors_hooks()
        transforming.hooks[0] = _C._saved_tensors_hooks_depth()


class save_on_cpu(saved_tensors_hooks):
    """Keeps what is saved for backward in the CPU's memory."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            if not pin_memory:
                return tensor.device, tensor.cpu()
            packed = fl.empty(
                tensor.size(),
                dtype=tensor.dtype,
                layout=tensor.layout,
                device="cpu",
                pin_memory=fl.cuda.is_available(),
            )
            packed.copy_(tensor)
            return tensor.device, packed

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


def _hooks_are_enabled() -> bool:
    return getattr(_state, "disabled", None) is None


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Refuses saved_tensors_hooks inside the block."""
    if _C._saved_tensors_hooks_depth():
        raise RuntimeError(error_message)
    outer = getattr(_state, "disabled", None)
    _state.disabled = error_message
    try:
        yield
    finally:
        _state.disabled = outer


# ---------------------------------------------------------------- hooks on several gradients


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Calls fn once a backward has computed the gradients of all the tensors (mode "all": with the list of them) or of
    the first of them (mode "any": with that one)."""
    if mode not in ("all", "any"):
        raise ValueError(
            f"[register_multi_grad_hook] expected mode 'all' or 'any', got {mode!r}: Expects mode to be one of ('all', 'any') but got {mode}"
        )
    lock = threading.Lock()
    by_run: dict[int, list[Any]] = {}  # by the backward that runs: its gradients, and how many have arrived

    def start() -> list[Any]:
        run = _C._current_graph_task_id()
        with lock:
            if run not in by_run:
                by_run[run] = [None] * len(tensors) + [0]
                _C._queue_callback(lambda: finish(run))
            return by_run[run]

    def finish(run: int) -> None:
        with lock:
            grads = by_run.pop(run, None)
        if grads is not None and mode == "all" and grads[-1] < len(tensors):
            fn(grads[:-1])

    def make(i: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            grads = start()
            grads[i] = grad
            grads[-1] += 1
            if mode == "any":
                if grads[-1] == 1:
                    fn(grad)
            elif grads[-1] == len(tensors):
                fn(grads[:-1])

        return hook

    handles = [t.register_hook(make(i)) for i, t in enumerate(tensors)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return RemovableHandle(remove)


class InputMetadata(NamedTuple):
    """What a gradient that arrives at a node looks like."""

    shape: Any
    dtype: fl.dtype
    device: fl.device
    is_nested_tensor: bool = False
    is_cpp_nested_tensor: bool = False


def _input_metadata(node: Node) -> list[InputMetadata]:
    return [InputMetadata(*facts) for facts in _C._node_outputs(node)]


_C.Node._input_metadata = property(_input_metadata)


def __getattr__(name: str) -> Any:
    if name == "allow_mutation_on_saved_tensors":
        from flambeau.autograd._saved_copies import allow_mutation_on_saved_tensors

        return allow_mutation_on_saved_tensors
    if name in ("to_dot", "to_svg", "draw"):
        from flambeau.autograd import drawing

        return getattr(drawing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
