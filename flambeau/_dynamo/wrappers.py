"""Tensors around a part on each process (`DTensor`) in captured code.

Nodes of the graph take and return such tensors as they are; what a node returns is known from the rehearsal of the graph
(`gradients.py`), which runs on wrappers of parts without data. Backends never see them: where the graph is handed over, its
inputs and outputs become the parts, and the first and last nodes wrap and unwrap them. Recording the graph then leaves the
operators and collectives on parts alone.

A class takes part by `_wraps_part = True` and these members:

    _spec                   what is known beside the part; compares with ==
    _to_part()              the part, with the derivative of taking it
    _from_part(part, spec)  the tensor of a part, with the derivative
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.kinds import LITERALS, TENSOR_CONSTANTS
from flambeau._dynamo.sizes import SymInt
from flambeau._dynamo.source import Source
from flambeau._dynamo.traced import NULL, TensorMethod, TracedTensor
from flambeau._subclasses.fake_values import specialize
from flambeau._tensor.device import canonical
from flambeau.ops.geometry import Geometry
from flambeau.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

if TYPE_CHECKING:
    from flambeau._dynamo.graph_builder import GraphBuilder
    from flambeau._dynamo.trace import Tracer

# Members that need no data, and methods that are nodes of the graph.
_FACTS = ("placements", "device_mesh", "_spec")
_SPELLED = LITERALS | TENSOR_CONSTANTS
_METHODS = ("to_local", "redistribute", "full_tensor", "_to_part")


def is_wrapper(cls: type) -> bool:
    return getattr(cls, "_wraps_part", False) is True


def among(values: Any) -> bool:
    """Whether arguments of an operator hold a wrapper."""
    for value in values:
        if type(value) is TracedTensor:
            if value.cls is not _C.Tensor and is_wrapper(value.cls):
                return True
        elif type(value) in (tuple, list) and among(value):
            return True
    return False


def check_input(value: Any, source: Source) -> None:
    """Guards what is known of an input beside the whole's shape."""
    place = source.attribute("_spec")
    if source.in_module:
        place.check("id", value._spec)  # a parameter's; it stays as long as the parameter
    else:
        place.check("equals", value._spec)


# ---------------------------------------------------------------------------------------------- nodes


