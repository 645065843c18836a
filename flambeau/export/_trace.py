"""From a module and example inputs to an ExportedProgram.

The module is captured as one graph (`_dynamo.full_graph`); that graph is run once more on the same fake tensors, now recording
the operators, with parameters, buffers and constants as inputs.
"""

from __future__ import annotations

import builtins
import inspect
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import size_floats
from flambeau._dynamo.exc import UserError
from flambeau._dynamo.full_graph import FullGraph, capture_full_graph
from flambeau._dynamo.functions import AUTOCAST_SWITCHES
from flambeau._dynamo.graph_builder import Tracepoint
from flambeau._dynamo.traced import TracedTensor, VaryingInt
from flambeau._higher_order_ops.operators import higher_order
from flambeau._subclasses.fake_operators import bind
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau.export import dynamic_shapes as shapes
from flambeau.export._casts import cast_call
from flambeau.export._fakes import stand_in, state_with_stand_ins, without_fake_modes
from flambeau.export._module_calls import argument_of, module_calls, positional_names
from flambeau.export.exported_program import (
    CallSpec,
    ExportedProgram,
    InputFacts,
)
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from flambeau.fx.experimental.proxy_tensor import PythonKeyTracer, Record, drop_unused_sizes
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node
from flambeau.ops.as_aten import decompositions
from flambeau.ops.recording import refused
from flambeau.ops.symbolic.expr import single_symbol
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt, float_of
from flambeau.utils import _pytree as pytree

SYM_SIZE = fl.ops.aten.sym_size.int


class Input:
    """An input of the graph in the making."""

    def __init__(self, spec: InputSpec, value: Any, fake: Any) -> None:
        self.spec = spec
        self.value = value
        self.fake = fake


class NotingTracer(PythonKeyTracer):
    """Lets new nodes say where they come from."""

    notes: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def create_node(self, *args: Any, **kwargs: Any) -> Node:
        node = super().create_node(*args, **kwargs)
        node.meta.update(self.notes)
        return node


class Operators(Record):
    """Records operators whole, but for those that are definitions of functions rather than operators of their own.

    `calls` has what Tracepoints mark. With `takes_apart` and no table of the user's, operators outside ATen's core set become ones inside.
    """

    calls: list[Any]
    functional = False  # whether the graph is one without writes, and without switches of gradients
    device = "cpu"  # that mixed precision is switched on for
    places: dict[str, Node] | None = None  # if wanted: the nodes of values, by the name that they had

    def decompose(self, op: Any) -> Any:
        known = super().decompose(op)
        if known is not None:
            return known
        if op._full_name.startswith("nn_") or op._full_name in decompositions.OWN:
            definition = _C._operator_definition(op._full_name)[2]
            return lambda *args, **kwargs: definition(**bind(op, args, kwargs))  # which has no defaults of its own
        if not self.takes_apart:
            return None
        return cast_call(op, self.device) or decompositions.decomposition(op._full_name)

    def takes(self, name: str) -> bool:
        return self.takes_apart and name not in decompositions.KEPT

    def fetch_size(self, node: Node, dim: int) -> Node:
        return self.tracer.create_node("call_function", SYM_SIZE, (node, dim), {}, "sym_size_int")


def type_text(kind: Any) -> str:
    """The name of a module's class, as PyTorch has it for its own."""
    text = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return "torch." + text.removeprefix("flambeau.") if text.startswith("flambeau.") else text


