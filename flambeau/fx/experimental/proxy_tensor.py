"""make_fx: the graph of operators that a function calls, autograd's included, found by running it.

In tracing mode "real" the function runs on the tensors given, and a mode below autograd sees each operator. In "fake" and
"symbolic" it runs on fake tensors, which tell of each operator they answer; in "symbolic" the graph computes the sizes it
needs from its inputs.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau._ops import OpOverload
from flambeau._subclasses.fake_numbers import hinted
from flambeau._subclasses.fake_operators import bind
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.fx._symbolic_trace import Tracer, _resolved
from flambeau.fx.graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from flambeau.fx.graph_module import GraphModule, _assign_attr
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node
from flambeau.fx.proxy import Proxy, Scope
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.ops.recording import DependsOnData, refused
from flambeau.ops.symbolic import Atom, Condition, DataDependentOutput, Expr, ShapeEnv, SymBool, SymFloat, SymInt
from flambeau.ops.symbolic.expr import single_symbol
from flambeau.overrides import TorchFunctionMode
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import OperatorRecorder, _get_current_dispatch_mode_stack

__all__ = ["ProxyTorchDispatchMode", "PythonKeyTracer", "get_proxy_mode", "make_fx", "maybe_disable_fake_tensor_mode"]


class PythonKeyTracer(Tracer):
    """A tracer that is told of operators rather than seeing proxies used.

    Tensors that are neither inputs nor computed from them become attributes of the root. With `owner`, a module whose
    parameters and buffers keep their names, they are fetched by their path in it.
    """

    def __init__(self, owner: Module | None = None) -> None:
        super().__init__()
        self.root = Module() if owner is None else owner
        self.graph = Graph(tracer_cls=PythonKeyTracer)
        self.scope = Scope("", None)
        self._owned = (
            {} if owner is None else {id(t): n for n, t in (*owner.named_parameters(), *owner.named_buffers())}
        )
        self._kept: dict[int, tuple[str, Any]] = {}  # by address; the tensor is kept so that the address stays its own

    def _tensor_node(self, a: Any) -> Node:
        path = self._owned.get(id(a))
        if path is None:
            if a.is_meta and not self.allows_meta:
                raise RuntimeError("[make_fx] expected constants with data, got a tensor on the meta device")
            if id(a) not in self._kept:
                kind = "_param_constant" if isinstance(a, Parameter) else "_tensor_constant"
                self._kept[id(a)] = (self.get_fresh_qualname(kind), a)
                _assign_attr(a, self.root, self._kept[id(a)][0])
            path = self._kept[id(a)][0]
        return self.create_node("get_attr", path, (), {})


class Record:
    """The graph in the making: which node each tensor is, and nodes for calls."""

    def __init__(
        self, tracer: PythonKeyTracer, decompositions: dict[Any, Callable[..., Any]], pre_dispatch: bool = False
    ) -> None:
        self.tracer = tracer
        self.takes_apart = not pre_dispatch  # operators that are nothing but their definition
        self.decompositions = decompositions
        self.nodes: dict[int, tuple[Any, Node]] = {}  # by address; the tensor is kept so that the address stays its own
        # By place in memory: autograd hands back what it saved as other tensors on the same memory.
        self.windows: dict[tuple[Any, ...], Node] = {}
        self.sizes: dict[Atom, Node] = {}
        self.exprs: dict[Expr, Node] = {}
        self.numbers: dict[str, Node] = {}  # floats and conditions that were read from tensors

    def track(self, value: Any, node: Node) -> None:
        """Note that a node computes a value; parts of tuples get nodes of their own."""
        if isinstance(value, flambeau.Tensor):
            self.nodes[id(value)] = (value, node)
            if not isinstance(value, FakeTensor):
                self.windows[_window(value)] = node
            node.meta["val"] = value if isinstance(value, FakeTensor) else _without_data(value)
            if isinstance(value, FakeTensor):
                self._track_sizes(value, node)
        elif isinstance(value, (tuple, list)):
            node.meta["val"] = value
            for i, item in enumerate(value):
                if isinstance(item, flambeau.Tensor):
                    self.track(item, self.tracer.create_node("call_function", operator.getitem, (node, i), {}))

    def _track_sizes(self, value: FakeTensor, node: Node) -> None:
        """Gives nodes to the sizes of a result that depend on data."""
        env = value.fake_mode.shape_env
        if env is None or not env.stand_ins:
            return
        for dim, size in enumerate(value.geometry.sizes):
            atom = single_symbol(size.expr) if env.is_unbacked(size) else None
            if atom is not None and atom not in self.sizes:
                self.sizes[atom] = self.fetch_size(node, dim)
                self.sizes[atom].meta["val"] = size

    def fetch_size(self, node: Node, dim: int) -> Node:
        """A node for a size of a tensor."""
        return self.tracer.create_node("call_function", flambeau.Tensor.size, (node, dim), {}, "sym_size")

    def read(self, t: FakeTensor, number: Any) -> None:
        """Adds the node of a number that was read from a tensor."""
        aten = flambeau.ops.aten
        op = aten._local_scalar_dense.default if self.takes_apart else aten.item.default
        node = self.tracer.create_node("call_function", op, (self.argument(t),), {})
        node.meta["val"] = number
        if isinstance(number, SymInt):
            atom = single_symbol(number.expr)
            assert atom is not None
            self.sizes[atom] = node
        else:
            self.numbers[str(number)] = node

    def argument(self, value: Any) -> Any:
        """A value as an argument of a node."""
        if isinstance(value, flambeau.Tensor):
            known = self.nodes.get(id(value))
            if known is not None:
                return known[1]
            if not isinstance(value, FakeTensor):
                return self.windows.get(_window(value)) or self.tracer._tensor_node(value)
            if value.original is None:
                raise RuntimeError(f"[make_fx] expected tensors of this trace, got {value!r} of another")
            return self.tracer._tensor_node(value.original)
        if isinstance(value, SymInt):
            return self.size_node(value.env.simplify(value.expr))
        if isinstance(value, (SymFloat, SymBool)) and value.hint is None:
            return self.number(value)
        if isinstance(value, SymFloat):
            return self.float_node(value)
        if isinstance(value, SymBool):
            return bool(value)
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        if isinstance(value, dict):
            return {k: self.argument(v) for k, v in value.items()}
        return value

    def number(self, value: Any) -> Any:
        """The node of a float or a condition that depends on data."""
        node = self.numbers.get(str(value))
        if node is not None:
            return node
        if isinstance(value, SymFloat):
            return self.float_node(value)
        return self.condition_node(value.condition)

    def float_node(self, value: SymFloat) -> Any:
        """The node of a float that is computed from sizes."""
        if value.call is None:
            return float(value)
        if value.text not in self.numbers:
            function, args = value.call
            self.numbers[value.text] = self._call(function, *map(self.argument, args))
            self.numbers[value.text].meta["val"] = value
        return self.numbers[value.text]

    def condition_node(self, condition: Condition) -> Any:
        """A node that computes a condition on sizes."""
        if condition.kind in ("and", "or"):
            join = operator.and_ if condition.kind == "and" else operator.or_
            return functools.reduce(lambda a, b: self._call(join, a, b), map(self.condition_node, condition.parts))
        compare, expr, number = condition.comparison()
        return self._call(compare, self.size_node(expr), number)

    def check(self, condition: Condition) -> None:
        """Adds a check of what was assumed of numbers that depend on data."""
        node = self.condition_node(condition)
        text = f"Runtime assertion failed for expression {condition} on node '{node}'"
        self.tracer.create_node("call_function", flambeau.ops.aten._assert_scalar.default, (node, text), {})

    def size_node(self, expr: Expr) -> Any:
        """A node that computes an expression of sizes."""
        if expr.is_constant:
            return expr.constant
        if expr in self.exprs:
            return self.exprs[expr]
        total: Any = None
        for monomial, factor in expr.terms.items():
            term: Any = factor if factor != 1 or not monomial else None
            for atom in monomial:
                term = self._atom_node(atom) if term is None else self._call(operator.mul, term, self._atom_node(atom))
            total = term if total is None else self._call(operator.add, total, term)
        self.exprs[expr] = total
        return total

    def _atom_node(self, atom: Atom) -> Any:
        if atom.kind == "symbol":
            return self.sizes[atom]
        a, b = (self.size_node(arg) for arg in atom.args[:2])
        if atom.kind == "floordiv":
            return self._call(operator.floordiv, a, b)
        function = flambeau.sym_max if atom.kind == "max" else flambeau.sym_min
        node = self._call(function, a, b)
        for arg in atom.args[2:]:
            node = self._call(function, node, self.size_node(arg))
        return node

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        if not any(isinstance(a, Node) for a in args):
            return function(*args)
        return self.tracer.create_node("call_function", function, args, {})

    def call(self, op: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
        """Add the node of a call that returned `result`."""
        node = self.tracer.create_node(
            "call_function", op, tuple(self.argument(a) for a in args), self.argument(kwargs)
        )
        self.track(result, node)

    # As the recorder of fake tensors.

    def takes(self, name: str) -> bool:
        """Whether an operator that is nothing but its definition is taken apart."""
        return self.takes_apart

    def decompose(self, op: OpOverload) -> Callable[..., Any] | None:
        return self.decompositions.get(op)

    def __call__(self, op: OpOverload, bound: dict[str, Any], result: Any) -> None:
        formals = op._schema.arguments
        args = [bound[a.name] for a in formals if not a.kwarg_only]
        defaults = [a for a in formals if not a.kwarg_only]
        while args and defaults[-1].has_default_value() and _same(args[-1], defaults[-1].default_value):
            args.pop()
            defaults.pop()
        kwargs = {
            a.name: bound[a.name]
            for a in formals
            if a.kwarg_only and not (a.has_default_value() and _same(bound[a.name], a.default_value))
        }
        self.call(op, args, kwargs, result)


def _same(a: Any, b: Any) -> bool:
    return not isinstance(a, flambeau.Tensor) and type(a) is type(b) and bool(a == b)


def _window(value: Any) -> tuple[Any, ...]:
    """Where a tensor's elements lie in memory."""
    if value.layout is not flambeau.strided:
        return (id(value),)
    place = value.untyped_storage()._cdata
    return place, value.storage_offset(), tuple(value.shape), tuple(value.stride()), value.dtype


