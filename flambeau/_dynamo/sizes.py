"""Symbolic sizes of one capture: where symbols come from, their nodes in the graph, and their guards.

Sizes of tensors that come in as arguments are symbols from the first capture on. What the program assumed about them (a
branch, an index) is recorded by the ShapeEnv and handed to the native guards as small programs.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from flambeau import _C
from flambeau._dynamo import config
from flambeau._dynamo.exc import ConstraintViolationError
from flambeau._dynamo.source import Source
from flambeau._subclasses.fake_attributes import SymbolicSize
from flambeau._subclasses.fake_data import new_number
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Atom, Expr, single_symbol
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt, sym_max, sym_min
from flambeau.ops.symbolic.printing import python_condition, python_text
from flambeau.ops.symbolic.shape_env import _PACKAGE, ShapeEnv, user_line

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer
    from flambeau._dynamo.traced import TracedTensor

SYMBOLIC = frozenset({SymInt, SymBool, SymFloat, SymbolicSize})
_OPCODES = _C._guard_names()[2]
Program = list[tuple[int, int]]  # (opcode, argument) of the native evaluator (csrc/python/guards.cpp), postfix


class Sizes:
    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.env = ShapeEnv()
        self.env.where = self._where
        self.env.listener = self._check
        self.mode = FakeTensorMode(shape_env=self.env, keeps_history=False)
        self.keep_data_in_graph(False)
        self.slots: dict[Atom, int] = {}
        self.places: dict[
            Atom, tuple[Source, int]
        ] = {}  # of the dimension (or -1: the number itself) a symbol stands for
        self.nodes: dict[Expr, Any] = {}
        self.origins: dict[Atom, Any] = {}
        self.pending: list[tuple[int, Any]] = []  # slots of strides, and what they must be
        self._message = ""  # of the assert statement that is recorded
        self.exact_strides = False  # the program read strides: those of dimensions of one element count, too

    def fake(self, value: Any, source: Source, dynamic: list[int]) -> tuple[Any, list[int]]:
        """The stand-in of a tensor from outside, with symbols for the given dimensions; the slots of its sizes."""
        slots = [-1] * value.ndim
        if not dynamic:
            return self.mode.from_tensor(value, static_shapes=True), slots
        fake = self.mode.from_tensor(value, static_shapes=False, dynamic_dims=dynamic, source=source.describe())
        for dim in dynamic:
            atom = single_symbol(fake.geometry.sizes[dim].expr)
            assert atom is not None
            slots[dim] = self.slots[atom] = len(self.slots)
            self.places[atom] = (source, dim)
        return fake, slots

    def check_promises(self, traced: TracedTensor) -> None:
        """Raises where a size that mark_dynamic() promised to vary was taken for a number."""
        for dim, (least, most) in getattr(traced.real, "_dynamo_dynamic", {}).items():
            dim %= traced.real.ndim
            size = traced.real.shape[dim]
            place = f"{traced.source.describe()}.size()[{dim}]" if traced.source else f"size()[{dim}]"
            if not (least or 0) <= size <= (size if most is None else most):
                raise ConstraintViolationError(
                    f"[mark_dynamic] expected a size from {least} to {most} at {place}, got {size}: Constraints violated ({place})!"
                )
            slot = traced.slots[dim]
            symbols = [atom for atom, own in self.slots.items() if own == slot]
            if slot < 0 or not symbols:
                continue
            low, high = self.env.bounds(_symbol(symbols[0]))
            if low == high:
                raise ConstraintViolationError(
                    f"[mark_dynamic] expected {place} to vary, as was promised, got a program for {low} alone: Constraints violated "
                    f"({place})! You marked {place} as dynamic but your code specialized it to be a constant ({low}). Either remove the "
                    "mark_dynamic or use a less strict API such as maybe_mark_dynamic."
                )

    def keep_data_in_graph(self, whole: bool) -> None:
        """Lets numbers and sizes that depend on data be part of the graph, where that is wanted or all is to be one graph."""
        self.mode.allows_scalars = whole or config.capture_scalar_outputs
        self.mode.allows_unknown_sizes = whole or config.capture_dynamic_output_shape_ops

    def forget_program(self) -> None:
        """Lets go of the capture and its tensors: graphs keep their symbols, and with them what those refer to."""
        self.env.where = user_line
        self.env.listener = None
        self.mode.forget_tensors()

    def forget_nodes(self, erased: set[Any]) -> None:
        self.nodes = {e: node for e, node in self.nodes.items() if isinstance(node, int) or node not in erased}

    def _where(self) -> tuple[str, int]:
        """File and line of the program, for guards: the innermost frame that is not the library's."""
        frame = self.tracer.frame
        while frame is not None and frame.parent is not None and frame.code.co_filename.startswith(_PACKAGE):
            frame = frame.parent
        return user_line() if frame is None else (frame.code.co_filename, frame.line())

    def bind(self, traced: TracedTensor) -> None:
        """Notes the graph input that symbols are read from."""
        for dim, size in enumerate(traced.first_geometry.sizes):
            if type(size) is SymInt:
                atom = single_symbol(size.expr)
                if atom is not None:
                    self.origins.setdefault(atom, (traced, dim))

    def bind_unbacked(self, traced: TracedTensor) -> None:
        """Notes the tensor that sizes which depend on data are read from."""
        for dim, size in enumerate(traced.fake.geometry.sizes):
            if self.env.is_unbacked(size):
                atom = single_symbol(size.expr)
                if atom is not None and atom not in self.origins and _symbol(atom) not in self.nodes:
                    self.origins[atom] = (traced, dim)
                    traced.node.meta["reads_data"] = True

    def read(self, traced: TracedTensor) -> SymInt:
        """A symbol for the integer in a tensor."""
        symbol: SymInt = new_number(self.env, traced.fake.dtype)
        node = self.tracer.builder.add_node("call_method", "item", (traced,), {})
        node.meta["example_value"] = symbol
        node.meta["reads_data"] = True
        self.nodes[symbol.expr] = node
        return symbol

    def number(self, value: int, source: Source) -> SymInt:
        """A symbol for an integer from outside."""
        symbol = self.env.create_symbol(value, source.describe(), lower=-(2**62))
        atom = single_symbol(symbol.expr)
        assert atom is not None
        self.slots[atom] = len(self.slots)
        self.places[atom] = (source, -1)
        return symbol

    def slot_of(self, value: SymInt) -> int:
        atom = single_symbol(value.expr)
        assert atom is not None
        return self.slots[atom]

    # ------------------------------------------------------------------------------------------ use

    def node(self, value: SymInt) -> Any:
        """The graph node of a symbolic integer, or a number when it became one."""
        return self._node(self.env.simplify(value.expr))

    def _node(self, expr: Expr) -> Any:
        if expr.is_constant:
            return expr.constant
        node = self.nodes.get(expr)
        if node is None:
            node = self._sum(expr)
            if not isinstance(node, int):
                node.meta.setdefault("example_value", self.env.sym_int(expr))
            self.nodes[expr] = node
        return node

    def _call(self, function: Any, *args: Any) -> Any:
        node = self.tracer.builder.graph.call_function(function, args)
        return node

    def _sum(self, expr: Expr) -> Any:
        total: Any = None
        for monomial, factor in expr.terms.items():
            term: Any = None
            for atom in monomial:
                part = self._atom(atom)
                term = part if term is None else self._call(operator.mul, term, part)
            if term is None:
                term = factor
            elif factor != 1:
                term = self._call(operator.mul, term, factor)
            total = term if total is None else self._call(operator.add, total, term)
        return total

    def _atom(self, atom: Atom) -> Any:
        if atom.kind == "symbol":
            origin = self.origins.get(atom)
            if origin is None and _symbol(atom) in self.nodes:
                return self.nodes[_symbol(atom)]
            if origin is None:
                source, dim = self.places[atom]
                if dim < 0:
                    number_node = self.tracer.builder.number_input(source, self.env.hints[atom])
                    self.nodes[_symbol(atom)] = number_node
                    return number_node
                raise AssertionError("a size without a tensor")
            traced, dim = origin
            key = _symbol(atom)
            if key not in self.nodes:
                node = self.tracer.builder.graph.call_method("size", (traced.node, dim))
                node.meta["example_value"] = self.env.sym_int(key)
                self.nodes[key] = node
            return self.nodes[key]
        parts = [self._node(arg) for arg in atom.args]
        if atom.kind == "floordiv":
            return self._call(operator.floordiv, *parts)
        return self._call(sym_min if atom.kind == "min" else sym_max, *parts)

    def condition(self, condition: Condition) -> Any:
        """The graph node of a condition."""
        if condition.kind in ("and", "or"):
            join = operator.and_ if condition.kind == "and" else operator.or_
            return functools.reduce(lambda a, b: self._call(join, a, b), map(self.condition, condition.parts))
        compare, expr, number = condition.comparison()
        node = self._call(compare, self._node(expr), number)
        node.meta["example_value"] = True
        return node

    def _check(self, condition: Condition) -> None:
        """Puts into the graph what was assumed of numbers that depend on data."""
        node = self.condition(condition)
        self._call(check_assumption, node, str(condition), *filter(None, [self._message])).meta["reads_data"] = True
        self.tracer.builder.operations += 1

    def assert_in_graph(self, value: SymBool, message: str) -> bool:
        """Assumes a condition on data; the graph raises the message where it is false. False if it cannot hold."""
        self._message = message
        try:
            return self.env.assume(value)
        finally:
            self._message = ""

    def text(self, value: SymInt, name: Any) -> str:
        """Python code for a symbolic integer; `name` gives the code of a place's dimension."""
        expr = self.env.simplify(value.expr)
        return f"({python_text(expr, lambda atom: name(*self.places[atom]))})"

    # ------------------------------------------------------------------------------------------ guards

    def facts(self, traced: TracedTensor) -> tuple[Any, ...]:
        """What the native guard checks of a tensor: (tensor, sizes, strides, symbols, whether contiguous)."""
        value = traced.real
        if all(slot < 0 for slot in traced.slots):
            return (value,)
        contiguous = value.is_contiguous() and not self.exact_strides
        symbols = list(traced.slots)
        for dim in range(value.ndim):
            if contiguous:
                symbols.append(-1)
                continue
            slot = len(self.slots) + len(self.pending)
            symbols.append(slot)
            self.pending.append((slot, traced.first_geometry.strides[dim]))
        return value, tuple(value.shape), (-1,) * value.ndim, tuple(symbols), contiguous

    def loose_facts(self, traced: TracedTensor) -> tuple[Any, ...]:
        """For a second way to the same tensor, whose sizes are checked at the first."""
        value = traced.real
        sizes = tuple(-1 if slot >= 0 else size for slot, size in zip(traced.slots, value.shape))
        return value, sizes, (-1,) * value.ndim, (-1,) * (2 * value.ndim), False

    def all_relations(self) -> tuple[int, tuple[Any, ...]]:
        out: list[tuple[Any, str]] = []
        for guard in self.env.guards:
            program: Program = []
            self._condition(guard.condition, program)
            out.append((tuple(program), f"sizes: {python_condition(guard.condition, self._name)}"))
        if self.env.float_guards:
            # The native guards know integers only: what a float was computed from stays as it is.
            used = _Used(self.env.hints)
            for float_guard in self.env.float_guards:
                float_guard.compute(used)
            for atom, slot in self.slots.items():
                if atom not in used.seen:
                    continue
                program = [(_OPCODES["symbol"], slot), (_OPCODES["const"], self.env.hints[atom]), (_OPCODES["eq"], 0)]
                out.append((tuple(program), f"sizes: {self._name(atom)} == {self.env.hints[atom]}"))
        for slot, stride in self.pending:
            program = [(_OPCODES["symbol"], slot)]
            if type(stride) is SymInt:
                self._expression(stride.expr, program)
            else:
                program.append((_OPCODES["const"], int(stride)))
            program.append((_OPCODES["eq"], 0))
            out.append((tuple(program), "strides of a tensor"))
        return len(self.slots) + len(self.pending), tuple(out)

    def _name(self, atom: Atom) -> str:
        if atom not in self.places:
            return atom.name
        source, dim = self.places[atom]
        return f"{source.describe()}.size({dim})" if dim >= 0 else source.describe()

    def _condition(self, condition: Condition, program: Program) -> None:
        if condition.kind in ("and", "or"):
            if not condition.parts:
                program.append((_OPCODES["const"], int(condition.kind == "and")))
                return
            for i, part in enumerate(condition.parts):
                self._condition(part, program)
                if i:
                    program.append((_OPCODES["and"] if condition.kind == "and" else _OPCODES["or"], 0))
            return
        if condition.kind == "ge":
            program.append((_OPCODES["const"], 0))
            self._expression(condition.expr, program)
            program.append((_OPCODES["le"], 0))
            return
        self._expression(condition.expr, program)
        program.append((_OPCODES["const"], 0))
        program.append((_OPCODES["eq"] if condition.kind == "eq" else _OPCODES["ne"], 0))

    def _expression(self, expr: Expr, program: Program) -> None:
        if not expr.terms:
            program.append((_OPCODES["const"], 0))
            return
        for i, (monomial, factor) in enumerate(expr.terms.items()):
            program.append((_OPCODES["const"], factor))
            for atom in monomial:
                if atom.kind == "symbol":
                    program.append((_OPCODES["symbol"], self.slots[atom]))
                else:
                    for j, arg in enumerate(atom.args):
                        self._expression(arg, program)
                        if j:
                            kind = _OPCODES[atom.kind]
                            program.append((kind, 0))
                program.append((_OPCODES["mul"], 0))
            if i:
                program.append((_OPCODES["add"], 0))


