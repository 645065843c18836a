"""Printing a group of loops as one C++ function.

The function takes pointers and numbers: the number of threads, the sizes of the dimensions, and every stride that is
neither 0 nor 1. Sizes are never printed, so one function serves every size for which the loops lie in memory alike.

    rows, in parallel
      for each pass over the columns: a vectorised loop that computes, stores, and reduces
      between the passes: what is computed once a row
    after the rows: column reductions are completed over the threads

A value that a later pass needs is read back if it was stored, computed again if it is cheap, else kept in a scratch row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._inductor.ir import Access, Buffer
from flambeau._inductor.iteration import assign_passes, iteration_space
from flambeau._inductor.schedule import Group, Level, Member
from flambeau._inductor.size_numbers import size_in
from flambeau.ops.expr import Expr

__all__ = ["Kernel", "print_group", "work_of"]

# dtype: type in memory, type to compute in
TYPES = {
    fl.float32: ("float", "float"),
    fl.float64: ("double", "double"),
    fl.bfloat16: ("bfloat16", "float"),
    fl.float16: ("_Float16", "float"),
    fl.bool: ("bool", "int64_t"),
    fl.uint8: ("uint8_t", "int64_t"),
    fl.int8: ("int8_t", "int64_t"),
    fl.int16: ("int16_t", "int64_t"),
    fl.int32: ("int32_t", "int64_t"),
    fl.int64: ("int64_t", "int64_t"),
    fl.complex64: ("complex64", "complex64"),
    fl.complex128: ("complex128", "complex128"),
}
_PARTS = {"complex64": "float", "complex128": "double"}  # of complex numbers
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^", "lshift": "<<",
    "rshift": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "land": "&&", "lor": "||",
}  # fmt: skip
_PREFIX = {"neg": "-", "bitnot": "~", "lnot": "!"}
_CHEAP = frozenset((*_INFIX, *_PREFIX, "where", "abs", "maximum", "minimum", "const", "load", "arg", "real", "conj"))
# Of complex numbers. Quotients and functions, whose special values the standard library settles, stay with operators.
_OF_COMPLEX = frozenset("add sub mul neg conj real imag abs make_complex where eq ne land lor lnot const load".split())
_EXTREMES = frozenset(("maximum", "minimum"))
_OPENMP_REDUCTIONS = {"add": "+", "mul": "*", "bitor": "|", "bitand": "&"}  # that OpenMP has a name for
SMALL_WORK = _C._PARALLEL_GRAIN  # operations for which a kernel runs on one thread
_MOST_THREADS = _C._MOST_THREADS
_HEAD = "@HEAD@"  # where pointers and sizes are declared again: captured ones would not count as restricted
# Their vectorised forms are right for arguments up to math::trig_limit; sin_any and the like take any argument.
TRIGONOMETRY = frozenset(("sin", "cos", "tan"))
_TRIGONOMETRIC_CALL = re.compile(r"math::(sin|cos|tan)\(((?:[^()]|\([^()]*\))*)\)")
BLOCK = 1024  # elements that are summed in single precision before a sum goes on in double
STREAMS = 4  # of columns that are reduced side by side
FEW_LINES = 10  # of a reduction that waits for itself
LANES = 32  # columns whose extremes are kept side by side; build.py reduces them in halves


@dataclass
class Kernel:
    """A printed function, and what a call of it passes."""

    source: str  # with @NAME@ for the function's name
    pointers: list[tuple[Buffer, int]]  # buffer and offset in elements
    numbers: list[int]
    work: int
    functions: set[str]  # of the math library


def is_known_of_complex(node: Expr) -> bool:
    """Whether an expression on complex numbers can be printed."""
    return node.op in _OF_COMPLEX and all(is_known_of_complex(a) for a in node.args if isinstance(a, Expr))


def _literal(value: Any, ctype: str) -> str:
    if (part := _PARTS.get(ctype)) is not None:
        return f"complex_math::make_complex({_literal(value.real, part)}, {_literal(value.imag, part)})"
    if isinstance(value, bool) and ctype not in ("float", "double"):
        return f"{ctype}({str(value).lower()})"
    if value != value:
        return f"std::numeric_limits<{ctype}>::quiet_NaN()"
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}std::numeric_limits<{ctype}>::infinity()"
    if isinstance(value, int) and value == -(1 << 63):
        return f"{ctype}(-9223372036854775807LL - 1)"
    if isinstance(value, int):
        return f"{ctype}({int(value)}LL)"
    return f"{ctype}({value!r})"


class _Body:
    """Statements at one place of the kernel; each shared subexpression is computed once."""

    def __init__(self, writer: _Writer, walks: bool = False) -> None:
        self.writer = writer
        self.walks = walks  # is the body of a walk over columns
        self.lines: list[str] = []
        self.seen: dict[Any, str] = {}

    def expression(self, node: Expr, leaves: Any, ctype: str) -> str:
        """The name or literal of an expression's value."""
        if node.op == "const":
            return _literal(node.args[0], ctype)
        if node.op in ("load", "arg"):
            return str(leaves(node))
        op = node.op
        parts = [self.writer.size_number(a, op, ctype) or self.expression(a, leaves, ctype) for a in node.args]  # type: ignore[arg-type]
        if op == "mul" and (one := _literal(1, ctype)) in parts:
            return parts[1 - parts.index(one)]
        if op == "div" and ctype in ("float", "double"):
            op, parts = self.writer.divided(node.args[1], parts, ctype, self.walks)
        key = (op, ctype, *parts)
        if key not in self.seen:
            self.seen[key] = self.writer.fresh("t")
            self.lines.append(f"const auto {self.seen[key]} = {self._text(op, parts, ctype)};")
        return self.seen[key]

    def _text(self, op: str, parts: list[str], ctype: str) -> str:
        if op in _INFIX:
            return f"{parts[0]} {_INFIX[op]} {parts[1]}"
        if op in _PREFIX:
            return f"{_PREFIX[op]}{parts[0]}"
        if op == "where":
            return f"{parts[0]} ? {parts[1]} : {parts[2]}"
        if ctype in _PARTS:
            return f"complex_math::{op}({', '.join(parts)})"
        if op == "exp" and ctype in ("float", "double"):
            op = "exp_vanishing"
        if op in TRIGONOMETRY and not self.walks:
            op += "_any"
        self.writer.functions.add(op if ctype != "int64_t" else f"{op} of integers")
        return f"math::{op}({', '.join(parts)})"