def _without_data(value: Any) -> Any:
    """What is kept of a tensor in a node's meta: everything but its data."""
    mode = _META_MODE
    return mode.fake_like(tuple(value.shape), value.dtype, value.device) if value.layout is flambeau.strided else None


_META_MODE = FakeTensorMode()


class ProxyTorchDispatchMode(OperatorRecorder):
    """While active, operators on tracked tensors become nodes."""

    def __init__(
        self,
        tracer: PythonKeyTracer,
        tracing_mode: str = "real",
        decompositions: Any = None,
        pre_dispatch: bool = False,
    ) -> None:
        super().__init__()
        self.tracer = tracer
        self.tracing_mode = tracing_mode
        self.pre_dispatch = pre_dispatch
        self.record = Record(tracer, decompositions or {}, pre_dispatch)
        self.enable_tracing = True
        self._sees_parts = not pre_dispatch  # else operators are recorded as the program called them

    def decomposition(self, func: Any) -> Callable[..., Any] | None:
        return self.record.decompose(func) if self.enable_tracing else None

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if not self.enable_tracing:
            return result
        if func._schema.is_mutable and func._schema.arguments[0].is_written:
            result = args[0]
        self.record.call(func, args, kwargs, result)
        return result


class _WholeOperators(TorchFunctionMode):
    """While active, operators that are nothing but their definition become nodes whole, where no gradient needs their
    parts."""

    def __init__(self, mode: ProxyTorchDispatchMode) -> None:
        super().__init__()
        self.mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = self._operator(func, args, kwargs) if self.mode.enable_tracing else None
        if op is None:
            return func(*args, **kwargs)
        decomposed = self.mode.record.decompose(op)
        if decomposed is not None:
            with self:
                return decomposed(*args, **kwargs)
        with disable_proxy_modes_tracing():
            result = op(*args, **kwargs)
        self.mode.record(op, bind(op, args, kwargs), result)
        return result

    def _operator(self, func: Any, args: Any, kwargs: Any) -> OpOverload | None:
        """The operator that a call resolves to, if it is one to be kept whole."""
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, flambeau.Tensor)]
        if flambeau.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return None
        if isinstance(func, (flambeau._C.Function, flambeau._C.Method)):
            func = flambeau._C._resolve_call(func, *hinted(args), **hinted(kwargs))
        if not isinstance(func, OpOverload):
            return None
        _, is_composite, definition = flambeau._C._operator_definition(func._full_name)
        return func if is_composite and definition is not None and not func._schema.is_mutable else None


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The innermost active tracing mode."""
    for mode in reversed(_get_current_dispatch_mode_stack()):
        if isinstance(mode, ProxyTorchDispatchMode):
            return mode
    return None


get_innermost_proxy_mode = get_proxy_mode


def is_sym_node(node: Any) -> bool:
    """Whether a node computes a size."""
    if "val" not in node.meta:
        raise AssertionError(f"[make_fx] expected a node of a traced graph, got {node} without meta['val']")
    return isinstance(node.meta["val"], (SymInt, SymFloat, SymBool))


class DecompositionInterpreter(Interpreter):
    """Runs a graph of operators with decompositions in place of some, onto another graph: `run(*inputs)` fills it."""

    def __init__(self, module: GraphModule, new_graph: Graph, decomposition_table: Any = None, **kwargs: Any) -> None:
        super().__init__(module, **kwargs)
        self.new_graph = new_graph
        self.decomposition_table = decomposition_table or {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        graph = make_fx(lambda *xs: Interpreter(self.module).run(*xs), self.decomposition_table)(*args)
        values: dict[Node, Any] = {}
        result = self.new_graph.graph_copy(graph.graph, values)
        self.new_graph.output(result)
        for name, value in graph.named_buffers():
            if name.startswith("_tensor_constant"):
                _assign_attr(value, self.module, name)
        return graph(*args)


def get_isolated_graphmodule(
    func: Callable[..., Any], args: Any, kwargs: Any, tracing_mode: str = "real", decomposition_table: Any = None
) -> GraphModule:
    """The graph of a function, traced apart from whatever is being traced."""
    leaves, spec = pytree.tree_flatten((args, kwargs))

    def flat(leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return func(*args, **kwargs)

    with disable_proxy_modes_tracing():
        return make_fx(flat, decomposition_table, tracing_mode, _flat_inputs=True)(leaves)


@contextlib.contextmanager
def maybe_disable_fake_tensor_mode() -> Iterator[None]:
    """Run a block on tensors with data, whatever fake mode is active."""
    from flambeau.overrides import _get_current_function_mode, _pop_mode_temporarily

    if isinstance(_get_current_function_mode(), FakeTensorMode):
        with _pop_mode_temporarily():
            yield
    else:
        yield


@contextlib.contextmanager
def disable_proxy_modes_tracing() -> Iterator[None]:
    """Let operators in a block go unrecorded."""
    mode = get_proxy_mode()
    if mode is None:
        yield
        return
    mode.enable_tracing = False
    try:
        yield
    finally:
        mode.enable_tracing = True


def make_fx(
    f: Callable[..., Any],
    decomposition_table: dict[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = True,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _flat_inputs: bool = False,
    **ignored: Any,
) -> Callable[..., GraphModule]:
    """A function that runs f on its arguments and returns the graph of the operators f called.

    decomposition_table  functions to be run in place of operators
    tracing_mode         "real", "fake" (sizes are numbers) or "symbolic" (sizes of the inputs are symbols)
    pre_dispatch         keep operators whole that are nothing but their definition, where no gradient needs their parts
    record_module_stack  f is a module: parameters keep their names, and nodes know the submodule that made them
    _flat_inputs         the module takes what containers among the arguments hold, instead of containers
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"[make_fx] expected tracing_mode real, fake or symbolic, got {tracing_mode!r}")

    def traced(*args: Any) -> GraphModule:
        owner = f if record_module_stack and isinstance(f, Module) else None
        tracer = PythonKeyTracer(owner)
        tracer.allows_meta = any(isinstance(x, flambeau.Tensor) and x.is_meta for x in pytree.tree_leaves(args))
        with _module_stack(tracer, owner):
            run = _run_on_data if tracing_mode == "real" else _run_on_fakes
            record, result, shape_env = run(
                f, args, tracer, tracing_mode, decomposition_table or {}, pre_dispatch, _allow_non_fake_inputs
            )
        returned, spec = pytree.tree_flatten(result)
        outputs = [record.argument(x) for x in returned]
        structure = pytree.tree_structure(args)
        if _flat_inputs or all(child.is_leaf() for child in structure.children()):
            annotation = _resolved(f, getattr(f, "__annotations__", {}).get("return"))
            result_nodes = pytree.tree_unflatten(outputs, spec)
            tracer.create_node("output", "output", (result_nodes,), {}, type_expr=annotation)
        else:
            tracer.create_node("output", "output", (outputs,), {})
            tracer.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["self", *_argument_names(f, args)], structure, spec)))
        drop_unused_sizes(tracer.graph)
        module = GraphModule(tracer.root, tracer.graph)
        if shape_env is not None:
            module.shape_env = shape_env
            module.meta["shape_env"] = shape_env
        return module

    return traced