def check_assumption(holds: Any, text: str, message: str | None = None) -> None:
    """What a graph that depends on an assumption about data, or asserts it, does when it runs."""
    if isinstance(holds, SymBool):
        holds = holds.env.assume(holds)
    if not holds and message is not None:
        raise RuntimeError(f"[compile] expected an assertion to hold, got one that failed: {message}")
    if not holds:
        raise RuntimeError(f"[compile] expected {text}, got data for which it is false: Runtime assertion failed for expression {text}")  # fmt: skip


class _Used(dict[Atom, int]):
    """Values of symbols, and which of them were asked for."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.seen: set[Atom] = set()

    def __getitem__(self, atom: Atom) -> int:
        self.seen.add(atom)
        return super().__getitem__(atom)

    def get(self, atom: Atom, default: Any = None) -> Any:
        self.seen.add(atom)
        return super().get(atom, default)


def _symbol(atom: Atom) -> Expr:
    from flambeau.ops.symbolic.expr import symbol

    return symbol(atom.name, atom.lower)


def plain(value: Any) -> Any:
    """A value with symbolic integers turned into numbers, which guards them: for keys, text and hashes."""
    cls = type(value)
    if cls is SymInt:
        return int(value)
    if cls is SymbolicSize:
        import flambeau as fl

        return fl.Size([int(v) for v in value])
    if cls is tuple:
        return tuple(plain(v) for v in value) if any(type(v) in SYMBOLIC or type(v) is tuple for v in value) else value
    if cls is list and any(type(v) in SYMBOLIC for v in value):
        return [plain(v) for v in value]
    return value