def record(builder: GraphBuilder, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Adds a node whose arguments or results are wrappers, and rehearses it for its results."""
    from flambeau._dynamo import gradients
    from flambeau._dynamo.graph_builder import is_inplace

    args, kwargs = _with_numbers(builder.tracer, args), _with_numbers(builder.tracer, kwargs)
    node = _add_node(builder, op, target, args, kwargs)
    try:
        rehearsal = gradients._rehearse(builder.tracer)
    except (Unsupported, UserError):
        builder.graph.erase_node(node)
        raise
    value = rehearsal.values[node]
    if is_inplace(op, target):
        builder.tracer.effects.impure = True
        if value is None:
            return None
    elif not any(isinstance(leaf, _C.Tensor) for leaf in tree_leaves(value)):
        builder.graph.erase_node(node)
        return value
    for traced in _traced((args, kwargs)):
        if rehearsal.of(traced) is value:
            return traced
    return adopt(builder, node, value)


def _add_node(builder: GraphBuilder, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A node; objects such as a mesh, which code cannot spell, are inside of its function."""
    leaves, structure = tree_flatten((args, kwargs))
    if all(type(leaf) is TracedTensor or type(leaf) in _SPELLED for leaf in leaves):
        return builder.add_node(op, target, args, kwargs)
    places = [i for i, leaf in enumerate(leaves) if type(leaf) is TracedTensor]

    def run(*tensors: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        positional, named = tree_unflatten(filled, structure)
        return (
            getattr(positional[0], target)(*positional[1:], **named)
            if op == "call_method"
            else target(*positional, **named)
        )

    tensors = tuple(leaves[place] for place in places)
    for place in places:
        leaves[place] = None
    return builder.add_node("call_function", named(run, _name_of(target)), tensors, {})


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "captured"
    return function


def _name_of(target: Any) -> str:
    name = target if isinstance(target, str) else getattr(target, "__name__", "call")
    return str(name).strip("_") or "call"


def _traced(value: Any) -> list[TracedTensor]:
    return [leaf for leaf in tree_leaves(value) if type(leaf) is TracedTensor]


def _with_numbers(tracer: Tracer, value: Any) -> Any:
    """Arguments with numbers for symbols. Objects from outside are guarded, for they become part of the node."""
    cls = type(value)
    if cls is TracedTensor:
        specialize(value.fake)
        return value
    if cls is SymInt:
        return int(value)
    if cls in (tuple, list):
        return cls(_with_numbers(tracer, item) for item in value)
    if cls is dict:
        return {key: _with_numbers(tracer, item) for key, item in value.items()}
    source = tracer.outside.source_of(value)
    if source is not None and source.kind != "constant":
        source.check("id", value)
    return value


def adopt(builder: GraphBuilder, node: Any, value: Any) -> Any:
    """What the rehearsal returned for a node, as values of the interpreter."""
    if isinstance(value, _C.Tensor):
        return adopt_tensor(builder, node, value)
    if type(value) not in (tuple, list):
        return value
    items = []
    for i, item in enumerate(value):
        part = builder.graph.call_function(operator.getitem, (node, i))
        builder.rehearsal.values[part] = item
        items.append(adopt(builder, part, item))
    return type(value)(items)


def adopt_tensor(builder: GraphBuilder, node: Any, value: Any) -> TracedTensor:
    shape, strides = tuple(value.shape), tuple(value.stride())
    meta = fl.empty_strided(shape, strides, dtype=value.dtype, device="meta")
    fake = builder.sizes.mode.wrap(
        meta, Geometry(shape, strides, 0), canonical(builder.device), bool(value.requires_grad)
    )
    fake.fake_is_leaf = value.grad_fn is None
    traced = builder.add_tensor(node, fake)
    traced.cls = type(value) if is_wrapper(type(value)) else _C.Tensor
    return traced


def constructor(module: str, name: str) -> Callable[..., Any]:
    """The handler of a function that makes wrappers."""

    def run(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
        return record(tracer.builder, "call_function", getattr(sys.modules[module], name), args, kwargs)

    return run


def load(tracer: Tracer, tensor: TracedTensor, name: str) -> Any:
    """An attribute of a wrapper that plain tensors do not have; NULL for others."""
    from flambeau._dynamo import gradients

    if name in _METHODS:
        return TensorMethod(tensor, name)
    if name == "_local_tensor":
        return record(tracer.builder, "call_function", getattr, (tensor, name), {})
    if name not in _FACTS:
        return NULL
    value = getattr(gradients._rehearse(tracer).of(tensor), name)
    return tracer.outside.wrap(value, tracer.outside.sources.constant(value))


# ---------------------------------------------------------------------------------------------- the whole graph


def open_graph(tracer: Tracer, examples: list[Any]) -> tuple[list[Any], Callable[[Any], Any]]:
    """Makes the graph one on parts. Returns examples of its inputs, and what makes a function on wholes of one on parts."""
    builder = tracer.builder
    inputs = {
        i: traced
        for i, traced in enumerate(builder.inputs)
        if isinstance(traced, TracedTensor) and is_wrapper(traced.cls)
    }
    by_node = {traced.node: traced for traced in builder.traced_by_fake.values() if is_wrapper(traced.cls)}
    results = builder.graph.output_node().args[0]
    outputs = [(i, by_node[node]) for i, node in enumerate(results) if node in by_node]
    if not inputs and not outputs:
        return examples, lambda runner: runner
    specs = [(i, traced.cls, builder.rehearsal.value(traced.node)._spec) for i, traced in outputs]
    _unwrap_outputs(builder, results, [i for i, _ in outputs])
    examples = list(examples)
    for i, traced in inputs.items():
        _wrap_input(builder, traced)
        examples[i] = builder.sizes.mode.from_tensor(traced.real._local_tensor, static_shapes=True)
    return examples, lambda runner: _on_wholes(runner, list(inputs), specs)


def _wrap_input(builder: GraphBuilder, traced: TracedTensor) -> None:
    node, cls, spec = traced.node, traced.cls, traced.real._spec

    def wrap(part: Any) -> Any:
        return cls._from_part(part, spec)

    users = list(node.users)
    last = builder.last_input
    with builder.graph.inserting_after(last):
        wrapped = builder.graph.call_function(named(wrap, "from_part"), (node,))
    for user in users:
        user.replace_input_with(node, wrapped)


def _unwrap_outputs(builder: GraphBuilder, results: Any, places: list[int]) -> None:
    output = builder.graph.output_node()
    parts = list(results)
    with builder.graph.inserting_before(output):
        for place in places:
            parts[place] = builder.graph.call_method("_to_part", (results[place],))
    output.args = (tuple(parts),)


def _on_wholes(runner: Callable[..., Any], inputs: list[int], outputs: list[tuple[int, Any, Any]]) -> Any:
    def run(*args: Any) -> Any:
        parts = list(args)
        for i in inputs:
            parts[i] = args[i]._to_part()
        results = list(runner(*parts))
        for i, cls, spec in outputs:
            results[i] = cls._from_part(results[i], spec)
        return results

    return run
