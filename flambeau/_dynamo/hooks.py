"""Hooks on gradients of tensors made during capture: register_hook() and retain_grad().

A hook's function becomes a graph of its own, which a node attaches to the tensor. Backward runs it wherever it takes
place: in the captured graph, in its compiled derivative, or later in eager mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import breaks, subgraphs
from flambeau._dynamo.breaks import Unsupported
from flambeau._dynamo.traced import TracedHandle, TracedTensor

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer


def register_hook(tracer: Tracer, tensor: TracedTensor, hook: Any) -> TracedHandle:
    """tensor.register_hook(hook)"""
    if tensor.source is not None or not tensor.fake.requires_grad:
        raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.register_hook")
    gradient: list[TracedTensor] = []

    def run() -> Any:
        _C._set_grad_enabled(False)
        gradient.append(tracer.call_function(fl.empty_like, (tensor,), {}))
        return tracer.call(hook, (gradient[0],), {})

    inner = subgraphs.capture(tracer, run, lambda: gradient)
    if inner.constants not in ([], [None]) and inner.constants != [subgraphs.TENSOR]:
        raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.register_hook")

    def attach(target: Any, *free: Any) -> Any:
        return target.register_hook(lambda given: inner.run(given, *free))

    node = tracer._node("call_function", subgraphs.named(attach, "register_hook"), (tensor, *inner.free), {})
    return TracedHandle(tracer, node)


def retain_grad(tracer: Tracer, tensor: TracedTensor) -> None:
    """tensor.retain_grad(): backward inside the capture notes its gradient."""
    if tensor.fake.is_leaf:
        if not tensor.fake.requires_grad:
            raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.retain_grad")
        return
    if tensor.source is not None:
        raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.retain_grad")
    if not any(known is tensor for known in tracer.retained):
        tracer.retained.append(tensor)