def _run_on_data(
    f: Any, args: Any, tracer: PythonKeyTracer, tracing_mode: str, decompositions: Any, pre_dispatch: bool, allow: bool
) -> tuple[Record, Any, None]:
    """Run a function on its arguments; every operator below autograd is recorded."""
    leaves, spec = pytree.tree_flatten(args)
    mode = ProxyTorchDispatchMode(tracer, tracing_mode, decompositions, pre_dispatch)
    inputs = [_fresh(x) for x in leaves]
    _placeholders(mode.record, _names(f, args), inputs)
    with mode, _WholeOperators(mode) if pre_dispatch else contextlib.nullcontext():
        return mode.record, f(*pytree.tree_unflatten(inputs, spec)), None


def _run_on_fakes(
    f: Any, args: Any, tracer: PythonKeyTracer, tracing_mode: str, decompositions: Any, pre_dispatch: bool, allow: bool
) -> tuple[Record, Any, ShapeEnv | None]:
    """Run a function on fakes of its arguments, which tell the record of each operator."""
    leaves, spec = pytree.tree_flatten(args)
    names = _names(f, args)
    shape_env = ShapeEnv() if tracing_mode == "symbolic" else None
    fakes = FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=allow)
    record = Record(tracer, decompositions, pre_dispatch)
    inputs = [
        fakes.from_tensor(x, source=name) if isinstance(x, flambeau.Tensor) else x for x, name in zip(leaves, names)
    ]
    _placeholders(record, names, inputs)
    fakes.recorder = record
    try:
        with fakes, refused():
            return record, f(*pytree.tree_unflatten(inputs, spec)), shape_env
    except DependsOnData as error:
        raise DataDependentOutput(str(error)) from error
    finally:
        fakes.recorder = None


