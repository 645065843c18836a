"""Scalars that change from call to call, such as learning rates, as inputs of a compiled graph.

No value of a scalar is ever seen while recording, so none can end up as a constant:

- What depends on scalars alone (`2 * s`, `tensor(s)`) is taken out of the graph and done in Python before each run.
- A scalar among the operands of an operator (`x * s`) is recorded as a tensor without data that promotes like a number.
- Pointwise functions (the slope of `leaky_relu`) and the updates of optimizers take floats. They are recorded with a value that
  stands for the scalar, which goes from the graph's input straight into the call; each occurrence is accounted for. Recordings of
  pointwise functions with other values, of all signs and sizes, show that nothing else is made of it and nothing decided by it.

Any other use (a size, the argument of a Python function) is compiled for each value, up to a limit, after which new values
run operator by operator.
"""

from __future__ import annotations

import enum
import math
import operator
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace, values_in
from flambeau._inductor.compile_fx import GraphCompiler, compile_tensor_function, specialized_function
from flambeau._inductor.failures import Origin
from flambeau._inductor.ir import ScalarInput
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg
from flambeau.ops.record import find as find_record
from flambeau.ops.recording import DependsOnData

__all__ = ["with_numbers"]

MOST_FLOATS = 8  # sets of values, with floats among them, that a graph is compiled for
MOST_INTEGERS = 256  # sets of integers alone, which mostly are sizes; the oldest is forgotten