class Runner(Interpreter):
    """Runs a captured graph on fakes. Switches of gradients and of mixed precision stay in the recorded graph."""

    def __init__(self, module: GraphModule, record: Operators, mode: Any) -> None:
        super().__init__(module)
        self.record = record
        self.mode = mode
        self.counts: dict[str, int] = {}  # of calls, by function

    def run_node(self, n: Node) -> Any:
        notes = {key: n.meta[key] for key in ("stack_trace", "nn_module_stack", "custom") if n.meta.get(key)}
        if "nn_module_stack" in notes:
            stack = notes["nn_module_stack"].items()
            notes["nn_module_stack"] = {key: (path, type_text(kind)) for key, (path, kind) in stack}
        if n.op == "call_function" and hasattr(n.target, "__name__"):
            name = str(n.target.__name__)
            self.counts[name] = self.counts.get(name, 0) + 1
            notes["torch_fn"] = f"{name}_{self.counts[name]}", f"{type(n.target).__name__}.{name}"
        self.record.tracer.notes = notes
        result = super().run_node(n)
        if self.record.places is not None and id(result) in self.record.nodes:
            self.record.places[n.name] = self.record.nodes[id(result)][1]
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if type(target) is Tracepoint:
            values = iter(args)
            leaves = [next(values) if isinstance(leaf, Node) else leaf for leaf in target.leaves]
            self.record.calls.append((target, [self.record.argument(leaf) for leaf in leaves]))
            return None
        if target is _C._set_grad_enabled and self.record.functional:
            return super().call_function(target, args, kwargs)  # results do not depend on it
        if target is _C._set_grad_enabled or (target in AUTOCAST_SWITCHES and not self.record.takes_apart):
            self.record.tracer.create_node("call_function", target, tuple(args), {})
        elif hasattr(target, "_branches"):
            first, second, count = target._branches
            return self._cond(args[0], first, second, args[1 : count + 1], args[count + 1 :])
        elif hasattr(target, "_loop"):
            condition, body, count, split = target._loop
            self.mode.recorder = None
            return self._loop(condition, body, args[:count], args[count:split], args[split:])
        elif hasattr(target, "_map"):
            self.mode.recorder = None
            return self._map(target._map[0], args[: target._map[1]], args[target._map[1] :])
        elif hasattr(target, "_scan"):
            body, count, split = target._scan
            self.mode.recorder = None
            return self._scan(body, args[:count], args[count:split], args[split:])
        elif getattr(target, "is_higher_order", False):
            return self._recorded_again(target, args)
        elif size_floats.converts(target) and any(isinstance(a, (SymInt, SymFloat)) for a in args):
            return float_of(target, *args)
        elif getattr(target, "__module__", "") == "captured":
            with fl.no_grad():  # an autograd.Function: its forward is what is exported
                return super().call_function(target, args, kwargs)
        return super().call_function(target, args, kwargs)

    def _cond(self, pred: Any, first: Any, second: Any, own: Any, other: Any) -> tuple[Any, ...]:
        """One node that holds the graphs of both branches, over the same operands."""
        operands = _distinct(own, other)
        graphs = [
            self._graph(name, branch, operands, _places(read, operands))
            for name, branch, read in (("true_graph_", first, own), ("false_graph_", second, other))
        ]
        results = self._results(graphs[0], first, own)
        condition = self.record.number(pred) if isinstance(pred, SymBool) else self.record.argument(pred)
        return self._node("cond", (condition, *graphs, operands), results)

    def _loop(self, condition: Any, body: Any, carried: Any, first: Any, second: Any) -> tuple[Any, ...]:
        """One node of a while_loop(); both graphs take what is carried and all that either reads."""
        additional = _distinct(first, second)
        count = len(carried)
        graphs = [
            self._graph(
                name, graph, [*carried, *additional], [*range(count), *(count + i for i in _places(read, additional))]
            )
            for name, graph, read in (
                ("while_loop_cond_graph_", condition, first),
                ("while_loop_body_graph_", body, second),
            )
        ]
        results = self._results(graphs[1], body, [*carried, *second])
        return self._node("while_loop", (*graphs, list(carried), additional), results)

    def _map(self, body: Any, mapped: Any, others: Any) -> tuple[Any, ...]:
        """One node of a map(); the graph takes one slice of each tensor."""
        rows = [x.select(0, 0) for x in mapped]
        operands = [*rows, *others]
        graph = self._graph("body_graph_", body, operands, list(range(len(operands))))
        length = mapped[0].geometry.sizes[0]
        results = [self.mode.fake_like([length, *r.geometry.sizes], r.dtype, r.fake_device) for r in body(*operands)]
        return self._node("map_impl", (graph, list(mapped), list(others)), tuple(results))

    def _scan(self, body: Any, carried: Any, mapped: Any, others: Any) -> tuple[Any, ...]:
        """One node of a scan(); the graph takes what is carried and one slice of each tensor."""
        operands = [*carried, *(x.select(0, 0) for x in mapped), *others]
        graph = self._graph("scan_combine_graph_", body, operands, list(range(len(operands))))
        length, count = mapped[0].geometry.sizes[0], len(carried)
        results = list(self._results(graph, body, operands))
        results[count:] = [
            self.mode.fake_like([length, *r.geometry.sizes], r.dtype, r.fake_device) for r in results[count:]
        ]
        return self._node("scan", (graph, list(carried), list(mapped), list(others)), tuple(results))

    def _recorded_again(self, target: Any, args: Any) -> tuple[Any, ...]:
        """A node of a program that is recorded once more: its graphs are recorded, too."""
        if target.__name__ == "wrap_with_set_grad_enabled":
            return self._switched([(_C._set_grad_enabled, args[:1])], args[1], args[2:])
        if target.__name__ == "wrap_with_autocast":
            device, dtype, enabled, cache = args[:4]
            switches = [
                (_C._set_autocast_enabled, (device, enabled)),
                (_C._set_autocast_dtype, (device, _C._get_autocast_dtype(device) if dtype is None else dtype)),
                (_C._autocast_increment_nesting, ()),
                (_C._set_autocast_cache_enabled, (_C._is_autocast_cache_enabled() if cache is None else cache,)),
            ]
            return self._switched(switches, args[4], args[5:])
        self.mode.recorder = None
        if target.__name__ == "cond":
            return self._cond(args[0], args[1], args[2], args[3], args[3])
        if target.__name__ == "while_loop":
            return self._loop(args[0], args[1], args[2], args[3], args[3])
        if target.__name__ == "map_impl":
            return self._map(args[0], args[1], args[2])
        if target.__name__ == "scan":
            return self._scan(*args)
        raise NotImplementedError(f"[export] expected cond, while_loop, map or scan, got {target.__name__}")

    def _switched(self, switches: list[Any], graph: Any, operands: Any) -> tuple[Any, ...]:
        """The nodes of a graph between switches, which are thrown back after them."""
        before: list[Any] = []
        if switches[0][0] is _C._set_grad_enabled:
            before = [(_C._set_grad_enabled, (_C.is_grad_enabled(),))]
        else:
            device = switches[0][1][0]
            before = [
                (_C._autocast_decrement_nesting, ()), (_C._clear_autocast_cache, ()),
                (_C._set_autocast_enabled, (device, _C._is_autocast_enabled(device))),
                (_C._set_autocast_dtype, (device, _C._get_autocast_dtype(device))),
                (_C._set_autocast_cache_enabled, (_C._is_autocast_cache_enabled(),)),
            ]  # fmt: skip
        for function, values in switches:
            self.call_function(function, values, {})
        results = type(self)(graph, self.record, self.mode).run(*operands)
        for function, values in before:
            self.call_function(function, values, {})
        return tuple(results) if isinstance(results, (tuple, list)) else (results,)

    def _results(self, recorded: Node, branch: Any, operands: Any) -> tuple[Any, ...]:
        """What a branch returns for these fakes. One with branches of its own is not run again: its graph knows."""
        if not any(_has_graphs(n.target) for n in branch.graph.nodes if n.op == "call_function"):
            return tuple(branch(*operands))
        graph = getattr(self.record.tracer.root, str(recorded.target)).graph
        (output,) = (n for n in graph.nodes if n.op == "output")
        return tuple(n.meta["val"] if isinstance(n, Node) else n for n in output.args[0])

    def _graph(self, name: str, branch: Any, operands: Any, read: list[int]) -> Node:
        """The graph of a branch over these operands, of which it reads some, as an attribute of the program."""
        record, tracer = self.record, self.record.tracer
        if not all(isinstance(x, fl.Tensor) for x in operands):
            raise NotImplementedError("[export] expected branches of cond() that read tensors only, got sizes")
        specs = [InputSpec(InputKind.USER_INPUT, TensorArgument(f"arg{i}_1"), None) for i in range(len(operands))]
        fakes = [self.mode.wrap(x.meta(), x.geometry, x.fake_device, bool(x.requires_grad)) for x in operands]
        inputs = [Input(spec, x, x) for spec, x in zip(specs, fakes)]
        operand_fakes = [fakes[i] for i in read]
        module, _ = record_graph(
            branch, self.mode, inputs, operand_fakes, record.decompositions, not record.takes_apart, type(record)
        )
        if len(inputs) != len(operands):
            raise NotImplementedError("[export] expected branches without tensors made from data, got one")
        if "cond_graph" in name:  # the condition of a loop is a tensor, not a tuple of one
            (output,) = (n for n in module.graph.nodes if n.op == "output")
            output.args = (output.args[0][0],)
            module.recompile()
        path = tracer.get_fresh_qualname(name)
        setattr(tracer.root, path, module)
        return tracer.create_node("get_attr", path, (), {})

    def _node(self, name: str, args: tuple[Any, ...], results: tuple[Any, ...]) -> tuple[Any, ...]:
        self.mode.recorder = self.record
        shown = tuple(self.record.argument(list(x)) if isinstance(x, (list, tuple)) else x for x in args)
        node = self.record.tracer.create_node("call_function", higher_order(name), shown, {}, name)
        self.record.track(results, node)
        return results