class _Writer:
    def __init__(self, group: Group, stored: set[Buffer]) -> None:
        self.group = group
        self.stored = stored
        # By what is made: the buffer that it is written over, both by one pointer.
        self.over = {b: _state_of(group, memory) for b, memory in group.overwrites.items() if b in stored}
        self.functions: set[str] = set()
        self.count = 0
        self.pointers: dict[tuple[Buffer, int], str] = {}
        self.written: set[str] = set()
        self.strides: dict[tuple[str, tuple[int, ...]], str] = {}
        self.numbers: list[int] = [1]
        self.number_lines: list[str] = []
        self.size_numbers: dict[int, str] = {}  # by identity of the literal
        self.row_values: dict[Buffer, str] = {}  # what is known once a row
        self.reciprocals: dict[str, str] = {}  # of those
        self.before_walk: list[str] = []  # statements that a walk over the columns needs
        self.row_accumulators: dict[Buffer, str] = {}  # accumulators of row reductions
        self.column_accumulators: dict[Buffer, str] = {}  # accumulators of column reductions
        self._arrange()
        self._depths()

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ---------------------------------------------------------------- dimensions

    def _arrange(self) -> None:
        space = iteration_space(self.group)
        self.sizes, self.picks, self.rows = space.sizes, space.dims, space.rows
        self.size_names = [self._number(n, f"n{k}") for k, n in enumerate(self.sizes)]

    def _number(self, value: int, name: str) -> str:
        self.number_lines.append(f"const int64_t {name} = n[{len(self.numbers)}];")
        self.numbers.append(value)
        return name

    def size_number(self, node: Expr, op: str, ctype: str) -> str | None:
        """An operand that may come from sizes, as a number of the call."""
        if id(node) not in self.size_numbers and (size := size_in(node, op, ctype)):
            self.size_numbers[id(node)] = size[1].format(self._number(size[0], f"c{len(self.numbers)}"))
        return self.size_numbers.get(id(node))

    # ---------------------------------------------------------------- which pass computes what

    def _depths(self) -> None:
        self.depth, self.passes = assign_passes(self.group)
        self.scratch: dict[Buffer, str] = {}
        for member in self.group.members:
            if member.level is not Level.POINT or member.loop.write.buffer in self.stored:
                continue
            mine = self.depth[member.loop.write.buffer]
            used_later = any(
                self.depth[user.loop.write.buffer] > mine
                for user in self.group.members
                if any(a.buffer is member.loop.write.buffer for a in user.reads)
            )
            if used_later and not self._is_cheap(member):
                self.scratch[member.loop.write.buffer] = self.fresh("row")

    def _is_cheap(self, member: Member) -> bool:
        def cheap(node: Expr) -> bool:
            return node.op in _CHEAP and all(cheap(a) for a in node.args if isinstance(a, Expr))

        if not cheap(member.loop.expr):
            return False
        for access in member.reads:
            source = self.group.made.get(access.buffer)
            if (
                source is None
                or source.level is not Level.POINT
                or access.buffer in self.stored
                or access.buffer in self.scratch
            ):
                continue
            if not self._is_cheap(source):
                return False
        return True

    def divided(self, divisor: Any, parts: list[str], ctype: str, walks: bool) -> tuple[str, list[str]]:
        """A division, or the multiplication that does the same: by a power of two, or by what is fixed for a row."""
        number = divisor.args[0] if divisor.op == "const" and id(divisor) not in self.size_numbers else None
        if isinstance(number, (int, float)) and number and math.frexp(number)[0] in (0.5, -0.5):
            return "mul", [parts[0], _literal(1.0 / number, ctype)]
        if walks and parts[1] in self.row_values.values():
            if parts[1] not in self.reciprocals:
                self.reciprocals[parts[1]] = self.fresh("by")
                self.before_walk.append(f"const auto {self.reciprocals[parts[1]]} = 1 / {parts[1]};")
            return "mul", [parts[0], self.reciprocals[parts[1]]]
        return "div", parts

    # ---------------------------------------------------------------- accesses

    def pointer(self, access: Access, write: bool = False) -> str:
        key = (self.over.get(access.buffer, access.buffer), access.offset)
        if key not in self.pointers:
            self.pointers[key] = f"p{len(self.pointers)}"
        name = self.pointers[key]
        if write:
            self.written.add(name)
        return name

    def index(self, access: Access, columns: list[str] | None) -> str:
        """The position of an element from its pointer; columns None: for what depends on the row only."""
        name = self.pointer(access)
        variables = [f"r{k}" for k in range(self.rows)] + (columns if columns is not None else [])
        terms = []
        for k, variable in enumerate(variables):
            stride = access.strides[self.picks[k]]
            if stride == 0:
                continue
            if stride == 1:
                terms.append(variable)
            else:
                key = (name, (k, stride))
                if key not in self.strides:
                    self.strides[key] = self._number(stride, f"s{name[1:]}_{k}_{len(self.strides)}")
                terms.append(f"{variable} * {self.strides[key]}")
        return " + ".join(terms) or "0"

    def load(self, body: _Body, access: Access, columns: list[str] | None) -> str:
        """An element read from memory, in its compute type."""
        text = f"{self.pointer(access)}[{self.index(access, columns)}]"
        key = ("load", text)
        if key not in body.seen:
            ctype = TYPES[access.buffer.dtype][1]
            body.seen[key] = self.fresh("x")
            body.lines.append(f"const {ctype} {body.seen[key]} = load<{ctype}>({text});")
        return body.seen[key]

    # ---------------------------------------------------------------- values

    def value(self, body: _Body, access: Access, user: Member, at: int, columns: list[str] | None) -> str:
        """What a member reads, at pass `at`: a register, or memory."""
        source = self.group.made.get(access.buffer)
        if source is None:
            return self.load(body, access, columns)
        key = ("value", access.buffer)
        if key in body.seen:
            return body.seen[key]
        if source.level is not Level.POINT:
            return self.row_values[access.buffer]
        if self.depth[access.buffer] < at:
            if access.buffer in self.stored:
                return self.load(body, source.write, columns)
            if access.buffer in self.scratch:
                name = self.fresh("x")
                ctype = TYPES[access.buffer.dtype][1]
                body.lines.append(f"const {ctype} {name} = {self.scratch[access.buffer]}[{self.linear(columns)}];")
                body.seen[key] = name
                return name
        return self.compute(body, source, at, columns)

    def compute(self, body: _Body, member: Member, at: int, columns: list[str] | None) -> str:
        """The value of a member at the current point."""
        key = ("value", member.loop.write.buffer)
        if key not in body.seen:
            body.seen[key] = self._named(body, member, self.operand(body, member, at, columns))
        return body.seen[key]

    def _named(self, body: _Body, member: Member, text: str) -> str:
        """A variable for a member's value, rounded or truncated to what its buffer holds: what is computed again must be what
        was stored, for backward compares values."""
        memory, ctype = TYPES[member.loop.write.buffer.dtype]
        name = self.fresh("v")
        narrow = "" if memory == ctype else "rounded" if memory == "bfloat16" else f"({memory})"
        body.lines.append(f"const {ctype} {name} = {narrow}({text});")
        return name

    def operand(self, body: _Body, member: Member, at: int, columns: list[str] | None) -> str:
        """The value of a member's expression, in the type it computes in."""
        ctype = TYPES[member.loop.compute][1]

        def leaf(node: Expr) -> str:
            access = member.reads[node.args[0]]  # type: ignore[call-overload]
            name = self.value(body, access, member, at, columns)
            if TYPES[access.buffer.dtype][1] == ctype:
                return name
            key = ("cast", name, ctype)
            if key not in body.seen:
                body.seen[key] = self.fresh("x")
                body.lines.append(f"const {ctype} {body.seen[key]} = ({ctype}){name};")
            return body.seen[key]

        return body.expression(self._quick(member), leaf, ctype)

    def _quick(self, member: Member) -> Expr:
        """A member's expression, in single precision with quicker functions where they do: for gelu and its derivative
        the normal distribution, which a kernel that has both computes once; for softmax the exponential that eager mode
        uses there. Low precision keeps eager mode's form, whose results it has to meet to the bit."""
        expr = member.loop.expr
        if member.loop.compute is not fl.float32:
            return expr
        return Expr("exp_fast", *expr.args) if self._is_of_softmax(member) else _with_normal_cdf(expr)

    def _is_of_softmax(self, member: Member) -> bool:
        """Whether a member is e to the difference of elements and their row's maximum."""
        expr = member.loop.expr
        difference = self._maker(member, expr.args[0]) if expr.op == "exp" else None
        if difference is None or difference.loop.expr.op != "sub":
            return False
        element, largest = difference.loop.expr.args
        reduction = self._maker(difference, largest)
        if element.op != "load" or reduction is None or reduction.loop.reduce is None:
            return False
        return (
            reduction.loop.reduce.combine.op == "maximum"
            and reduction.loop.expr.op == "load"
            and reduction.reads[0] == difference.reads[element.args[0]]
        )

    def _maker(self, member: Member, node: Any) -> Member | None:
        """The member that makes what a member loads, if this group has it."""
        return self.group.made.get(member.reads[node.args[0]].buffer) if node.op == "load" else None

    def linear(self, columns: list[str] | None) -> str:
        """The number of a column within its row."""
        names = columns or []
        text = names[0] if names else "0"
        for name, size in zip(names[1:], self.size_names[self.rows + 1 :]):
            text = f"({text}) * {size} + {name}"
        return text

    # ---------------------------------------------------------------- the function

    def write(self) -> str:
        members = self.group.members
        self.column_reductions = [m for m in members if m.level is Level.COLUMN_REDUCTION]
        reduces_everything = self.rows == 0 and any(m.level is Level.ROW_REDUCTION for m in members)
        inner = self._reduce_everything() if reduces_everything else self._by_rows()
        head = []
        for k, ((buffer, _), name) in enumerate(self.pointers.items()):
            ctype = TYPES[buffer.dtype][0]
            if name not in self.written:  # loops that read bool are not made vector code by GCC
                ctype = "const uint8_t" if ctype == "bool" else f"const {ctype}"
            head.append(f"{ctype}* __restrict {name} = ({ctype}*)p[{k}];")
        lines = ["const Threads& all_threads = *(const Threads*)n[0];", "const int threads = (int)all_threads.count;"]
        head += self.number_lines
        for line in [*head, *inner]:
            lines += _indented(head) if line == _HEAD else [line]
        text = "\n".join(_indented(lines))
        return f'extern "C" void @NAME@(void* const* p, const int64_t* n) {{\n{text}\n}}\n'

    def _by_rows(self) -> list[str]:
        rows = self.size_names[: self.rows]
        total = " * ".join(rows) or "1"
        flat = self.rows == 0 and not self.column_reductions  # one dimension: the threads divide it
        lines: list[str] = []
        accumulators = self._column_accumulators(lines)
        body: list[str] = []
        body.append(f"const int64_t total = {self.size_names[0] if flat and self.sizes else total};")
        body.append("const int64_t begin = total * thread / team, end = total * (thread + 1) / team;")
        for name, (array, ctype, initial) in accumulators.items():
            body.append(f"{ctype}* __restrict {name} = {array} + thread * width;")
            body.append(f"for (int64_t i = 0; i < width; ++i) {name}[i] = {initial};")
        body += self._scratch_lines()
        if flat:
            body += self._pass(0, "begin", "end") if self.sizes else self._point()
        else:
            inner: list[str] = []
            left = "row"
            for k in range(self.rows - 1, -1, -1):
                inner.append(f"const int64_t r{k} = {left if k == 0 else f'{left} % {rows[k]}'};")
                if k:
                    inner.append(f"const int64_t q{k} = {left} / {rows[k]};")
                    left = f"q{k}"
            for at in range(self.passes):
                inner += self._pass(at)
                inner += self._row_level(at)
            if self.passes == 0:
                inner += self._row_level(0)
            body += ["for (int64_t row = begin; row < end; ++row) {", *_indented(inner), "}"]
        body += self._scratch_free()
        lines += _divided(body)
        lines += self._finish_columns(accumulators)
        return lines

    def _point(self) -> list[str]:
        """A group over a single element."""
        body = _Body(self)
        for member in self.group.members:
            self._store(body, member, self.compute(body, member, 0, []), [])
        return ["if (begin < end) {", *_indented(body.lines), "}"]

    def _store(self, body: _Body, member: Member, name: str, columns: list[str] | None) -> None:
        if member.loop.write.buffer in self.stored:
            old = self.over.get(member.loop.write.buffer)
            if old is not None:  # whoever needs that at this point reads it before it is gone
                self.load(body, Access(old, member.write.offset, member.write.strides), columns)
            target = f"{self.pointer(member.write, write=True)}[{self.index(member.write, columns)}]"
            body.lines.append(f"store({target}, {name});")

    def _pass(self, at: int, begin: str = "0", end: str | None = None, prefix: str = "") -> list[str]:
        """One walk over the columns of a row. `begin` and `end` are bounds of the outermost column dimension; `prefix`
        names the accumulators of a thread that walks over a part only."""
        self.reciprocals = {}  # a pass may be a scope of its own
        members = [m for m in self.group.members if self.depth[m.loop.write.buffer] == at and m.level is not Level.ROW]
        sizes = self.size_names[self.rows :]
        columns = [f"c{k}" for k in range(len(sizes))]
        bounds = [("0", size) for size in sizes]
        if bounds:
            bounds[0] = (begin, end or sizes[0])
        body = _Body(self, walks=True)
        lines: list[str] = []  # before the walk
        parts: list[str] = []  # of single precision, before a block
        reductions: dict[str, Any] = {}  # which reduction each of those parts belongs to
        closing: list[str] = []  # after a block
        for member in members:
            buffer = member.loop.write.buffer
            if member.level is Level.POINT:
                if buffer in self.stored or buffer in self.scratch:
                    name = self.compute(body, member, at, columns)
                    self._store(body, member, name, columns)
                    if buffer in self.scratch:
                        body.lines.append(f"{self.scratch[buffer]}[{self.linear(columns)}] = {name};")
                continue
            reduce = member.loop.reduce
            assert reduce is not None
            ctype, wide = TYPES[reduce.accumulate][1], _wide(reduce)
            operand = f"({ctype}){self.operand(body, member, at, columns)}"
            if member.level is Level.COLUMN_REDUCTION:
                target = f"{self.column_accumulators[buffer]}[{self.linear(columns)}]"
                operand = operand if wide == ctype else f"({wide}){operand}"
                body.lines.append(f"{target} = {self._combined(reduce, target, operand, wide)};")
                continue
            total = prefix + self.row_accumulators.setdefault(buffer, self.fresh("fold"))
            part = self.fresh("part")
            lines.append(f"{wide} {total} = {self._initial(reduce, wide)};")
            parts.append(f"{ctype} {part} = {self._initial(reduce, ctype)};")
            reductions[part] = reduce
            body.lines.append(f"{part} = {self._combined(reduce, part, operand, ctype)};")
            closing.append(f"{total} = {self._combined(reduce, total, f'({wide}){part}', wide)};")
        lines += self.before_walk
        self.before_walk = []
        if not body.lines:
            return lines
        if not columns:
            return [*lines, "{", *_indented([*parts, *body.lines, *closing]), "}"]
        inner, (first, last) = columns[-1], bounds[-1]

        def block(statements: list[str]) -> list[str]:
            return self._walk_reductions(inner, statements, reductions) if reductions else _walked(inner, statements)

        arguments = _TRIGONOMETRIC_CALL.findall("\n".join(body.lines))
        if reductions or arguments:
            walk = _full_range(inner, body.lines, arguments, block) if arguments else block(body.lines)
            start = [f"const int64_t e = b + {BLOCK} < {last} ? b + {BLOCK} : {last};", *parts]
            walk = [
                f"for (int64_t b = {first}; b < {last}; b += {BLOCK}) {{",
                *_indented([*start, *walk, *closing]),
                "}",
            ]
        else:
            walk = _walked(inner, body.lines, first, last)
        for name, (low, high) in reversed(list(zip(columns[:-1], bounds))):
            walk = [f"for (int64_t {name} = {low}; {name} < {high}; ++{name}) {{", *_indented(walk), "}"]
        return [*lines, *walk]

    def _walk_reductions(self, inner: str, lines: list[str], reductions: dict[str, Any]) -> list[str]:
        """Reduces the columns from b to e into the parts. Where there is little to compute, each step waits for the
        one before; then the columns are walked in several streams with parts of their own. Extremes have lanes of their
        own: OpenMP has no name for reductions in which NaN wins, and would combine its lanes one after the other."""

        def clauses(names: Any) -> str:
            return "".join(
                f" reduction({self._operation(reduce)} : {', '.join(names(part))})"
                for part, reduce in reductions.items()
            )

        if all(reduce.combine.op in _EXTREMES for reduce in reductions.values()):
            return self._walk_extremes(inner, lines, reductions)
        rest = _walked(inner, lines, clauses=clauses(lambda part: [part]))
        called = {name for line in lines for name in re.findall(r"math::(\w+)", line)}
        named = all(reduce.combine.op in _OPENMP_REDUCTIONS for reduce in reductions.values())
        if len(lines) > FEW_LINES or not called <= _CHEAP or not named:
            return rest
        opening: list[str] = []
        steps: list[str] = []
        joined: list[str] = []
        for k in range(STREAMS):
            text = "\n".join(lines)
            for part, reduce in reductions.items():
                ctype = TYPES[reduce.accumulate][1]
                text = re.sub(rf"\b{part}\b", f"{part}_{k}", text)
                opening.append(f"{ctype} {part}_{k} = {self._initial(reduce, ctype)};")
                joined.append(f"{part} = {self._combined(reduce, part, f'{part}_{k}', ctype)};")
            steps += ["{", *_indented([f"const int64_t {inner} = i + {k} * length;", *text.split("\n")]), "}"]
        several = clauses(lambda part: [f"{part}_{k}" for k in range(STREAMS)])
        return [
            f"const int64_t length = (e - b) / {16 * STREAMS} * 16;  // of a stream",
            *opening,
            f"#pragma omp simd{several}",
            "for (int64_t i = b; i < b + length; ++i)",
            *["{", *_indented(steps), "}"],
            *joined,
            rest[0],
            rest[1].replace("= b;", f"= b + {STREAMS} * length;"),
            *rest[2:],
        ]

    def _walk_extremes(self, inner: str, lines: list[str], reductions: dict[str, Any]) -> list[str]:
        """The same for maxima and minima, each in an array of lanes that stays in registers."""
        text = "\n".join(lines)
        opening: list[str] = []
        closing: list[str] = []
        for part, reduce in reductions.items():
            ctype = TYPES[reduce.accumulate][1]
            text = re.sub(rf"\b{part}\b", f"{part}_lanes[k]", text)
            opening.append(f"{ctype} {part}_lanes[{LANES}];")
            opening.append(f"for (int k = 0; k < {LANES}; ++k) {part}_lanes[k] = {part};")
            closing.append(f"{part} = {self._operation(reduce)}_lanes({part}_lanes);")
        body = ["{", *_indented([f"const int64_t {inner} = i + k;", *text.split("\n")]), "}"]
        return [
            *opening,
            "int64_t i = b;",
            f"for (; i + {LANES} <= e; i += {LANES})",
            *_indented(["#pragma omp simd", f"for (int k = 0; k < {LANES}; ++k)", *body]),
            "#pragma omp simd",
            "for (int k = 0; k < e - i; ++k)",
            *body,
            *closing,
        ]

    def _combined(self, reduce: Any, a: str, b: str, ctype: str) -> str:
        """One step of a reduction, as an expression."""
        scope = _Body(self)
        scope.expression(reduce.combine, lambda node: {"a": a, "b": b}[node.args[0]], ctype)
        (line,) = scope.lines
        return line.partition(" = ")[2].rstrip(";")

    @staticmethod
    def _initial(reduce: Any, ctype: str) -> str:
        if reduce.init in ("lowest", "highest"):
            if reduce.accumulate.is_floating_point:
                return f"{'-' if reduce.init == 'lowest' else ''}std::numeric_limits<{ctype}>::infinity()"
            return f"std::numeric_limits<{ctype}>::{'lowest' if reduce.init == 'lowest' else 'max'}()"
        return _literal(int(reduce.init) if ctype == "int64_t" else reduce.init, ctype)

    def _operation(self, reduce: Any) -> str:
        """The operation of an OpenMP reduction clause."""
        known = _OPENMP_REDUCTIONS.get(reduce.combine.op)
        if known is not None:
            return known
        self.functions.add(reduce.combine.op)
        return f"fold_{reduce.combine.op}"

    def _row_level(self, at: int) -> list[str]:
        """What is known once a row's pass `at` is through: the results of its reductions, and loops over rows only."""
        body = _Body(self)
        for member in self.group.members:
            if self.depth[member.loop.write.buffer] != at or member.level not in (Level.ROW_REDUCTION, Level.ROW):
                continue
            name = self.row_values[member.loop.write.buffer] = self._row_value(body, member)
            self._store(body, member, name, None)
        return body.lines

    def _row_value(self, body: _Body, member: Member) -> str:
        """The value of a member that has one for each row."""
        reduce = member.loop.reduce
        if reduce is None:
            ctype = TYPES[member.loop.compute][1]
            text = body.expression(member.loop.expr, lambda node: self._row_operand(body, member, node, ctype), ctype)
        else:
            wide = _wide(reduce)
            count = " * ".join(self.size_names[self.rows :]) or "1"
            total = self.row_accumulators[member.loop.write.buffer]
            ends = {"a": total, "n": f"({wide})({count})"}
            text = body.expression(reduce.finish, lambda node: ends[node.args[0]], wide)
        return self._named(body, member, text)

    def _row_operand(self, body: _Body, member: Member, node: Expr, ctype: str) -> str:
        access = member.reads[node.args[0]]  # type: ignore[call-overload]
        is_own = access.buffer in self.group.made
        name = self.row_values[access.buffer] if is_own else self.load(body, access, None)
        return name if TYPES[access.buffer.dtype][1] == ctype else f"({ctype}){name}"

    # ---------------------------------------------------------------- reductions of everything

    def _reduce_everything(self) -> list[str]:
        """No rows: each pass is divided over the threads by itself."""
        lines = self._scratch_lines()
        outer = self.size_names[0] if self.sizes else "1"
        for at in range(self.passes):
            walk = self._pass(at, "begin", "end", "mine_")
            joined: list[str] = []
            inner = [
                f"const int64_t begin = {outer} * thread / team, end = {outer} * (thread + 1) / team;",
                *walk,
            ]
            reductions = [
                m
                for m in self.group.members
                if m.level is Level.ROW_REDUCTION and self.depth[m.loop.write.buffer] == at
            ]
            for member in reductions:
                reduce, total = member.loop.reduce, self.row_accumulators[member.loop.write.buffer]
                wide = _wide(reduce)
                lines.append(f"{wide} {total} = {self._initial(reduce, wide)};")
                lines.append(f"{wide} all_{total}[{_MOST_THREADS}];")
                inner.append(f"all_{total}[thread] = mine_{total};")
                combined = self._combined(reduce, total, f"all_{total}[k]", wide)
                joined.append(f"for (int k = 0; k < threads; ++k) {total} = {combined};")  # in a fixed order
            lines += [*_divided(inner), *joined]
            lines += self._row_level(at)
        return lines + self._scratch_free()

    # ---------------------------------------------------------------- column reductions

    def _column_accumulators(self, lines: list[str]) -> dict[str, tuple[str, str, str]]:
        accumulators: dict[str, tuple[str, str, str]] = {}
        if not self.column_reductions:
            return accumulators
        width = " * ".join(self.size_names[self.rows :]) or "1"
        lines.append(f"const int64_t width = {width};")
        for member in self.column_reductions:
            reduce = member.loop.reduce
            assert reduce is not None
            ctype = _wide(reduce)  # there may be many rows
            array, name = self.fresh("sums"), self.fresh("sum")
            lines.append(f"{ctype}* {array} = ({ctype}*)malloc(sizeof({ctype}) * width * threads);")
            accumulators[name] = (array, ctype, self._initial(reduce, ctype))
            self.column_accumulators[member.loop.write.buffer] = name
        return accumulators

    def _finish_columns(self, accumulators: dict[str, tuple[str, str, str]]) -> list[str]:
        lines: list[str] = []
        sizes = self.size_names[self.rows :]
        columns = [f"c{k}" for k in range(len(sizes))]
        count = " * ".join(self.size_names[: self.rows]) or "1"
        for member in self.column_reductions:
            buffer, reduce = member.loop.write.buffer, member.loop.reduce
            assert reduce is not None
            array, ctype, _ = accumulators[self.column_accumulators[buffer]]
            body = _Body(self)
            at = self.linear(columns)
            combined = self._combined(reduce, "all", f"{array}[k * width + {at}]", ctype)
            body.lines.append(f"{ctype} all = {array}[{at}];")
            body.lines.append(f"for (int k = 1; k < threads; ++k) all = {combined};")
            ends = {"a": "all", "n": f"({ctype})({count})"}
            text = body.expression(reduce.finish, lambda node, ends=ends: ends[node.args[0]], ctype)
            target = f"{self.pointer(member.write, write=True)}[{self.index(member.write, columns)}]"
            body.lines.append(f"store({target}, ({TYPES[buffer.dtype][1]})({text}));")
            walk = ["{", *_indented(body.lines), "}"]
            for name, size in reversed(list(zip(columns, sizes))):
                walk = [f"for (int64_t {name} = 0; {name} < {size}; ++{name})", *walk]
            lines += [*walk, f"free({array});"]
        return lines

    # ---------------------------------------------------------------- scratch rows

    def _scratch_lines(self) -> list[str]:
        if not self.scratch:
            return []
        width = " * ".join(self.size_names[self.rows :]) or "1"
        return [
            f"{TYPES[buffer.dtype][1]}* {name} = "
            f"({TYPES[buffer.dtype][1]}*)malloc(sizeof({TYPES[buffer.dtype][1]}) * {width});"
            for buffer, name in self.scratch.items()
        ]

    def _scratch_free(self) -> list[str]:
        return [f"free({name});" for name in self.scratch.values()]


