"""Derivatives inside captured code: backward() and autograd.grad() become nodes of the graph.

What a backward reaches is known by rehearsal: the graph so far is run on tensors without data, with autograd. The node
computes the gradients of exactly those leaves; `.grad` is state of the capture and is stored after the graph, like other
side effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import breaks, overriding, wrappers
from flambeau._dynamo.breaks import SkipFrame, Unsupported, UserError
from flambeau._dynamo.effects import Gradient
from flambeau._dynamo.traced import TracedNumber, TracedTensor
from flambeau._functorch.aot.trace import Recorder, Trace, _map, _twin
from flambeau._subclasses.fake_values import specialize
from flambeau._tensor.device import canonical
from flambeau.ops.geometry import Geometry
from flambeau.ops.recording import refused

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer


class Rehearsal:
    """The graph of a capture, run on tensors without data."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.values: dict[Any, Any] = {}  # by node
        self.owners: dict[int, Any] = {}  # nodes of inputs, by identity of the tensor that stands for them
        self.grad_mode = tracer.modes.grad_at_entry
        trace = Trace()
        trace.device = canonical(tracer.builder.device)
        self.recorder = Recorder(trace, {})
        self.spent: dict[int, Any] = {}  # nodes of the autograd graph that a backward has used up

    def advance(self) -> None:
        """Runs the nodes that were added since the last time."""
        now = _C.is_grad_enabled()
        _C._set_grad_enabled(self.grad_mode)
        device = _C._set_autocast_recorded_device(self.tracer.builder.device)
        try:
            with self.recorder, refused():
                for node in list(self.tracer.builder.graph.nodes):
                    if node not in self.values and node.op != "placeholder":
                        self.values[node] = _map(self.recorder._without_data, self._run(node))
            self.grad_mode = _C.is_grad_enabled()
        finally:
            _C._set_grad_enabled(now)
            _C._set_autocast_recorded_device(device)

    def _run(self, node: Any) -> Any:
        args, kwargs = self._given(node.args), self._given(node.kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return getattr(node.target, "_rehearse", node.target)(*args, **kwargs)

    def _given(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(self._given(v) for v in value)
        if isinstance(value, dict):
            return {k: self._given(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(self._given(value.start), self._given(value.stop), self._given(value.step))
        return self.value(value) if isinstance(value, fl.fx.Node) else value

    def value(self, node: Any) -> Any:
        if node not in self.values:
            traced = next(t for t in self.tracer.builder.inputs if t.node is node)
            if isinstance(traced, TracedNumber):
                self.values[node] = traced.hint
            else:
                twin = self.values[node] = _twin(overriding.unwrapped(traced.real))
                self.owners[id(twin)] = traced
        return self.values[node]

    def of(self, value: Any) -> Any:
        """What stands for a value of the interpreter."""
        if isinstance(value, TracedTensor):
            return self.value(value.node)
        if isinstance(value, (tuple, list)):
            return [self.of(v) for v in value]
        return value

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a function of the autograd engine; its exceptions are the program's."""
        try:
            with self.recorder:
                return function(*args, **kwargs)
        except RuntimeError as error:
            error.__traceback__ = None
            raise UserError(error) from None

    def reached(self, tensors: list[Any]) -> list[Any]:
        """The nodes of the autograd graph behind some tensors."""
        leaves: dict[int, Any] = {}
        todo = [t.grad_fn for t in tensors if t.grad_fn is not None]
        while todo:
            node = todo.pop()
            if id(node) not in leaves:
                leaves[id(node)] = node
                todo += [n for n, _ in node.next_functions if n is not None]
        return list(leaves.values())

    def spend(self, nodes: list[Any]) -> None:
        """Notes nodes that cannot be used again; those of leaves can."""
        self.spent.update((id(node), node) for node in nodes if not hasattr(node, "variable"))


def _rehearse(tracer: Tracer) -> Rehearsal:
    rehearsal: Rehearsal = tracer.builder.rehearsal or Rehearsal(tracer)
    tracer.builder.rehearsal = rehearsal
    try:
        rehearsal.advance()
    except (Unsupported, UserError):
        raise
    except Exception as error:
        raise Unsupported(breaks.BACKWARD, f"{type(error).__name__}: {error}") from None
    return rehearsal


# ---------------------------------------------------------------------------------------------- what the graph calls


def accumulate(
    roots: Any, gradients: Any, leaves: Any, before: Any, retain_graph: bool, create_graph: bool
) -> tuple[Any, ...]:
    """The gradients of leaves, added to those they had before."""
    computed = gradients_of(roots, leaves, gradients, retain_graph=retain_graph, create_graph=create_graph)
    if create_graph:
        return tuple(g.clone() if b is None else b + g for b, g in zip(before, computed))
    with fl.no_grad():
        computed = owned(computed, leaves, [*roots, *(gradients or ())])
        return tuple(g if b is None else b.add_(g) for b, g in zip(before, computed))


def gradients_of(roots: Any, inputs: Any, gradients: Any, **options: Any) -> Any:
    """autograd.grad. While the graph is recorded, given gradients may still have data, which the engine refuses."""
    if gradients is not None and roots[0].is_meta:
        gradients = [g if g is None or g.is_meta else g.clone() for g in gradients]
    return fl.autograd.grad(roots, inputs, gradients, **options)


def owned(computed: Any, leaves: Any, others: Any) -> list[Any]:
    """Gradients in memory of their own, as the engine leaves them on tensors."""
    taken = {_memory(t)._cdata for t in (*leaves, *others) if t is not None}
    results = []
    gradients: list[Any] = list(computed)
    for i, leaf in enumerate(leaves):
        dense, alone = _C._gradient_facts(gradients[i])
        if not gradients[i].is_meta:
            own = dense and alone
        else:
            # Nothing can be told from counts here: the record holds all tensors.
            storage = _memory(gradients[i])
            results.append(storage)
            own = dense and storage._cdata not in taken
            taken.add(storage._cdata)
        if not own:
            gradients[i] = fl.empty_like(leaf, dtype=gradients[i].dtype, requires_grad=False).copy_(gradients[i])
    return gradients


def _memory(tensor: Any) -> Any:
    """The storage of a tensor, or of the part that it wraps."""
    return (tensor._local_tensor if wrappers.is_wrapper(type(tensor)) else tensor).untyped_storage()


# ---------------------------------------------------------------------------------------------- calls of the program


def _listed(value: Any) -> list[Any]:
    if isinstance(value, TracedTensor):
        return [value]
    if not isinstance(value, (tuple, list)) or not all(v is None or isinstance(v, TracedTensor) for v in value):
        raise Unsupported(breaks.BACKWARD, f"of {type(value).__name__}")
    return list(value)


def backward(
    tracer: Tracer,
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: Any = None,
    create_graph: Any = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """autograd.backward, and Tensor.backward."""
    if grad_variables is not None:
        raise Unsupported(breaks.BACKWARD, "with grad_variables")
    roots = _listed(tensors)
    gradients = None if grad_tensors is None else _listed(grad_tensors)
    retain = bool(create_graph if retain_graph is None else retain_graph)
    create = bool(create_graph)
    rehearsal = _rehearse(tracer)
    twins = rehearsal.of(roots)
    if inputs is None:
        reached = rehearsal.reached(twins)
        leaves = [_leaf(tracer, node.variable) for node in reached if hasattr(node, "variable")]
        leaves += [_leaf(tracer, t) for t in twins if t.is_leaf and t.requires_grad]
        leaves = list({id(leaf): leaf for leaf in leaves}.values())
        order = {id(t): i for i, t in enumerate(tracer.builder.inputs)}
        leaves.sort(key=lambda leaf: order.get(id(leaf), len(order)))
    else:
        reached = []
        leaves = _listed(inputs)
        if not leaves or not all(leaf.fake.is_leaf for leaf in leaves):
            raise Unsupported(breaks.BACKWARD, "to tensors that are no leaves")
    if not leaves:
        # Raises, as the program would.
        rehearsal.run(fl.autograd.backward, twins, rehearsal.of(gradients), retain, create)
        raise Unsupported(breaks.BACKWARD, "to no leaf")
    reducers = _reducers_of(leaves)
    for leaf in leaves:
        _check_leaf(leaf, bool(reducers))
    if inputs is None:
        behind = {id(node) for node in reached}
        leaves = leaves + [t for t in tracer.effects.retained if id(rehearsal.of(t).grad_fn) in behind]
    root_gradients = rehearsal.of(gradients)
    computed = rehearsal.run(
        fl.autograd.grad, twins, [rehearsal.of(t) for t in leaves], root_gradients, retain, create, allow_unused=True
    )
    if not retain:
        rehearsal.spend(reached or rehearsal.reached(twins))
    leaves = [leaf for leaf, g in zip(leaves, computed) if g is not None]
    computed = [g for g in computed if g is not None]
    if not create:
        twins = [rehearsal.of(t) for t in leaves]
        computed = rehearsal.run(owned, computed, twins, rehearsal.of([*roots, *(gradients or ())]))
    before = [load_grad(tracer, leaf) for leaf in leaves]
    node = tracer.builder.add_node("call_function", accumulate, (roots, gradients, leaves, before, retain, create), {})
    tracer.effects.impure = True
    rehearsal.values[node] = computed
    for i, (leaf, old, gradient) in enumerate(zip(leaves, before, computed)):
        if old is None or create:
            result = _result(tracer, node, i, leaf, gradient)
            if any(leaf is t for t in tracer.effects.retained):
                tracer.effects.grads[id(leaf)] = Gradient(leaf, None, result)
            else:
                store_grad(tracer, leaf, result)
        if old is not None and create:
            raise Unsupported(breaks.BACKWARD, "with create_graph, onto a gradient that exists")
    for reducer in reducers:
        tracer.outside.wrap(reducer, tracer.outside.sources.constant(reducer))
        tracer.call(tracer.load_attribute(reducer, "reduce_in_graph"), (), {})


def grad(
    tracer: Tracer,
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: Any = None,
    create_graph: Any = False,
    only_inputs: Any = True,
    allow_unused: Any = None,
    is_grads_batched: Any = False,
    materialize_grads: Any = False,
) -> Any:
    """autograd.grad."""
    if is_grads_batched or not only_inputs:
        raise Unsupported(breaks.BACKWARD, "of a batch")
    roots, wanted = _listed(outputs), _listed(inputs)
    gradients = None if grad_outputs is None else _listed(grad_outputs)
    for tensor in wanted:
        _check_hooks(tensor)
    options = {
        "retain_graph": bool(create_graph if retain_graph is None else retain_graph),
        "create_graph": bool(create_graph), "allow_unused": allow_unused, "materialize_grads": materialize_grads,
    }  # fmt: skip
    rehearsal = _rehearse(tracer)
    twins = rehearsal.of(roots)
    reached = [] if options["retain_graph"] else rehearsal.reached(twins)
    computed = rehearsal.run(fl.autograd.grad, twins, rehearsal.of(wanted), rehearsal.of(gradients), **options)
    rehearsal.spend(reached)
    node = tracer.builder.add_node("call_function", gradients_of, (roots, wanted, gradients), options)
    rehearsal.values[node] = computed
    results = []
    for i, (target, gradient) in enumerate(zip(wanted, computed)):
        results.append(None if gradient is None else _result(tracer, node, i, target, gradient))
    return tuple(results)


def _leaf(tracer: Tracer, twin: Any) -> Any:
    """The leaf of the program that a tensor of the rehearsal stands for."""
    assert tracer.builder.rehearsal is not None
    traced = tracer.builder.rehearsal.owners.get(id(twin))
    if traced is None:
        traced = next((t for t in tracer.effects.leaves if tracer.builder.rehearsal.values.get(t.node) is twin), None)
    if traced is None:
        raise Unsupported(breaks.BACKWARD, "to a tensor that is not known")
    return traced


def reducer_of(tensor: Any) -> Any:
    """The object behind the only hook of a leaf, where a graph can do what the hook does: data-parallel training."""
    before, after = tensor._leaf_hooks()
    return after[0] if not before and len(after) == 1 and hasattr(after[0], "reduce_in_graph") else None


def _reducers_of(leaves: list[TracedTensor]) -> list[Any]:
    """What averages the gradients of leaves over processes. A graph does it where all of its parameters have a gradient."""
    hooked = [leaf for leaf in leaves if leaf.real is not None and leaf.real._has_hooks()]
    reducers = list({id(r): r for leaf in hooked if (r := reducer_of(leaf.real)) is not None}.values())
    for reducer in reducers:
        own = {id(leaf.real) for leaf in hooked if reducer_of(leaf.real) is reducer}
        if not reducer.fits_graph() or any(id(parameter) not in own for parameter in reducer.parameters):
            raise Unsupported(breaks.BACKWARD, "to some parameters of a data-parallel module, or with its hooks")
    for leaf in hooked:
        if (reducer := reducer_of(leaf.real)) is not None and leaf.source is not None:
            leaf.source.apply(reducer_of).check("id", reducer)
    return reducers


def _check_leaf(leaf: TracedTensor, reduced: bool = False) -> None:
    """Gradients end here, and nobody else waits for them."""
    if leaf.real is None or leaf.source is None:
        return
    if not leaf.real.is_leaf:
        raise Unsupported(breaks.BACKWARD, "into the history of an argument")
    if leaf.cls is _C.Tensor:
        leaf.source.attribute("is_leaf").check("equals", True)
    if not reduced or reducer_of(leaf.real) is None:
        _check_hooks(leaf)


def _check_hooks(tensor: Any) -> None:
    """That a tensor has no hooks is part of every guard on it."""
    if isinstance(tensor, TracedTensor) and tensor.real is not None and tensor.real._has_hooks():
        raise Unsupported(breaks.BACKWARD, "to a tensor with hooks")


def static_result(tracer: Tracer, item: Any, value: Any) -> TracedTensor:
    """A tensor of the rehearsal as one of the graph, with sizes that are numbers."""
    meta = value.detach()
    geometry = Geometry(tuple(meta.shape), tuple(meta.stride()), meta.storage_offset())
    fake = tracer.builder.sizes.mode.wrap(meta, geometry, canonical(tracer.builder.device), value.requires_grad)
    fake.fake_is_leaf = value.grad_fn is None
    return tracer.builder.add_tensor(item, fake)


def _result(tracer: Tracer, node: Any, index: int, leaf: TracedTensor, gradient: Any) -> TracedTensor:
    """A gradient as a tensor of the graph. It has its leaf's sizes."""
    import operator

    assert tracer.builder.rehearsal is not None
    item = tracer.builder.graph.call_function(operator.getitem, (node, index))
    item.meta["stack_trace"] = node.meta.get("stack_trace")
    tracer.builder.rehearsal.values[item] = gradient
    if wrappers.is_wrapper(type(gradient)):
        return wrappers.adopt_tensor(tracer.builder, item, gradient)
    meta = gradient.detach()
    own, strides = leaf.fake.geometry, tuple(meta.stride())
    if not leaf.fake.is_symbolic:
        geometry = Geometry(tuple(meta.shape), strides, 0)
    elif meta.is_contiguous():
        from flambeau.ops.geometry import contiguous_strides

        geometry = Geometry(own.sizes, contiguous_strides(own.sizes), 0)
    else:
        specialize(leaf.fake)
        geometry = Geometry(tuple(meta.shape), strides, 0)
    fake = tracer.builder.sizes.mode.wrap(meta, geometry, leaf.fake.fake_device, gradient.requires_grad)
    fake.fake_is_leaf = gradient.grad_fn is None
    return tracer.builder.add_tensor(item, fake)


# ---------------------------------------------------------------------------------------------- .grad


def load_grad(tracer: Tracer, tensor: TracedTensor) -> Any:
    stored = tracer.effects.grads.get(id(tensor))
    if stored is not None:
        return stored.now
    if tensor.source is None or tensor.real is None:
        if tensor.fake.is_leaf or any(tensor is t for t in tracer.effects.retained):
            return None
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, "grad of an intermediate tensor")
    return tracer.outside.wrap(tensor.real.grad, tensor.source.grad())


def store_grad(tracer: Tracer, tensor: TracedTensor, new: Any) -> None:
    """tensor.grad = new"""
    if new is not None and not isinstance(new, TracedTensor):
        raise Unsupported(breaks.STORE, f"grad of type {type(new).__name__}")
    if not tensor.fake.is_leaf:
        raise Unsupported(breaks.STORE, "grad of an intermediate tensor")
    if new is not None:
        fits = tensor.fake.dtype == new.fake.dtype and bool(tuple(tensor.fake.shape) == tuple(new.fake.shape))
        if not fits or new is tensor:
            raise Unsupported(breaks.STORE, "grad of another shape or type")
    stored = tracer.effects.grads.get(id(tensor))
    before = load_grad(tracer, tensor) if stored is None else stored.before
    tracer.effects.grads[id(tensor)] = Gradient(tensor, before, new)


# ---------------------------------------------------------------------------------------------- results


def settle(tracer: Tracer, outputs: list[Any]) -> tuple[list[Any], list[tuple[int, str]]]:
    """The graph's results: their nodes, and which of them have a history that is used up, with its name."""
    nodes = [t.node for t in outputs]
    if tracer.builder.rehearsal is None or not tracer.builder.rehearsal.spent:
        return nodes, []
    rehearsal = _rehearse(tracer)
    spent = []
    for i, traced in enumerate(outputs):
        twin = rehearsal.of(traced) if isinstance(traced, TracedTensor) else None
        if twin is None or twin.grad_fn is None:
            continue
        if any(id(n) in rehearsal.spent for n in rehearsal.reached([twin])):
            nodes[i] = tracer.builder.graph.call_method("detach", (traced.node,))
            spent.append((i, twin.grad_fn.name()))
    return nodes, spent


def check_leaves(tracer: Tracer, outputs: list[Any]) -> None:
    """Breaks where the program returns a leaf that it made and a result with a history that begins there: compiled graphs
    have one history for all results."""
    leaves = [leaf for leaf in tracer.effects.leaves if any(leaf is t for t in outputs)]
    others = [t for t in outputs if isinstance(t, TracedTensor) and t.fake.requires_grad and t.source is None]
    if not leaves or len(others) == len(leaves):
        return
    rehearsal = _rehearse(tracer)
    variables = {id(rehearsal.of(leaf)) for leaf in leaves}
    twins = [rehearsal.of(t) for t in others]
    if any(id(getattr(node, "variable", None)) in variables for node in rehearsal.reached(twins)):
        raise SkipFrame("a result depends on a leaf that is made inside and returned")


def set_requires_grad(tracer: Tracer, tensor: TracedTensor, requires_grad: Any = True) -> TracedTensor:
    """`tensor.requires_grad = True` and the method of that name, of a tensor made during capture."""
    if tensor.fake.requires_grad == requires_grad:
        return tensor
    if tensor.source is not None or requires_grad is not True or not tensor.fake.dtype.is_floating_point:
        raise Unsupported(breaks.UNKNOWN_CALL, "Tensor.requires_grad_")
    tracer.builder.add_node("call_method", "requires_grad_", (tensor,), {})
    tensor.fake.fake_requires_grad = tensor.fake.fake_is_leaf = True
    tracer.effects.leaves.append(tensor)
    return tensor