_ARITHMETIC = frozenset(
    (
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
        operator.neg, operator.pos, operator.abs, min, max,
    )
)  # fmt: skip
_MATH = frozenset(f for f in vars(math).values() if isinstance(f, types.BuiltinFunctionType))
_OPERATORS = frozenset(
    getattr(operator, prefix + name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
    for prefix in ("", "i")
) | {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
_MAKERS = frozenset((fl.tensor, fl.as_tensor, fl.scalar_tensor, fl.full))
_MAKING_METHODS = frozenset(("new_tensor", "new_full"))
_NativeFunction = type(fl.sin)


class Kind(enum.Enum):
    """How an input of a divided graph is handed over."""

    TENSOR = enum.auto()
    OPERAND = enum.auto()  # a scalar beside tensors, read from memory
    UPDATE = enum.auto()  # a float of an optimizer's update, read from memory
    ARGUMENT = enum.auto()  # a float of a pointwise function, read from memory
    VALUE = enum.auto()  # a scalar that the graph is compiled for


class Divided(NamedTuple):
    """A graph as what depends on scalars alone, done before each run, and the rest."""

    prepare: Callable[..., Sequence[Any]]  # from the inputs of the graph to those of `main`
    main: Callable[..., Any]
    kinds: list[Kind]


def with_numbers(
    graph: Any,
    examples: Sequence[Any],
    fuse: bool,
    settings: dict[str, Any] | None = None,
    origin: Origin = Origin(),  # noqa: B008
) -> Callable[..., Any]:
    """A graph, or another function, whose inputs are tensors and scalars, compiled."""
    attempts = [
        frozenset((Kind.OPERAND, Kind.UPDATE, Kind.ARGUMENT)),
        frozenset((Kind.OPERAND, Kind.UPDATE)),
        frozenset((Kind.UPDATE,)),
        frozenset[Kind](),
    ]
    if isinstance(graph, GraphModule):
        divided = divide(graph, attempts[0])
    else:
        kinds = [Kind.TENSOR if isinstance(a, fl.Tensor) else Kind.VALUE for a in examples]
        divided = Divided(lambda *args: args, graph, kinds)
    parametric = isinstance(graph, GraphModule)  # what it does with sizes is guarded
    run = _DividedFunction(divided, fuse, settings, parametric, origin)

    def call(*args: Any) -> Any:
        nonlocal run
        while True:
            try:
                return run(args)
            except _Refused:
                del attempts[0]
                run = _DividedFunction(divide(graph, attempts[0]), fuse, settings, parametric, origin)

    return call


# ---------------------------------------------------------------------------------------------- dividing a graph


def divide(graph: GraphModule, from_memory: frozenset[Kind]) -> Divided:
    """Divides a graph. Scalars whose use is of one of the given kinds are read from memory, the others are values."""
    early = _early_nodes(graph.graph)
    main = Graph()
    copies: dict[Node, Node] = {}
    inputs: dict[tuple[Node, Kind], Node] = {}  # of the new graph

    def enter(node: Node, kind: Kind) -> Node:
        key = (node, kind)
        if key not in inputs:
            with main.inserting_after(next(reversed(inputs.values()), None)):
                inputs[key] = main.placeholder(f"input{len(inputs)}")
            inputs[key].meta.update(node.meta)
        return inputs[key]

    for node in graph.graph.nodes:
        if node.op == "placeholder" and node not in early:
            copies[node] = enter(node, Kind.TENSOR)
    for node in graph.graph.nodes:
        if node in early or node.op == "placeholder":
            continue

        def replace(used: Node, user: Node = node) -> Node:
            if used not in early:
                return copies[used]
            kind = _kind_of_use(user, used)
            return enter(used, kind if kind is Kind.TENSOR or kind in from_memory else Kind.VALUE)

        copies[node] = _copy_of(node, main, replace, early)
        copies[node].meta.update(node.meta)
    sources = [node for node, _ in inputs]
    return Divided(_preparation(graph, sources), GraphModule(graph, main).forward, [kind for _, kind in inputs])


def _copy_of(node: Node, graph: Graph, replace: Callable[[Node], Node], early: dict[Node, None]) -> Node:
    """The node in another graph. What a tensor is filled with may be read from memory, but not what one like it is made of."""
    if node.target is not fl.full_like or not any(a in early for a in node.all_input_nodes):
        return graph.node_copy(node, replace)
    like, value, *_ = (*node.args, node.kwargs.get("fill_value"))
    options = {k: v for k, v in node.kwargs.items() if k != "fill_value"}
    empty = graph.call_function(fl.empty_like, map_arg((like,), replace), map_arg(options, replace))
    empty.meta.update(node.meta)
    return graph.call_function(fl.fill, (empty, map_arg(value, replace)))


def _is_scalar(node: Node) -> bool:
    example = node.meta.get("example_value")
    if example is None and node.op == "call_function" and node.target in _ARITHMETIC:  # a step towards an integer
        return bool(node.all_input_nodes) and all(map(_is_scalar, node.all_input_nodes))
    return isinstance(example, (int, float, fl.SymInt))


def _early_nodes(graph: Graph) -> dict[Node, None]:
    """Nodes that depend on scalars, and on tensors by their sizes and dtypes at most."""
    early: dict[Node, None] = {}
    sizes: set[Node] = set()  # of inputs; they stay in the graph, but may be used before it
    for node in graph.nodes:
        arguments = node.all_input_nodes
        if node.op == "placeholder":
            if _is_scalar(node):
                early[node] = None
        elif node.op == "call_method" and node.target == "size" and arguments[0].op == "placeholder":
            sizes.add(node)
        elif node.op == "call_function" and (node.target in _ARITHMETIC or node.target in _MATH):
            if all(a in early or a in sizes for a in arguments) and all(map(_is_scalar, arguments)):
                if any(a in early for a in arguments):
                    early[node] = None
                else:
                    sizes.add(node)
        elif any(a in early for a in arguments) and _makes_tensor(node, early, sizes):
            early[node] = None
    return early


def _makes_tensor(node: Node, early: dict[Node, None], sizes: set[Node]) -> bool:
    if node.op == "call_function":
        known, rest = node.target in _MAKERS, node.all_input_nodes
    else:
        known = node.op == "call_method" and node.target in _MAKING_METHODS and isinstance(node.args[0], Node)
        known = known and node.args[0].op == "placeholder" and node.args[0] not in early
        rest = [a for a in node.all_input_nodes if a is not node.args[0]]
    return known and all(a in early or a in sizes for a in rest) and all(map(_is_scalar, rest))


def _kind_of_use(user: Node, scalar: Node) -> Kind:
    if not _is_scalar(scalar):
        return Kind.TENSOR
    if not any(a is scalar for a in (*user.args, *user.kwargs.values())):
        return Kind.VALUE
    if user.target is fl.full_like:
        return Kind.OPERAND
    nested: list[Node] = []
    map_arg([a for a in (*user.args, *user.kwargs.values()) if not isinstance(a, Node)], nested.append)
    if any(a is scalar for a in nested):
        return Kind.VALUE
    is_integer = not isinstance(scalar.meta["example_value"], float)
    if _is_update(user):
        return Kind.VALUE if is_integer else Kind.UPDATE
    if user.op == "call_function" and user.target in _OPERATORS:
        return Kind.OPERAND
    if user.op == "call_function" and user.target is operator.setitem:
        return Kind.VALUE if user.args[1] is scalar else Kind.OPERAND
    if not is_integer and _is_argument(user, scalar):
        return Kind.ARGUMENT
    if is_integer:
        return Kind.OPERAND if any(_is_operand(record, user, scalar) for record in _records(user)) else Kind.VALUE
    native = user.op == "call_method" or (user.op == "call_function" and isinstance(user.target, _NativeFunction))
    return Kind.OPERAND if native else Kind.VALUE


def _is_update(node: Node) -> bool:
    """Whether a node is an optimizer's update, which takes its floats as they are."""
    if node.op != "call_function" or not isinstance(node.target, _NativeFunction):
        return False
    record = find_record(node.target.__name__)
    return record is not None and record.kind == "update"


def _is_argument(user: Node, scalar: Node) -> bool:
    """Whether a scalar is an argument of a pointwise function that is a number by its schema."""
    return any(_takes_number(record, user, scalar) for record in _records(user))


def _records(user: Node) -> list[Any]:
    """The records of the operator that a node calls, if it calls one."""
    name = user.target if user.op == "call_method" else getattr(user.target, "__name__", "")
    if user.op == "call_function" and not isinstance(user.target, _NativeFunction):
        return []
    base = str(name).rstrip("_")
    records = [find_record(full) for full in (base, f"{base}.Tensor", f"{base}.Scalar", f"{base}.self")]
    return [record for record in records if record is not None]


def _formals(record: Any, user: Node, scalar: Node) -> list[Any]:
    """The formal arguments that a scalar is given for; None for those that the schema does not have."""
    places = [at for at, value in [*enumerate(user.args), *user.kwargs.items()] if value is scalar]
    by_place = {at: f for i, f in enumerate(record.schema.args) for at in (i, f.name)}
    return [by_place.get(at) for at in places]


def _takes_number(record: Any, user: Node, scalar: Node) -> bool:
    if record.kind != "pointwise":
        return False
    formals = _formals(record, user, scalar)
    return not any(f is None or f.is_tensor or f.name == record.details["select"] for f in formals)


def _is_operand(record: Any, user: Node, scalar: Node) -> bool:
    """Whether a scalar stands where tensors may, so that it is no size or dimension."""
    return all(f is not None and f.is_tensor for f in _formals(record, user, scalar))


def _preparation(graph: GraphModule, wanted: list[Node]) -> Callable[..., Sequence[Any]]:
    """What computes the given nodes from the inputs of a graph."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    if all(node.op == "placeholder" for node in wanted):
        order = [placeholders.index(node) for node in wanted]
        return lambda *args: [args[i] for i in order]
    needed = set(wanted)
    for node in reversed(graph.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    before = Graph()
    copies: dict[Node, Node] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder" or node in needed:
            copies[node] = before.node_copy(node, lambda used: copies[used])
    before.output(tuple(copies[node] for node in wanted))
    prepare: Callable[..., Sequence[Any]] = GraphModule(graph, before).forward
    return prepare


# ---------------------------------------------------------------------------------------------- running


def _becomes_boolean(call: RecordedCall, scalar: RecordedValue) -> bool:
    """Whether a fraction is converted to a boolean, which kernels hold as integers: only its value says which."""
    record = find_record(call.op._full_name)
    if record is None or record.kind != "pointwise" or record.details["promote"] not in ("first", "self"):
        return False
    first = call.args[0] if call.args else None
    return isinstance(first, RecordedValue) and first.dtype == fl.bool and scalar.dtype.is_floating_point


class _Refused(BaseException):
    """A scalar takes part in what cannot read it from memory. Not a failure, hence no Exception."""


class _DividedFunction:
    """A divided graph, compiled for each set of values that it depends on."""

    def __init__(
        self, divided: Divided, fuse: bool, settings: dict[str, Any] | None, parametric: bool, origin: Origin
    ) -> None:
        self.divided = divided
        self.parametric = parametric
        self.origin = origin
        self.fuse = fuse
        self.settings = settings
        self.values = [i for i, kind in enumerate(divided.kinds) if kind is Kind.VALUE]
        self.compiled: dict[Any, Callable[..., Any]] = {}
        self.warned = False

    def __call__(self, args: Sequence[Any]) -> Any:
        inputs = self.divided.prepare(*args)
        if not self.values:
            return (self.compiled.get(None) or self._compile(None, inputs))(inputs)
        key = tuple([_identity(inputs[i]) for i in self.values])
        run = self.compiled.get(key)
        if run is None:
            if not self._has_room(inputs):
                return self.divided.main(*inputs)
            run = self._compile(key, inputs)
        return run([value for i, value in enumerate(inputs) if i not in self.values])

    def _has_room(self, inputs: Sequence[Any]) -> bool:
        """Whether one more set of values may be compiled for."""
        if all(type(inputs[i]) is not float for i in self.values):
            if len(self.compiled) >= MOST_INTEGERS:
                del self.compiled[next(iter(self.compiled))]
            return True
        if len(self.compiled) < MOST_FLOATS:
            return True
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"[compile] a graph was compiled for {MOST_FLOATS} sets of floats, the limit; other values run operator by "
                "operator. Pass the float as a tensor, or use it only as an operand of arithmetic with tensors.",
                stacklevel=2,
            )
        return False

    def _compile(self, key: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        kinds = [kind for kind in self.divided.kinds if kind is not Kind.VALUE]
        main = self.divided.main
        if self.values:
            fixed = {i: inputs[i] for i in self.values}
            count = len(inputs)

            def main(*rest: Any) -> Any:
                others = iter(rest)
                return self.divided.main(*(fixed[i] if i in fixed else next(others) for i in range(count)))

        compiled = self.compiled[key] = _with_scalars(
            main, kinds, self.fuse, self.settings, self.parametric, self.origin
        )
        return compiled


def _identity(value: Any) -> Any:
    """What tells values apart that would compare equal (0.0 and -0.0), and knows nan again."""
    return value.hex() if type(value) is float else value


def _with_scalars(
    main: Callable[..., Any],
    kinds: Sequence[Kind],
    fuse: bool,
    settings: dict[str, Any] | None,
    parametric: bool,
    origin: Origin,
) -> Callable[[Sequence[Any]], Any]:
    """A function of tensors and scalars that are read from memory, compiled; it takes a list."""
    scalars = [i for i, kind in enumerate(kinds) if kind is not Kind.TENSOR]
    if not scalars:
        run = compile_tensor_function(main, len(kinds), fuse, settings=settings, parametric=parametric, origin=origin)
        return lambda inputs: run(*inputs)

    def original(*args: Any) -> Any:
        return main(*(a.item() if i in scalars else a for i, a in enumerate(args)))

    compiler = ScalarGraphCompiler(main, fuse, kinds, settings, origin)
    run = specialized_function(len(kinds), compiler.graph_for, original, parametric and compiler.parametric)

    def call(inputs: Sequence[Any]) -> Any:
        tensors = list(inputs)
        for i in scalars:
            tensors[i] = _in_memory(tensors[i])
        return run(*tensors)

    return call


def _in_memory(value: float | int) -> Any:
    """A scalar as a tensor that promotes like a number."""
    dtype = fl.float64 if type(value) is float else fl.int64
    return fl.scalar_tensor(value, dtype=dtype, device="cpu")._mark_wrapped_number()


def _numbers(value: Any) -> list[Any]:
    """The numbers among arguments."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in _numbers(item)]
    return [value] if isinstance(value, (bool, int, float, complex)) else []


class ScalarGraphCompiler(GraphCompiler):
    """Compiles a function some of whose inputs are tensors that hold one scalar."""

    def __init__(
        self,
        function: Callable[..., Any],
        fuse: bool,
        kinds: Sequence[Kind],
        settings: dict[str, Any] | None,
        origin: Origin,
    ) -> None:
        super().__init__(self._with_stand_ins, fuse, settings=settings, origin=origin)
        self.original = function
        self.kinds = kinds
        # Values that no program contains by itself.
        marked = [i for i, kind in enumerate(kinds) if kind in (Kind.UPDATE, Kind.ARGUMENT)]
        self.stand_ins = {i: 1.2345671e-3 + 3.21e-7 * i for i in marked}
        self.others: list[dict[int, float]] = [
            {i: 2.3456719e-3 - 4.57e-7 * i for i in marked},  # in the opposite order
            {i: -3.1234567 - 4.57e-3 * i for i in marked},
            {i: 1234.567 + 3.21 * i for i in marked},
            *(dict.fromkeys(marked, value) for value in (0.0, 1.0, 2.0, math.inf)),
        ]

    def _with_stand_ins(self, *args: Any) -> Any:
        return self.original(*(self.stand_ins.get(i, a) for i, a in enumerate(args)))

    def _trace(self, record: Callable[..., Trace], inputs: Sequence[Any], definitions: Any) -> Trace:
        try:
            trace: Trace = record(self.function, inputs, definitions)
            if Kind.ARGUMENT in self.kinds:
                self._check_by_others(trace, lambda function: record(function, inputs, definitions))
        except DependsOnData:
            if Kind.OPERAND in self.kinds:  # it may depend on that of a scalar
                raise _Refused from None
            raise
        scalars: dict[Any, ScalarInput] = {}  # by stand-in, or by the value of an operand
        for i, kind in enumerate(self.kinds):
            if kind is not Kind.TENSOR:
                known = trace.inputs[i]
                scalar = ScalarInput(known.index, known.tensor, known.storage)
                scalars[self.stand_ins.get(i, known)] = trace.inputs[i] = scalar
        used: set[float] = set()
        for i, call in enumerate(trace.calls):
            trace.calls[i] = self._with_inputs(call, scalars, used)
        if used != set(self.stand_ins.values()):
            raise _Refused
        return trace

    def _check_by_others(self, trace: Trace, record: Callable[[Any], Trace]) -> None:
        """Refuses a recording that differs from ones with other stand-ins by more than these."""
        for others in self.others:
            try:
                again = record(lambda *args: self.original(*(others.get(i, a) for i, a in enumerate(args))))  # noqa: B023
            except Exception:  # it checks what it is given
                raise _Refused from None
            pairs = {(repr(value), repr(others[i])) for i, value in self.stand_ins.items()}
            if [call.op for call in trace.calls] != [call.op for call in again.calls]:
                raise _Refused
            for first, second in zip(trace.calls, again.calls):
                before, after = (list(map(repr, _numbers((c.args, c.kwargs)))) for c in (first, second))
                if len(before) != len(after) or any(a != b and (a, b) not in pairs for a, b in zip(before, after)):
                    raise _Refused

    def _with_inputs(self, call: RecordedCall, scalars: dict[Any, ScalarInput], used: set[float]) -> RecordedCall:
        """The call with scalar inputs in the place of what stands for them."""

        def replace(argument: Any) -> Any:
            if type(argument) is float and argument in scalars:
                record = find_record(call.op._full_name) or find_record(call.op._full_name.replace("_.", "."))
                if record is None or record.kind not in ("update", "pointwise"):
                    raise _Refused
                used.add(argument)
                return scalars[argument]
            if isinstance(argument, RecordedValue):
                if argument in scalars and _becomes_boolean(call, argument):
                    raise _Refused
                return scalars.get(argument, argument)
            if isinstance(argument, (list, tuple)) and any(v in scalars for v in values_in(argument)):
                raise _Refused
            return argument

        args = tuple(replace(a) for a in call.args)
        kwargs = {k: replace(v) for k, v in call.kwargs.items()}
        if all(a is b for a, b in zip(args, call.args)) and all(v is call.kwargs[k] for k, v in kwargs.items()):
            return call
        replaced = RecordedCall(call.op, args, kwargs, call.results, call.writes)
        replaced.backward, replaced.line = call.backward, call.line
        return replaced