@contextlib.contextmanager
def _module_stack(tracer: PythonKeyTracer, owner: Module | None) -> Iterator[None]:
    """Let nodes made while a submodule runs say so in `meta["nn_module_stack"]`."""
    handles = []
    outer: list[dict[str, Any]] = []
    for name, module in () if owner is None else owner.named_modules():

        def enter(m: Module, args: Any, name: str = name) -> None:
            outer.append(tracer.module_stack)
            tracer.module_stack = {**tracer.module_stack, name: (name, type(m))}

        def leave(m: Module, args: Any, result: Any) -> None:
            tracer.module_stack = outer.pop()

        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _fresh(x: Any) -> Any:
    """An input under an identity of its own, so that one tensor given twice is two inputs."""
    return x.detach().requires_grad_(x.requires_grad) if isinstance(x, flambeau.Tensor) else x


def _placeholders(record: Record, names: list[str], inputs: list[Any]) -> None:
    placeholders = [record.tracer.create_node("placeholder", name, (), {}) for name in names]
    for node, value in zip(placeholders, inputs):
        if isinstance(value, flambeau.Tensor):
            record.track(value, node)
        else:
            node.meta["val"] = value
    for node, value in zip(placeholders, inputs):
        if isinstance(value, FakeTensor):
            for d, size in enumerate(value.geometry.sizes):
                if isinstance(size, SymInt):
                    (atom,) = size.expr.symbols
                    if atom not in record.sizes:
                        made_size = record.tracer.create_node(
                            "call_function", flambeau.Tensor.size, (node, d), {}, "sym_size"
                        )
                        made_size.meta["val"] = size
                        record.sizes[atom] = made_size


def drop_unused_sizes(graph: Graph, *functions: Any) -> None:
    """Erases fetched sizes and items that nothing uses; `functions` fetch sizes, too."""
    fetching = (flambeau.Tensor.size, operator.getitem, *functions)
    for node in reversed(graph.nodes):
        if not node.users and node.op == "call_function" and node.target in fetching:
            graph.erase_node(node)


def _argument_names(f: Any, args: Any) -> list[str]:
    try:
        parameters = [p for p in inspect.signature(f).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    except (TypeError, ValueError):
        parameters = []
    if len(parameters) == len(args):
        return [p.name for p in parameters]
    return [f"arg{i}" for i in range(len(args))]


def _names(f: Any, args: Any) -> list[str]:
    """A name for each leaf of the arguments."""
    named = zip(_argument_names(f, args), args)
    return [f"{name}_{i + 1}" for name, arg in named for i in range(len(pytree.tree_leaves(arg)))]


def fetch_object_proxy(tracer: Any, t: Any) -> Any:
    """The proxy of a tensor that the active mode tracks, or the tensor."""
    mode = get_proxy_mode()
    known = mode.record.nodes.get(id(t)) if mode is not None else None
    return t if known is None else Proxy(known[1], tracer)