def _divided(body: list[str]) -> list[str]:
    """Runs statements on all threads of the kernel, each with its number and how many there are."""
    opening = "on_threads(all_threads, [&](int thread, int team) __attribute__((noinline)) {"
    return [opening, _HEAD, *_indented(body), "});"]


def _state_of(group: Group, memory: Buffer) -> Buffer:
    """The one state of a memory that a group reads."""
    return next(a.buffer for m in group.members for a in m.reads if a.buffer.memory is memory)


def _walked(inner: str, statements: list[str], first: str = "b", last: str = "e", clauses: str = "") -> list[str]:
    """A vectorised loop over columns."""
    head = f"for (int64_t {inner} = {first}; {inner} < {last}; ++{inner})"
    return [f"#pragma omp simd{clauses}", head, "{", *_indented(statements), "}"]


def _full_range(
    inner: str, statements: list[str], arguments: list[tuple[str, str]], block: Callable[[list[str]], list[str]]
) -> list[str]:
    """The columns from b to e, where trigonometric functions may get arguments beyond the range of their vectorised
    forms: those are looked for first, and such a block is computed by functions for any argument."""
    check = [s for s in statements if s.startswith("const ")]
    check += [f"beyond |= math::abs({name}) > (decltype({name}))math::trig_limit;" for _, name in arguments]
    return [
        "unsigned beyond = 0;",
        *_walked(inner, check, clauses=" reduction(| : beyond)"),
        "if (beyond) {",
        *_indented(block([_TRIGONOMETRIC_CALL.sub(r"math::\1_any(\2)", s) for s in statements])),
        "} else {",
        *_indented(block(statements)),
        "}",
    ]


