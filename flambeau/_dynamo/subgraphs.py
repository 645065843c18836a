"""Functions that become graphs of their own inside the captured one: the branches of cond(), what vmap() maps, hooks.

A function is interpreted in place; the nodes this made are then moved into a graph whose inputs are the function's
arguments and whatever else it reads. Tensors it closes over, parameters and globals are thus inputs like others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau._dynamo import breaks, opaque, scalars
from flambeau._dynamo.breaks import Unsupported
from flambeau._dynamo.interpreter import Frame
from flambeau._dynamo.operations import truth
from flambeau._dynamo.traced import TracedTensor
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.ops.symbolic.numbers import SymBool
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
        wanted = [node for inner in nodes if inner not in arguments for node in inner.all_input_nodes]
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
    """cond(): one node that holds both branches, where the condition is a tensor or, in a program that is exported, one on sizes."""
    on_sizes = isinstance(pred, SymBool) and tracer.builder.module_paths is not None
    if isinstance(pred, SymBool) and pred.hint is None and not on_sizes:  # data decides
        pred = scalars.to_condition(tracer, pred)
    if not isinstance(pred, TracedTensor) and not on_sizes:
        return tracer.call(true_fn if truth(tracer, pred) else false_fn, tuple(operands), {})
    if not on_sizes and not bool(pred.fake.numel() == 1):
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
    condition = tracer.builder.sizes.condition(pred.condition) if on_sizes else pred

    def run(condition: Any, *inputs: Any) -> Any:
        return first.flat(*inputs[:count]) if condition else second.flat(*inputs[count:])

    run.__dict__["_rehearse"] = lambda condition, *inputs: first.flat(*inputs[:count])
    run.__dict__["_branches"] = (first.module, second.module, count)  # for export
    node = tracer.builder.add_node("call_function", named(run, "cond"), (condition, *first.free, *second.free), {})
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


# ---------------------------------------------------------------------------------------------- loops


def _like(tracer: Tracer, x: TracedTensor) -> TracedTensor:
    """A tensor that stands for the argument of a function."""
    return tracer.builder.call_method("view_as", (x, x), {})  # type: ignore[no-any-return]


def _tensor_leaves(value: Any, name: str) -> tuple[list[TracedTensor], Any]:
    leaves, spec = pytree.tree_flatten(value)
    if not leaves or not all(isinstance(leaf, TracedTensor) for leaf in leaves):
        raise Unsupported(breaks.BRANCH, f"of {name}() over something other than tensors")
    return leaves, spec


def while_loop(tracer: Tracer, cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """while_loop(): one node that holds the condition and the body, in a program that is exported. A function that is
    compiled runs it in Python."""
    if tracer.builder.module_paths is None:
        return Frame.enter(tracer, fl.while_loop, (cond_fn, body_fn, carried_inputs), {}).call()
    inputs, spec = _tensor_leaves(carried_inputs, "while_loop")
    samples: list[TracedTensor] = []

    def captured(function: Any) -> Subgraph:
        def run() -> Any:
            samples[:] = [_like(tracer, x) for x in inputs]
            return tracer.call(function, tuple(pytree.tree_unflatten(samples, spec)), {})

        return capture(tracer, run, lambda: samples)

    condition, body = captured(cond_fn), captured(body_fn)
    if len(body.results) != len(inputs):
        raise Unsupported(breaks.BRANCH, "of while_loop() whose body returns other values than it takes")
    count, split = len(inputs), len(inputs) + len(condition.free)

    def run(*values: Any) -> Any:
        carried = values[:count]
        while condition.flat(*carried, *values[count:split])[0]:
            carried = body.flat(*carried, *values[split:])
        return tuple(carried)

    run.__dict__["_loop"] = (condition.module, body.module, count, split)  # for export
    arguments = (*inputs, *condition.free, *body.free)
    node = tracer.builder.add_node("call_function", named(run, "while_loop"), arguments, {})
    results = _items(tracer, node, [result.fake for result in body.results])
    return pytree.tree_unflatten(results, spec)


def map_slices(tracer: Tracer, f: Any, xs: Any, *args: Any) -> Any:
    """map(): one node that holds the function, in a program that is exported."""
    from flambeau._higher_order_ops.map import map as written

    if tracer.builder.module_paths is None:
        return Frame.enter(tracer, written, (f, xs, *args), {}).call()
    inputs, spec = _tensor_leaves(xs, "map")
    samples: list[TracedTensor] = []

    def run() -> Any:
        samples[:] = [tracer.builder.call_method("select", (x, 0, 0), {}) for x in inputs]
        return tracer.call(f, (pytree.tree_unflatten(samples, spec), *args), {})

    body = capture(tracer, run, lambda: samples)
    count = len(inputs)

    def mapped(*values: Any) -> Any:
        rows = [body.flat(*row, *values[count:]) for row in zip(*values[:count])]
        return tuple(fl.stack(list(column)) for column in zip(*rows))

    mapped.__dict__["_map"] = (body.module, count)  # for export
    node = tracer.builder.add_node("call_function", named(mapped, "map"), (*inputs, *body.free), {})
    mode, length = tracer.builder.sizes.mode, inputs[0].fake.shape[0]
    fakes = [mode.fake_like([length, *r.fake.geometry.sizes], r.fake.dtype, r.fake.fake_device) for r in body.results]
    results = iter(_items(tracer, node, fakes))
    return pytree.tree_unflatten([next(results) if c is TENSOR else c for c in body.constants], body.spec)


def scan(tracer: Tracer, combine_fn: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    """scan(): one node that holds the function, over the first dimension, in a program that is exported."""
    from flambeau._higher_order_ops.scan import scan as written

    if tracer.builder.module_paths is None:
        return Frame.enter(tracer, written, (combine_fn, init, xs), {"dim": dim, "reverse": reverse}).call()
    call = tracer.builder.call_method
    carried, carried_spec = _tensor_leaves(init, "scan")
    mapped, spec = _tensor_leaves(xs, "scan")
    mapped = [call("movedim", (x, dim, 0), {}) if dim else x for x in mapped]
    mapped = [call("flip", (x, 0), {}) if reverse else x for x in mapped]
    samples: list[TracedTensor] = []

    def run() -> Any:
        held, rows = [_like(tracer, x) for x in carried], [call("select", (x, 0, 0), {}) for x in mapped]
        samples[:] = [*held, *rows]
        return tracer.call(
            combine_fn, (pytree.tree_unflatten(held, carried_spec), pytree.tree_unflatten(rows, spec)), {}
        )

    body = capture(tracer, run, lambda: samples)
    count, split = len(carried), len(carried) + len(mapped)
    if body.spec.children_specs[0].num_leaves != count or any(c is not TENSOR for c in body.constants):
        raise Unsupported(breaks.BRANCH, "of scan() whose function returns other values than it carries")

    def scanned(*values: Any) -> Any:
        held, rows = list(values[:count]), []
        for row in zip(*values[count:split]):
            results = list(body.flat(*held, *row, *values[split:]))
            held = results[:count]
            rows.append(results[count:])
        return (*held, *(fl.stack(list(column)) for column in zip(*rows)))

    scanned.__dict__["_scan"] = (body.module, count, split)  # for export
    node = tracer.builder.add_node("call_function", named(scanned, "scan"), (*carried, *mapped, *body.free), {})
    mode, length = tracer.builder.sizes.mode, mapped[0].fake.shape[0]
    fakes = [r.fake for r in body.results[:count]]
    for r in body.results[count:]:
        fakes.append(mode.fake_like([length, *r.fake.geometry.sizes], r.fake.dtype, r.fake.fake_device))
    items = _items(tracer, node, fakes)
    items[count:] = [call("flip", (x, 0), {}) if reverse else x for x in items[count:]]
    return pytree.tree_unflatten(items, body.spec)


def _items(tracer: Tracer, node: Any, fakes: list[Any]) -> list[TracedTensor]:
    """The results of a node that returns a tuple, like these fakes."""
    mode = tracer.builder.sizes.mode
    items = []
    for i, fake in enumerate(fakes):
        item = tracer.builder.graph.call_function(operator.getitem, (node, i))
        like = mode.wrap(fake.meta(), fake.geometry, fake.fake_device, bool(fake.requires_grad))
        items.append(tracer.builder.add_tensor(item, like))
    return items


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