def _has_graphs(target: Any) -> bool:
    return any(hasattr(target, name) for name in ("_branches", "_loop", "_map", "_scan", "is_higher_order"))


def _distinct(*lists: Any) -> list[Any]:
    return list({id(x): x for values in lists for x in values}.values())


def _places(values: Any, among: list[Any]) -> list[int]:
    """Where values are in a list, by identity."""
    places = {id(x): i for i, x in enumerate(among)}
    return [places[id(x)] for x in values]


def export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: Any = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """The program of a module for inputs like these: a graph of operators without Python.

    Sizes are those of the examples unless `dynamic_shapes` gives them a `Dim`; other values are constants. Programs that
    cannot be one graph raise, and say where.
    """
    if not isinstance(mod, fl.nn.Module) or getattr(mod, "_script_type", None) is not None:
        raise ValueError(
            f"[export] expected a Module written in Python, got {type(mod).__name__}: Exporting a ScriptModule is not supported; "
            "export the module that it was scripted from"
        )
    if not isinstance(args, tuple):
        raise UserError(
            f"[export] expected a tuple of example arguments, got {type(args).__name__}: Expecting `args` to be a tuple of example "
            "positional inputs"
        )
    kwargs = kwargs or {}
    if isinstance(dynamic_shapes, (shapes.ShapesCollection, shapes.AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    args, kwargs = pytree.tree_map_only(shapes._IntWrapper, lambda number: number.val, (args, kwargs))
    apart = pytree.tree_map(_apart, (args, kwargs))
    wanted = shapes.sizes_by_leaf(_bound(mod, *apart), dynamic_shapes)
    apart = pytree.tree_map_only(VaryingInt, lambda number: number if id(number) in wanted else int(number), apart)
    leaves = pytree.tree_leaves_with_path(apart)
    for _, leaf in leaves:
        if isinstance(leaf, fl.Tensor):
            fixed = [d for d in range(leaf.ndim) if d not in wanted.get(id(leaf), {})]
            leaf.__dict__["_dynamo_static"] = dict.fromkeys(fixed, True)
    calls: list[Any] = []
    with without_fake_modes(), state_with_stand_ins(mod) as fakes:
        whole = capture_full_graph(mod, apart[0], apart[1], preserve_module_call_signature)
        inputs = _inputs(mod, whole, _named(mod, leaves, apart))
        graph, outputs = _record(whole, inputs, calls)
        promises, facts = _sizes(whole, inputs, wanted)
    for i in inputs:
        i.value = fakes.get(id(i.value), i.value)
    state = mod.state_dict(keep_vars=True)
    named = [str(i.spec.target) for i in inputs if i.spec.target in state]  # parameters, then buffers
    attributes = _constant_attributes(mod)
    constants = {
        path: i.value.detach() if i.spec.kind is InputKind.CONSTANT_TENSOR and i.value.requires_grad else i.value
        for i in inputs
        if i.spec.kind is InputKind.CONSTANT_TENSOR or (i.spec.kind is InputKind.BUFFER and not i.spec.persistent)
        for path in dict.fromkeys([str(i.spec.target), *attributes.get(id(i.value), ())])
    }
    return ExportedProgram(
        graph,
        ExportGraphSignature([i.spec for i in inputs], outputs),
        {name: state[name] for name in dict.fromkeys([*named, *state])},
        constants,
        CallSpec(pytree.tree_structure((args, kwargs)), whole.spec),
        facts,
        {**promises.ranges, **whole.tracer.builder.sizes.env.unbacked_ranges()},
        promises.checks,
        (args, kwargs),
        substitutions=promises.table,
        size_names=promises.names,
        module_call_graph=module_calls(mod, args, kwargs, whole.spec, calls),
    )


def _apart(leaf: Any) -> Any:
    """The leaf as an object of its own: a tensor that is given twice is two inputs."""
    if isinstance(leaf, FakeTensor):
        return stand_in(leaf)
    if isinstance(leaf, fl.Tensor):
        return leaf.detach().requires_grad_(leaf.requires_grad)
    return VaryingInt(leaf) if type(leaf) is int else leaf


def _bound(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of forward's parameters."""
    return dict(inspect.signature(mod.forward).bind(*args, **kwargs).arguments)


def _named(mod: Any, leaves: list[Any], arguments: Any) -> list[tuple[str, Any]]:
    """Names for the leaves of the arguments, as programs read them: x, cache_0, options_scale."""
    args, _ = arguments
    names = positional_names(mod, len(args))
    leaf_of_name: dict[str, Any] = {}
    for path, leaf in leaves:
        parts = [str(next(iter(vars(key).values()))) for key in path]
        head = names[int(parts[1])] if parts[0] == "0" else parts[1]
        name = "".join(c if c.isalnum() else "_" for c in "_".join([head, *parts[2:]]))
        while name in leaf_of_name:
            name += "_"
        leaf_of_name[name] = leaf
    return list(leaf_of_name.items())


def _inputs(mod: Any, whole: FullGraph, user: list[tuple[str, Any]]) -> list[Input]:
    """All inputs of the graph: parameters, buffers, constants, then the user's."""
    tracer = whole.tracer
    fakes = {id(traced.real): traced.fake for traced in tracer.builder.inputs if isinstance(traced, TracedTensor)}
    mode = tracer.builder.sizes.mode
    inputs: list[Input] = []
    taken: set[int] = set()

    def add(kind: InputKind, name: str, target: str | None, value: Any, persistent: bool | None = None) -> None:
        taken.add(id(value))
        name = "".join(c if c.isalnum() else "_" for c in name)
        argument: Any = ConstantArgument(name, value)
        fake = None
        if isinstance(value, VaryingInt):
            argument, fake = SymIntArgument(name), value.symbol
        elif isinstance(value, fl.Tensor):
            argument = TensorArgument(name)
            fake = fakes[id(value)] if id(value) in fakes else mode.from_tensor(value, static_shapes=True)
        inputs.append(Input(InputSpec(kind, argument, target, persistent), value, fake))

    for path, value in mod.named_parameters(remove_duplicate=False):
        add(InputKind.PARAMETER, "p_" + path, path, value)
    saved = mod.state_dict(keep_vars=True)
    for path, value in mod.named_buffers(remove_duplicate=False):
        add(InputKind.BUFFER, "b_" + path, path, value, path in saved)
    theirs = {id(value) for _, value in user}
    attributes = _constant_attributes(mod)
    others = [t.real for t in tracer.builder.inputs if isinstance(t, TracedTensor) and id(t.real) not in taken]
    number = 0
    for value in others:
        if id(value) not in theirs:
            path = attributes.get(id(value), [f"lifted_tensor_{number}"])[0]
            number += id(value) not in attributes
            add(InputKind.CONSTANT_TENSOR, "c_" + path, path, value)
    for name, value in user:
        add(InputKind.USER_INPUT, name, None, value)
    return inputs


def _constant_attributes(mod: Any) -> dict[int, list[str]]:
    """Where modules hold tensors that are neither parameters nor buffers, by the id of the tensor."""
    paths: dict[int, list[str]] = {}
    for path, module in mod.named_modules(remove_duplicate=False):
        for name, value in vars(module).items():
            if isinstance(value, fl.Tensor):
                paths.setdefault(id(value), []).append(f"{path}.{name}" if path else name)
    return paths


def _record(whole: FullGraph, inputs: list[Input], calls: list[Any]) -> tuple[Any, list[OutputSpec]]:
    """The graph of operators of what was captured."""
    by_value = {id(item.value): item.fake for item in inputs}
    numbers: Any = whole.tracer.outside.numbers  # by source
    fakes = [
        by_value[id(t.real)] if isinstance(t, TracedTensor) else numbers[t.source] for t in whole.tracer.builder.inputs
    ]
    device = _C._set_autocast_recorded_device(whole.tracer.builder.device)
    try:
        mode = whole.tracer.builder.sizes.mode
        graph, returned = record_graph(whole.module, mode, inputs, fakes, {}, whole=True, calls=calls)
    finally:
        _C._set_autocast_recorded_device(device)
    return graph, [OutputSpec(OutputKind.USER_OUTPUT, argument, None) for argument in returned]


def record_graph(
    module: GraphModule,
    mode: Any,
    inputs: list[Input],
    fakes: list[Any],
    table: dict[Any, Any],
    whole: bool,
    record_type: type[Operators] = Operators,
    calls: list[Any] | None = None,
    places: dict[str, Node] | None = None,
    functional: bool = False,
) -> tuple[Any, list[Any]]:
    """The operators that a graph calls when it runs on fakes, and what its results are. Constants become inputs. What
    Tracepoints mark is added to `calls`, and to `places` the new nodes of those of the graph, by name."""
    tracer = NotingTracer()
    record = record_type(tracer, table, pre_dispatch=whole)
    record.calls, record.places, record.functional = [] if calls is None else calls, places, functional
    record.device = next((i.fake.fake_device.type for i in inputs if isinstance(i.fake, fl.Tensor)), "cpu")
    nodes = [tracer.create_node("placeholder", i.spec.arg.name, (), {}) for i in inputs]
    for node, item in zip(nodes, inputs):
        if hasattr(builtins, str(node.target)):  # parameters keep their name: input, not input_1
            node.name = str(node.target)
        item.spec.arg.name = node.name
        if item.fake is None:
            node.meta["val"] = item.value
            continue
        if isinstance(item.fake, SymInt):
            atom = single_symbol(item.fake.expr)
            assert atom is not None
            node.meta["val"] = item.fake
            record.sizes[atom] = node
            continue
        record.track(item.fake, node)
        for dim, size in enumerate(item.fake.geometry.sizes):
            atom = single_symbol(size.expr) if isinstance(size, SymInt) else None
            if atom is not None and atom not in record.sizes:
                record.sizes[atom] = tracer.create_node("call_function", SYM_SIZE, (node, dim), {}, "sym_size_int")
                record.sizes[atom].meta["val"] = size
    grad = _C.is_grad_enabled()
    mode.recorder = record
    mode.shape_env.forget_unbacked()
    mode.shape_env.listener = record.check
    try:
        with mode, refused():
            results = Runner(module, record, mode).run(*fakes)
            results = results if isinstance(results, (tuple, list)) else (results,)
    finally:
        mode.recorder = None
        mode.shape_env.listener = None
        _C._set_grad_enabled(grad)
    returned = [record.argument(value) for value in results]
    tracer.notes = {}
    tracer.create_node("output", "output", (tuple(returned),), {})
    drop_unused_sizes(tracer.graph, SYM_SIZE)
    _lift_constants(tracer, mode, inputs, nodes)
    return GraphModule(tracer.root, tracer.graph), [argument_of(value) for value in returned]


def _lift_constants(tracer: PythonKeyTracer, mode: Any, inputs: list[Input], nodes: list[Node]) -> None:
    """Makes inputs of the tensors that the program makes from data."""
    graph = tracer.graph
    place = next((i for i, item in enumerate(inputs) if item.spec.kind is InputKind.USER_INPUT), len(inputs))
    anchor = (
        nodes[place] if place < len(nodes) else next(n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))
    )
    lifted: dict[str, Node] = {}
    reads = [(n, str(n.target)) for n in graph.nodes if n.op == "get_attr"]
    for node, attribute in [(n, name) for n, name in reads if isinstance(getattr(tracer.root, name), fl.Tensor)]:
        item = lifted.get(attribute)
        if item is None:
            name = f"lifted_tensor_{sum(str(i.spec.target).startswith('lifted_tensor_') for i in inputs)}"
            with graph.inserting_before(anchor):
                item = lifted[attribute] = graph.placeholder(f"c_{name}")
            item.meta.update(node.meta)
            item.meta["val"] = mode.from_tensor(getattr(tracer.root, attribute), static_shapes=True)
            spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(item.name), name)
            inputs.insert(place, Input(spec, getattr(tracer.root, attribute), None))
            place += 1
        node.replace_all_uses_with(item)
        graph.erase_node(node)


def _sizes(whole: FullGraph, inputs: list[Input], wanted: dict[int, dict[int, Any]]) -> tuple[Any, list[InputFacts]]:
    """What is promised of sizes, and what calls have to give."""
    users = [item for item in inputs if item.spec.kind is InputKind.USER_INPUT]
    first = {id(t.real): t.first_geometry.sizes for t in whole.tracer.builder.inputs if isinstance(t, TracedTensor)}
    sizes = []
    for item in users:
        if isinstance(item.fake, SymInt):
            atom = single_symbol(item.fake.expr)
            assert atom is not None
            sizes.append(shapes.Size(atom, item.spec.arg.name, -1, int(item.value), wanted[id(item.value)][-1]))
        for dim, size in enumerate(first.get(id(item.value), ())):
            if isinstance(size, SymInt):
                atom = single_symbol(size.expr)
                assert atom is not None
                said = wanted[id(item.value)][dim]
                sizes.append(shapes.Size(atom, item.spec.arg.name, dim, item.value.shape[dim], said))
    promises = shapes.resolve(sizes, whole.tracer.builder.sizes.env.guards)
    facts = []
    for item in users:
        if isinstance(item.value, VaryingInt):
            value = item.fake.expr if isinstance(item.fake, SymInt) else None
            facts.append(InputFacts(item.spec.arg.name, int, (), value))
            continue
        if item.fake is None:
            facts.append(InputFacts(item.spec.arg.name, None, None, item.value))
            continue
        known = first.get(id(item.value), tuple(item.value.shape))
        shape: list[Any] = []
        for size in known:
            expr = size.expr if isinstance(size, SymInt) else None
            symbol = None if expr is None else single_symbol(expr)
            shape.append(size if expr is None else expr if symbol is None else promises.table.get(symbol, expr))
        said = wanted.get(id(item.value), {}) if id(item.value) not in first else {}
        shape = [None if d in said else size for d, size in enumerate(shape)]  # nobody looks at it
        facts.append(InputFacts(item.spec.arg.name, item.value.dtype, tuple(shape), None))
    return promises, facts


def _export(
    mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, dynamic_shapes: Any = None, *, pre_dispatch: bool = False, **options: Any
) -> ExportedProgram:  # fmt: skip
    """The older form: with `pre_dispatch` what `export` gives, else that without writes."""
    options_of_export = ("strict", "preserve_module_call_signature", "prefer_deferred_runtime_asserts_over_guards")
    known = {name: value for name, value in options.items() if name in options_of_export}
    program = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **known)
    return program if pre_dispatch else program.run_decompositions({})
