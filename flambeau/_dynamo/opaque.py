"""Calls that stay one node of the graph and run as written: own autograd functions with a gradient, vmap.

The code behind them is interpreted once, for its guards and to see that it has no effects; the nodes this adds are
erased again. Results come from the same interpretation, or from the rehearsal of the graph (`gradients.py`).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import attributes, breaks, gradients
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.kinds import LITERALS, TENSOR_CONSTANTS
from flambeau._dynamo.sizes import SymInt
from flambeau._dynamo.traced import TracedNumber, TracedTensor
from flambeau._subclasses.fake_values import specialize
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer


class _EffectsSoFar:
    """The effects that a capture has at some point, to tell whether code adds to them."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.stores = {key: dict(overlay.values) for key, overlay in tracer.outside.overlays.items()}
        self.contents = {key: _contents(shadow.value) for key, shadow in tracer.outside.shadows.items()}
        self.grads = dict(tracer.effects.grads)
        self.printed = len(tracer.effects.printed)
        self.draws = len(tracer.effects.draws)

    def check(self) -> None:
        """Breaks the graph where there are new ones."""
        outside, effects = self.tracer.outside, self.tracer.effects
        if len(effects.draws) != self.draws:
            raise Unsupported(breaks.RANDOM, "in code that runs as written")
        changed = any(
            _contents(shadow.value) != self.contents[key] if key in self.contents else shadow.changed()
            for key, shadow in outside.shadows.items()
        )
        stores = {key: o.values for key, o in outside.overlays.items() if o.values or key in self.stores}
        if changed or stores != self.stores or len(effects.printed) != self.printed or effects.grads != self.grads:
            raise Unsupported(breaks.STORE, "in code that runs as written")


def interpret_unrecorded(
    tracer: Tracer, run: Callable[[], Any], take: Callable[[list[Any]], None] | None = None
) -> Any:
    """Interprets code for its guards and results, and erases the nodes that it added.

    `take` is handed the nodes before they are erased; the code may then refer to other tensors from outside."""
    builder, outside, modes = tracer.builder, tracer.outside, tracer.modes
    nodes_before = set(builder.graph.nodes)
    effects_before = _EffectsSoFar(tracer)
    inputs, leaves, impure = len(builder.inputs), len(tracer.effects.leaves), tracer.effects.impure
    grad, inference = _C.is_grad_enabled(), modes.inference
    varying, outside.varying = outside.varying, frozenset()  # the code itself reads its numbers: they are guarded
    try:
        result = run()
    finally:
        _C._set_grad_enabled(grad)
        outside.varying, modes.inference = varying, inference
    effects_before.check()
    if take is None and len(builder.inputs) != inputs:
        raise _Refers()
    new_nodes = [node for node in builder.graph.nodes if node not in nodes_before and node.op != "placeholder"]
    if take is not None:
        take(new_nodes)
    for node in reversed(new_nodes):
        builder.graph.erase_node(node)
    builder.sizes.forget_nodes(set(new_nodes))
    del tracer.effects.leaves[leaves:]
    tracer.effects.impure = impure
    return result


class _Refers(Unsupported):
    """The code that was interpreted reads tensors that are no arguments."""

    def __init__(self) -> None:
        super().__init__(breaks.UNKNOWN_CALL, "of code that refers to other tensors")


def _contents(value: Any) -> list[int]:
    return [id(v) for pair in value.items() for v in pair] if isinstance(value, dict) else [id(v) for v in value]


# ---------------------------------------------------------------------------------------------- autograd.Function


