"""Functions that become graphs of their own inside the captured one: the branches of cond(), what vmap() maps, hooks.

A function is interpreted in place; the nodes this made are then moved into a graph whose inputs are the function's
arguments and whatever else it reads. Tensors it closes over, parameters and globals are thus inputs like others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau._dynamo import breaks, opaque
from flambeau._dynamo.breaks import Unsupported
from flambeau._dynamo.operations import truth
from flambeau._dynamo.traced import TracedTensor
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer


class Subgraph:
    """A function as a graph: `run(*given, *free)` returns its results as a tree."""

    def __init__(
        self, module: Any, free: list[Any], spec: Any, constants: list[Any], results: list[TracedTensor]
    ) -> None:
        self.module = module
        self.free = free  # nodes of the outer graph that it reads
        self.spec = spec
        self.constants = constants  # results that are no tensors, with a mark where the tensors go
        self.results = results

    def flat(self, *inputs: Any) -> tuple[Any, ...]:
        return tuple(self.module(*inputs))

    def run(self, *inputs: Any) -> Any:
        results = iter(self.flat(*inputs))
        leaves = [next(results) if constant is TENSOR else constant for constant in self.constants]
        return pytree.tree_unflatten(leaves, self.spec)


TENSOR = object()  # stands for a tensor among results


def capture(tracer: Tracer, function: Callable[[], Any], own_inputs: Callable[[], list[TracedTensor]]) -> Subgraph:
    """Interprets a function of no arguments. `given` names, afterwards, the tensors that are to be its arguments."""
    flat: list[Any] = []
    graph, free = Graph(), list[Any]()

    def run() -> None:
        flat.extend(_flattened(function()))

    def take(nodes: list[Any]) -> None:
        own = set(nodes)
        arguments = [traced.node for traced in own_inputs()]
        wanted = [node for made_node in nodes for node in made_node.all_input_nodes]
        wanted += [traced.node for traced in flat[0]]
        free.extend(dict.fromkeys(node for node in wanted if node not in own and node not in arguments))
        copies = {node: graph.placeholder(f"given{i}") for i, node in enumerate(arguments)}
        copies.update({node: graph.placeholder(f"free{i}") for i, node in enumerate(free)})
        for node in nodes:
            if node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[traced.node] for traced in flat[0]))

    opaque.interpret_unrecorded(tracer, run, take)
    results, spec, constants = flat
    return Subgraph(GraphModule(fl.nn.Module(), graph), free, spec, constants, results)


def _flattened(value: Any) -> tuple[list[TracedTensor], Any, list[Any]]:
    leaves, spec = pytree.tree_flatten(value)
    results = [leaf for leaf in leaves if isinstance(leaf, TracedTensor)]
    return results, spec, [TENSOR if isinstance(leaf, TracedTensor) else leaf for leaf in leaves]


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "captured"
    return function


# ---------------------------------------------------------------------------------------------- cond


def cond(tracer: Tracer, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """cond(): one node that holds both branches, where the condition is a tensor."""
    if not isinstance(pred, TracedTensor):
        return tracer.call(true_fn if truth(tracer, pred) else false_fn, tuple(operands), {})
    if not bool(pred.fake.numel() == 1):
        raise Unsupported(breaks.BRANCH, "with a condition of several elements")
    first = capture(tracer, lambda: tracer.call(true_fn, tuple(operands), {}), list)
    second = capture(tracer, lambda: tracer.call(false_fn, tuple(operands), {}), list)
    if first.spec != second.spec or first.constants != second.constants:
        raise Unsupported(breaks.BRANCH, "with branches whose results differ in structure")
    for a, b in zip(first.results, second.results):
        same = a.fake.dtype == b.fake.dtype and tuple(a.fake.shape) == tuple(b.fake.shape)
        if not same or a.fake.stride() != b.fake.stride():
            raise Unsupported(breaks.BRANCH, "with branches whose results differ in shape or type")
    count = len(first.free)

    def run(condition: Any, *inputs: Any) -> Any:
        return first.flat(*inputs[:count]) if condition else second.flat(*inputs[count:])

    run.__dict__["_rehearse"] = lambda condition, *inputs: first.flat(*inputs[:count])
    run.__dict__["_branches"] = (first.module, second.module, count)  # for export
    node = tracer.builder.add_node("call_function", named(run, "cond"), (pred, *first.free, *second.free), {})
    branches = []
    for i, (a, b) in enumerate(zip(first.results, second.results)):
        item = tracer.builder.graph.call_function(operator.getitem, (node, i))
        needs = bool(a.fake.requires_grad or b.fake.requires_grad)
        fake = tracer.builder.sizes.mode.wrap(a.fake.meta(), a.fake.geometry, a.fake.fake_device, needs)
        fake.fake_is_leaf = not needs
        branches.append(tracer.builder.add_tensor(item, fake))
    results = iter(branches)
    leaves = [next(results) if constant is TENSOR else constant for constant in first.constants]
    return pytree.tree_unflatten(leaves, first.spec)


# ---------------------------------------------------------------------------------------------- vmap


def map_batched(
    tracer: Tracer, func: Any, leaves: Any, dims: Any, size: int, spec: Any, out_dims: Any, kwargs: Any
) -> tuple[Any, Callable[[], Any]]:
    """The node of a vmap over a function that reads other tensors, and how its results are arranged."""
    from flambeau.func import batching

    samples: list[TracedTensor] = []
    inputs = [leaf for leaf in leaves if isinstance(leaf, TracedTensor)]

    def run() -> Any:
        one = []
        for x, d in zip(leaves, dims):
            if isinstance(x, TracedTensor):
                # A tensor that is not mapped over stands for itself.
                x = (
                    tracer.builder.call_method("select", (x, d, 0), {})
                    if d is not None
                    else tracer.builder.call_method("view_as", (x, x), {})
                )
                samples.append(x)
            one.append(x)
        return tracer.call(func, tuple(pytree.tree_unflatten(one, spec)), dict(kwargs))

    inner = capture(tracer, run, lambda: samples)
    tensor_dims = [d for x, d in zip(leaves, dims) if isinstance(x, TracedTensor)]
    flat_spec = pytree.tree_flatten(tuple(range(len(inputs))))[1]
    specs: list[Any] = []

    def batched(*values: Any) -> tuple[Any, ...]:
        arguments, free = list(values[: len(inputs)]), values[len(inputs) :]
        result = batching._call_batched(
            lambda *one: inner.run(*one, *free), arguments, tensor_dims, size, flat_spec, out_dims, "error", {}
        )
        flat, result_spec = pytree.tree_flatten(result)
        specs[:] = [result_spec]
        return tuple(flat)

    node = tracer.builder.add_node("call_function", named(batched, "vmap"), (*inputs, *inner.free), {})
    return node, lambda: specs[0]
