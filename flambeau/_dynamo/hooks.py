"""Hooks on gradients of tensors made during capture: register_hook() and retain_grad(), and backward hooks of modules.

A hook's function becomes a graph of its own, which a node attaches to the tensor. Backward runs it wherever it takes
place: in the captured graph, in its compiled derivative, or later in eager mode. Hooks of modules run as written: nodes at
both borders of the call attach them, as eager mode does.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import breaks, opaque, subgraphs
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
        gradient.append(tracer.builder.call_function(fl.empty_like, (tensor,), {}))
        return tracer.call(hook, (gradient[0],), {})

    inner = subgraphs.capture(tracer, run, lambda: gradient)
    if inner.constants not in ([], [None]) and inner.constants != [subgraphs.TENSOR]:
        raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.register_hook")

    def attach(target: Any, *free: Any) -> Any:
        return target.register_hook(lambda gradient: inner.run(gradient, *free))

    node = tracer.builder.add_node("call_function", subgraphs.named(attach, "register_hook"), (tensor, *inner.free), {})
    return TracedHandle(tracer, node)


def retain_grad(tracer: Tracer, tensor: TracedTensor) -> None:
    """tensor.retain_grad(): backward inside the capture notes its gradient."""
    if tensor.fake.is_leaf:
        if not tensor.fake.requires_grad:
            raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.retain_grad")
        return
    if tensor.source is not None:
        raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.retain_grad")
    if not any(known is tensor for known in tracer.effects.retained):
        tracer.effects.retained.append(tensor)


class Border:
    """The borders of a module's call, where its backward hooks and backward pre-hooks are."""

    def __init__(self, tracer: Tracer, module: Any, hooks: list[Any], pre_hooks: list[Any]) -> None:
        self.tracer = tracer
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.node: Any = None  # of the object that attaches the hooks at run time
        self.inputs: tuple[Any, ...] = ()

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        from flambeau.utils.hooks import BackwardHook

        module, hooks, pre_hooks, count = self.module, self.hooks, self.pre_hooks, len(args)
        places = [i for i, value in enumerate(args) if isinstance(value, TracedTensor)]

        def enter(*tensors: Any) -> tuple[Any, ...]:
            border = BackwardHook(module, hooks, pre_hooks)
            values: list[Any] = [None] * count
            for place, tensor in zip(places, tensors):
                values[place] = tensor
            passed = border.setup_input_hook(tuple(values))
            return (border, *(passed[place] for place in places))

        tensors = [args[place] for place in places]
        border_node = self.tracer.builder.add_node(
            "call_function", subgraphs.named(enter, "enter_module"), tuple(tensors), {}
        )
        self.node = self.tracer.builder.graph.call_function(operator.getitem, (border_node, 0))
        self.inputs = self._passed(border_node, args, places, 1)
        return self.inputs

    def leave(self, result: Any) -> Any:
        outputs = result if type(result) is tuple else (result,)
        places = [i for i, value in enumerate(outputs) if isinstance(value, TracedTensor)]
        if type(result) is not tuple and not isinstance(result, TracedTensor):
            raise Unsupported(breaks.UNKNOWN_CALL, f"module with backward hooks that returns {type(result).__name__}")
        opaque.interpret_unrecorded(self.tracer, lambda: self._rehearse(outputs))
        count = len(outputs)

        def leave(border: Any, *tensors: Any) -> tuple[Any, ...]:
            values: list[Any] = [None] * count
            for place, tensor in zip(places, tensors):
                values[place] = tensor
            passed = border.setup_output_hook(tuple(values))
            return tuple(passed[place] for place in places)

        target = subgraphs.named(leave, "leave_module")
        border_node = self.tracer.builder.graph.call_function(
            target, (self.node, *(outputs[place].node for place in places))
        )
        passed = self._passed(border_node, outputs, places, 0)
        return passed if type(result) is tuple else passed[0]

    def _rehearse(self, outputs: tuple[Any, ...]) -> None:
        """Calls the hooks, to see that they have no effects."""
        _C._set_grad_enabled(False)
        tracer = self.tracer
        grad_outputs = tuple(self._gradient(value) for value in outputs)
        for hook in self.pre_hooks:
            changed = tracer.call(hook, (self.module, grad_outputs), {})
            if changed is not None:
                grad_outputs = changed if isinstance(changed, tuple) else (changed,)
        grad_inputs = tuple(self._gradient(value) for value in self.inputs)
        for hook in self.hooks:
            changed = tracer.call(hook, (self.module, grad_inputs, grad_outputs), {})
            if changed is not None:
                grad_inputs = changed if isinstance(changed, tuple) else (changed,)

    def _gradient(self, value: Any) -> Any:
        needed = isinstance(value, TracedTensor) and value.fake.requires_grad
        return self.tracer.builder.call_function(fl.empty_like, (value,), {}) if needed else None

    def _passed(self, node: Any, values: tuple[Any, ...], places: list[int], first: int) -> tuple[Any, ...]:
        """The values as they leave a border: tensors are results of its node."""
        tracer, results = self.tracer, list(values)
        track = _C.is_grad_enabled() and any(values[place].fake.requires_grad for place in places)
        for position, place in enumerate(places):
            fake = values[place].fake
            needed = bool(track and fake.requires_grad)
            twin = tracer.builder.sizes.mode.wrap(fake.meta(), fake.geometry, fake.fake_device, needed)
            twin.fake_is_leaf = not needed
            item = tracer.builder.graph.call_function(operator.getitem, (node, position + first))
            results[place] = tracer.builder.add_tensor(item, twin)
        return tuple(results)