def apply_function(tracer: Tracer, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Function.apply: inlined where no gradient is wanted, otherwise one node."""
    if kwargs or not isinstance(cls, type):
        raise Unsupported(breaks.CUSTOM_FUNCTION, getattr(cls, "__name__", ""))
    needs = tuple(isinstance(a, TracedTensor) and bool(a.fake.requires_grad) for a in args)
    context = tracer.outside.make_fresh(cls._backward_cls())
    context.needs_input_grad = needs
    if not (_C.is_grad_enabled() and any(needs)):
        forwarded = _forward(tracer, cls, context, args)
        return _map(
            forwarded, lambda t: tracer.builder.call_method("detach", (t,), {}) if any(t is a for a in args) else t
        )

    def run() -> Any:
        _C._set_grad_enabled(False)
        outputs = _forward(tracer, cls, context, args)
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        output_gradients = tuple(
            tracer.builder.call_function(fl.empty_like, (t,), {}) for t in listed if isinstance(t, TracedTensor)
        )
        try:
            tracer.call(attributes.load(tracer, cls, cls._derivative().__name__), (context, *output_gradients), {})
        except UserError as error:
            raise Unsupported(breaks.CUSTOM_FUNCTION, f"{cls.__name__}: {error.exception}") from None
        return outputs

    forwarded = interpret_unrecorded(tracer, run)
    fixed = context.non_differentiable

    def result(node: Any, traced: TracedTensor) -> TracedTensor:
        differentiable = traced.fake.dtype.is_floating_point and not any(traced is t for t in fixed)
        fake = tracer.builder.sizes.mode.wrap(
            traced.fake.meta(), traced.fake.geometry, traced.fake.fake_device, bool(differentiable)
        )
        fake.fake_is_leaf = not differentiable
        return tracer.builder.add_tensor(node, fake)

    node, _ = _node(tracer, _apply, (cls, *args))
    if not isinstance(forwarded, tuple):
        return result(node, forwarded)
    items = []
    for i, value in enumerate(forwarded):
        if isinstance(value, TracedTensor):
            items.append(result(tracer.builder.graph.call_function(operator.getitem, (node, i)), value))
        elif type(value) in LITERALS:
            items.append(value)
        else:
            raise Unsupported(breaks.CUSTOM_FUNCTION, f"{cls.__name__} returns {type(value).__name__}")
    return tuple(items)


def _forward(tracer: Tracer, cls: Any, context: Any, args: tuple[Any, ...]) -> Any:
    for name in ("forward", "backward", "vjp", "setup_context"):
        tracer.outside.guard_type_attribute(cls, name)
    forward = attributes.load(tracer, cls, "forward")
    if cls.setup_context is fl.autograd.Function.setup_context:
        outputs = tracer.call(forward, (context, *args), {})
    else:
        outputs = tracer.call(forward, args, {})
        tracer.call(attributes.load(tracer, cls, "setup_context"), (context, args, outputs), {})
    if context.dirty_tensors or (isinstance(outputs, tuple) and type(outputs) is not tuple):
        raise Unsupported(breaks.CUSTOM_FUNCTION, cls.__name__)
    return outputs


def _map(value: Any, function: Callable[[TracedTensor], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_map(v, function) for v in value)
    return function(value) if isinstance(value, TracedTensor) else value


def _apply(cls: Any, *args: Any) -> Any:
    return cls.apply(*args)


# ---------------------------------------------------------------------------------------------- nodes


class Lifted:
    """A callable of the program with places for the tensors it closes over."""

    def __init__(self, function: Any, places: list[Any]) -> None:
        self.function = function
        self.places = places  # for each cell: a constant, a Lifted, or the number of a tensor

    def build(self, tensors: tuple[Any, ...]) -> Any:
        if not self.places:
            return self.function
        cells = tuple(types.CellType(_filled(place, tensors)) for place in self.places)
        function = self.function
        rebuilt = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
        )
        rebuilt.__kwdefaults__ = function.__kwdefaults__
        return rebuilt


class _Place:
    """Stands for the n-th tensor."""

    def __init__(self, number: int) -> None:
        self.number = number


def _filled(value: Any, tensors: tuple[Any, ...]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.number]
    if isinstance(value, Lifted):
        return value.build(tensors)
    if type(value) in (list, tuple):
        return type(value)(_filled(v, tensors) for v in value)
    if type(value) is dict:
        return {k: _filled(v, tensors) for k, v in value.items()}
    return value


def _lifted(tracer: Tracer, value: Any, tensors: list[Any]) -> Any:
    """An argument as a node may hold it: with places for what changes from call to call."""
    if isinstance(value, (TracedTensor, TracedNumber, SymInt)):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    cls = type(value)
    if cls in (list, tuple):
        return cls(_lifted(tracer, v, tensors) for v in value)
    if cls is dict:
        return {k: _lifted(tracer, v, tensors) for k, v in value.items()}
    if id(value) in tracer.outside.known or cls in LITERALS or cls in TENSOR_CONSTANTS or isinstance(value, type):
        return value
    if cls is types.FunctionType:
        places = [_lifted(tracer, cell.cell_contents, tensors) for cell in value.__closure__ or ()]
        if any(type(d) not in LITERALS for d in value.__defaults__ or ()):
            raise Unsupported(breaks.UNKNOWN_CALL, f"with a function {value.__qualname__} that has defaults")
        return Lifted(value, places)
    if cls in (types.BuiltinFunctionType, type(fl.sin)) or isinstance(value, pytree.TreeSpec):
        return value
    raise Unsupported(breaks.UNKNOWN_CALL, f"with a {cls.__name__}")


def _node(tracer: Tracer, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    """A node that calls a function with arguments some of which are fixed."""
    tensors: list[Any] = []
    template = _lifted(tracer, args, tensors)

    def run(*output_gradients: Any) -> Any:
        return function(*_filled(template, output_gradients))

    name = getattr(args[0], "__name__", "")
    run.__name__ = run.__qualname__ = name if name.isidentifier() else function.__name__.strip("_")
    run.__module__ = "captured"
    node = tracer.builder.add_node("call_function", run, tuple(tensors), {})
    return node, tensors


# ---------------------------------------------------------------------------------------------- vmap


def call_batched(
    tracer: Tracer, func: Any, leaves: Any, dims: Any, size: Any, spec: Any, out_dims: Any, randomness: str, kwargs: Any
) -> Any:
    """func.vmap, once its arguments are flat."""
    from flambeau._dynamo import subgraphs
    from flambeau.func import batching

    if randomness != "error":
        raise Unsupported(breaks.UNKNOWN_CALL, "vmap with random numbers")
    specialize([leaf.fake for leaf in leaves if isinstance(leaf, TracedTensor)])

    def run() -> None:
        one = [
            x if d is None or not isinstance(x, TracedTensor) else tracer.builder.call_method("select", (x, d, 0), {})
            for x, d in zip(leaves, dims)
        ]
        tracer.call(func, tuple(pytree.tree_unflatten(one, spec)), dict(kwargs))

    try:
        interpret_unrecorded(tracer, run)
    except _Refers:
        node, arranged = subgraphs.map_batched(tracer, func, leaves, dims, int(size), spec, out_dims, kwargs)
        return pytree.tree_unflatten(rehearsed(tracer, node), arranged())
    specs: list[Any] = []

    def flat(*args: Any) -> tuple[Any, ...]:
        values, result_spec = pytree.tree_flatten(batching._call_batched(*args))
        specs[:] = [result_spec]
        return tuple(values)

    node, _ = _node(tracer, flat, (func, leaves, dims, int(size), spec, out_dims, randomness, kwargs))
    return pytree.tree_unflatten(rehearsed(tracer, node), specs[0])


def rehearsed(tracer: Tracer, node: Any) -> list[Any]:
    """The results of a node as the rehearsal shows them, with sizes that are numbers."""
    rehearsal = gradients._rehearse(tracer)
    results = []
    for i, value in enumerate(rehearsal.values[node]):
        item = tracer.builder.graph.call_function(operator.getitem, (node, i))
        rehearsal.values[item] = value
        if not isinstance(value, fl.Tensor):
            raise Unsupported(breaks.UNKNOWN_CALL, f"that returns {type(value).__name__}")
        results.append(gradients.static_result(tracer, item, value))
    return results


# ---------------------------------------------------------------------------------------------- others


def checkpoint(tracer: Tracer, function: Any, *args: Any, use_reentrant: Any = None, **kwargs: Any) -> Any:
    """utils.checkpoint: the function is inlined; what is kept for backward is for the compiler to decide."""
    options = {
        k: kwargs.pop(k) for k in ("preserve_rng_state", "determinism_check", "debug", "early_stop") if k in kwargs
    }
    if "context_fn" in kwargs or not all(type(v) in LITERALS for v in options.values()):
        raise Unsupported(breaks.UNKNOWN_CALL, "checkpoint with contexts")
    if use_reentrant is not False and not any(isinstance(a, TracedTensor) and a.fake.requires_grad for a in args):
        raise Unsupported(breaks.UNKNOWN_CALL, "checkpoint without an input that requires grad")
    return tracer.call(function, args, kwargs)


def leave_level(tracer: Tracer, tree: Any, own: Any) -> Any:
    """What func.grad and its like do with their results."""
    from flambeau.func import transforms

    rehearsal = gradients._rehearse(tracer)
    tensors = [x for x in pytree.tree_leaves(tree) if isinstance(x, TracedTensor)]
    leaves = {id(rehearsal.of(x)) for x in own if x.fake.is_leaf}
    if transforms._reaches([rehearsal.of(t) for t in tensors], leaves, set()):
        return tree
    detach = lambda x: tracer.builder.call_method("detach", (x,), {}) if isinstance(x, TracedTensor) else x  # noqa: E731
    return pytree.tree_map(detach, tree)