def _indented(lines: list[str]) -> list[str]:
    return [line if line.startswith("#") else f"  {line}" for line in lines]


def _with_normal_cdf(node: Expr) -> Expr:
    if node.op in ("const", "load", "arg"):
        return node
    args = [_with_normal_cdf(a) if isinstance(a, Expr) else a for a in node.args]
    if node.op == "gelu_erf":
        return Expr("mul", args[0], Expr("normal_cdf", args[0]))
    if (argument := _of_normal_cdf(node.op, args)) is not None:
        return Expr("normal_cdf", argument)
    return Expr(node.op, *args)


def _of_normal_cdf(op: str, args: list[Any]) -> Expr | None:
    """The x of `0.5 * (1 + erf(x * sqrt(0.5)))`."""
    if op != "mul" or not _is_const(args[0], 0.5) or args[1].op != "add" or not _is_const(args[1].args[0], 1):
        return None
    erf = args[1].args[1]
    inner = erf.args[0] if erf.op == "erf" else None
    if inner is None or inner.op != "mul" or not _is_const(inner.args[1], math.sqrt(0.5)):
        return None
    x: Expr = inner.args[0]
    return x


def _is_const(node: Expr, value: float) -> bool:
    return node.op == "const" and node.args[0] == value


def _wide(reduce: Any) -> str:
    """The type in which blocks, and rows, are combined: sums of single precision go on in double."""
    ctype = TYPES[reduce.accumulate][1]
    return "double" if ctype == "float" and reduce.combine.op == "add" else ctype


def print_group(group: Group, stored: set[Buffer]) -> Kernel:
    """The kernel of a group; `stored` are the buffers that somebody outside of it needs."""
    writer = _Writer(group, stored)
    text = writer.write()
    ops = [m.loop.name for m in group.members]
    source = f"// {', '.join(ops)}\n{text}"
    return Kernel(source, list(writer.pointers), writer.numbers, work_of(group), writer.functions)


def work_of(group: Group) -> int:
    """Simple operations of a group."""
    return math.prod(group.dims) * max(sum(_cost(m.loop.expr) for m in group.members), 1)


def _cost(node: Expr) -> int:
    """Simple operations of an expression."""
    own = 0 if node.op in ("const", "arg") else 1 if node.op in _CHEAP else 8
    return own + sum(_cost(a) for a in node.args if isinstance(a, Expr))
