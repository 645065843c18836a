"""Printing parts of groups as Triton kernels.

A kernel takes pointers, numbers (sizes, and every stride that is neither 0 nor 1) and the shape of its tile, which is
fixed when it is compiled. Sizes are numbers, so one kernel serves every size that is divided alike; that a number is a
multiple of sixteen is told to the compiler, which then uses wide loads.

    FLAT        a program computes some elements
    BLOCK       the same as rows by columns, for what is read and written in different orders
    BY_ROWS     a program has some rows: all of their columns at once, or in a loop for every pass
    BY_COLUMNS  a program has some columns (or full rows) and loops over rows, reducing along them
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import flambeau as fl
from flambeau._inductor import triton_math
from flambeau._inductor.ir import Access, Buffer, OperatorCall, Reduce, moved_loads
from flambeau._inductor.iteration import assign_passes, iteration_space
from flambeau._inductor.joining import guarded_loads
from flambeau._inductor.printers import Work
from flambeau._inductor.schedule import Group, Level, Member
from flambeau._inductor.tiles import Part, Target, Tile, TileKind, alternatives, divide, multiplies_vectors, row_reads
from flambeau._inductor.triton_header import HEADER
from flambeau._inductor.triton_joining import WAIT_HERE, join_steps, waiting
from flambeau._inductor.triton_kernel import POINTERS, TYPES, Kernel, Tuner
from flambeau.ops.expr import Expr

__all__ = [
    "HEADER",
    "POINTERS",
    "Kernel",
    "Scope",
    "Tuner",
    "Writer",
    "print_all",
    "print_group",
    "print_operator",
    "print_part",
]

_SHARED_FOR_ROWS = 216 * 1024  # bytes for rows that are on their way, of all programs that a processor has
_NARROW = {fl.uint8: "uint8", fl.int8: "int8", fl.int16: "int16", fl.int32: "int32"}
_FLOAT8 = {fl.float8_e4m3fn: "to_e4m3({})", fl.float8_e5m2: "to_e5m2({})"}


class Scope:
    """Statements at one place of the kernel; each shared subexpression is computed once."""

    def __init__(self, writer: Writer, outer: Scope | None = None) -> None:
        self.writer = writer
        self.lines: list[str] = []
        self.late: list[str] = []  # stores over what is read here, after all of that
        self.seen: dict[Any, str] = dict(outer.seen) if outer is not None else {}

    def let(self, prefix: str, text: str, kind: str, key: Any = None) -> str:
        """A variable for a value of a kind: a type to compute in, or "cond"."""
        key = key or (text, kind)
        if key not in self.seen:
            name = self.seen[key] = self.writer.fresh(prefix)
            self.writer.kinds[name] = kind
            self.lines.append(f"{name} = {text}")
        return self.seen[key]

    def cast(self, name: str, kind: str) -> str:
        mine = self.writer.kinds[name]
        if mine == kind:
            return name
        if kind == "cond":
            return self.let("q", f"{name} != 0", "cond")
        return self.let("q", f"{name}.to(tl.{kind})", kind)

    def expression(self, node: Expr, leaves: Any, kind: str, bits: int = 24) -> str:
        """The name of an expression's value, which is of the given kind or a condition. Where its operands have few
        significant bits, faster functions do."""
        op = node.op
        if op == "const":
            return self.writer.constant(node.args[0], kind)
        if op in ("load", "arg"):
            return str(leaves(node))
        if op in ("before", "from"):
            index, bound = str(leaves(node.args[0], exact=True)), self.writer.number("bound", node.args[1])
            return self.let("q", f"{index} {'<' if op == 'before' else '>='} {bound}", "cond")
        if op == "guard":
            condition = self.cast(self.expression(node.args[0], leaves, kind, bits), "cond")  # type: ignore[arg-type]
            return str(leaves(node.args[1], guard=condition))
        if op == "either":
            condition = self.cast(self.expression(node.args[0], leaves, kind, bits), "cond")  # type: ignore[arg-type]
            return str(leaves(node.args[1], guard=condition, other=node.args[2]))
        if op == "row":
            number, load, *row = node.args
            return str(leaves(load, row=(str(leaves(number, exact=True)), *row)))
        if op == "order_key":
            return self.let("t", f"order_key({leaves(node.args[0], exact=True)}, {node.args[1]})", "int64")
        if op == "at":
            index, place = (str(leaves(part, exact=True)) for part in node.args)
            return self.let("q", f"{index}.to(tl.int32) == {place}.to(tl.int32)", "cond")
        if op in ("real", "conj"):
            return self.expression(node.args[0], leaves, kind, bits)  # type: ignore[arg-type]
        floating = kind.startswith("float")
        rewritten = triton_math.rewrite(op, floating, bits)
        if rewritten is not None:
            return self.expression(rewritten(*node.args), leaves, kind, bits)
        parts = [self.expression(a, leaves, kind, bits) for a in node.args]  # type: ignore[arg-type]
        if op in ("land", "lor", "lnot"):
            tests = [self.cast(p, "cond") for p in parts]
            text = f"{tests[0]} == 0" if op == "lnot" else f"{tests[0]} {'&' if op == 'land' else '|'} {tests[1]}"
            return self.let("q", text, "cond")
        if op == "where":
            test = self.cast(parts[0], "cond")
            a, b = (self.cast(p, kind) for p in parts[1:])
            return self.let("t", f"tl.where({test}, {a}, {b})", kind)
        parts = [self.cast(p, kind) for p in parts]
        if op in triton_math.COMPARISONS:
            return self.let("q", f"{parts[0]} {triton_math.COMPARISONS[op]} {parts[1]}", "cond")
        if op in triton_math.INFIX:
            return self.let("t", f"{parts[0]} {triton_math.INFIX[op]} {parts[1]}", kind)
        if op in triton_math.PREFIX:
            return self.let("t", f"{triton_math.PREFIX[op]}{parts[0]}", kind)
        text_of = triton_math.text(op, parts, floating)
        assert text_of is not None, op
        return self.let("t", text_of, kind)


class Writer:
    def __init__(self, part: Part, failure: int = 0) -> None:
        self.failure = failure  # the address of the flag that says that an index does not exist
        self.group: Group = part.group
        self.stored = part.stored
        self.tile: Tile = part.tile
        self.scratch = part.scratch
        self.count = 0
        self.kinds: dict[str, str] = {}
        self.codes: dict[str, str] = {}  # of values rounded to float8: these
        self.pointers: dict[tuple[Buffer, int], str] = {}
        self.numbers: dict[tuple[Any, ...], str] = {}
        self.constants: dict[Any, str] = {}
        self.head: list[str] = []
        self.row_values: dict[Buffer, str] = {}
        self.early: list[str] | None = None  # loads of what no kernel writes, before all others
        space = iteration_space(self.group)
        self.sizes, self.picks, self.rows = space.sizes, space.dims, space.rows
        if self.tile.kind is TileKind.FLAT:
            self.rows = len(self.sizes)
        if self.tile.inner is not None:
            self._make_innermost(self.tile.inner)
        self.depth, self.passes = assign_passes(self.group)
        self.height, self.width = math.prod(self.sizes[: self.rows]), math.prod(self.sizes[self.rows :])
        self.wide = self._reach() >= 1 << 31
        self.exact_rows = self.tile.kind is not TileKind.BY_COLUMNS and self.height % self.tile.x == 0
        self.exact_columns = self.tile.full_rows and self.width == self.tile.r
        self.same_for_rows = self._same_for_rows() if multiplies_vectors(self.group) else set()
        accesses = [a for m in self.group.members for a in (m.write, *m.reads)]
        self.room = not self.exact_columns and any(map(self.has_room, accesses))

    def _make_innermost(self, k: int) -> None:
        for items in (self.sizes, self.picks):
            items.insert(self.rows - 1, items.pop(k))

    def _same_for_rows(self) -> set[Buffer]:
        """What is made of the same numbers for all rows: the norm of a vector, say, which a tile of rows needs once."""
        same: set[Buffer] = set()
        for member in self.group.members:
            outside = [a for a in member.reads if a.buffer not in same]
            alike = all(
                a.buffer not in self.group.made
                and a.buffer.source != "random"
                and not any(a.strides[pick] for pick in self.picks[: self.rows])
                for a in outside
            )
            if alike and member.reads:
                same.add(member.loop.write.buffer)
        return same

    def _reach(self) -> int:
        """An upper bound of every number that indices are computed from."""
        bound = (self.height + self.tile.x) * (self.width + self.tile.r)
        for member in self.group.members:
            for access in (member.write, *member.reads):
                far = sum(n * access.strides[p] for n, p in zip(self.sizes, self.picks))
                bound = max(bound, far)
        return bound

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ---------------------------------------------------------------- numbers and pointers

    def number(self, *key: Any) -> str:
        """The name of a number, the last part of a key that says what it is for."""
        if key not in self.numbers:
            self.numbers[key] = f"n{len(self.numbers)}"
        return self.numbers[key]

    def constant(self, value: Any, kind: str) -> str:
        """A literal, as a variable at the head of the kernel."""
        key = (repr(value), kind)
        if key not in self.constants:
            if kind.startswith("float"):
                text = repr(float(value))
                text = f'float("{text}")' if text in ("inf", "-inf", "nan") else text
            else:
                text = repr(int(value))
            name = self.constants[key] = self.fresh("k")
            self.kinds[name] = kind
            self.head.append(f"{name} = tl.full([], {text}, tl.{kind})")
        return self.constants[key]

    def pointer(self, access: Access) -> str:
        key = (access.buffer, access.offset)
        if key not in self.pointers:
            self.pointers[key] = f"p{len(self.pointers)}"
        return self.pointers[key]

    # ---------------------------------------------------------------- accesses

    def place(self, access: Access) -> tuple[str, str]:
        """The address of an element for each point of the tile, and the mask under which it exists."""
        terms, row, column = self.terms(access)
        if column and self.room and self.has_room(access):
            return " + ".join([self.pointer(access), *terms]), "rv"
        masks = [
            m for m, used in (("xm", row and not self.exact_rows), ("rm", column and not self.exact_columns)) if used
        ]
        mask = "m" if len(masks) == 2 else masks[0] if masks else ""
        return " + ".join([self.pointer(access), *terms]), mask

    def has_room(self, access: Access) -> bool:
        """Whether elements exist up to a multiple of sixteen columns, so that a row is read and written by whole vectors."""
        if not access.buffer.memory.padded or not self.exact_rows or len(self.sizes) != self.rows + 1:
            return False
        across, *down = (access.strides[pick] for pick in (self.picks[-1], *self.picks[: self.rows]))
        return across == 1 and all(s >= self._even_width() for s in down)

    def _even_width(self) -> int:
        return -(-self.width // 16) * 16

    def terms(self, access: Access) -> tuple[list[str], bool, bool]:
        """The summands of an element's place, and whether it depends on the row and the column."""
        terms = []
        row = column = False
        for k, pick in enumerate(self.picks):
            stride = access.strides[pick]
            if stride == 0:
                continue
            is_row = k < self.rows
            row, column = row or is_row, column or not is_row
            variable = f"r{k}" if is_row else f"c{k - self.rows}"
            terms.append(variable if stride == 1 else f"{variable} * {self.number('stride', k, stride)}")
        return terms, row, column

    def load(
        self, scope: Scope, access: Access, guard: str = "", other: Access | None = None, row: tuple[Any, ...] = ()
    ) -> str:
        """An element read from memory, in the type it is computed in. Where a condition does not hold: that of another place,
        or zero. With a row: of that."""
        kind = TYPES[access.buffer.dtype][1]
        if access.buffer.source in ("index", "random"):
            terms, _, _ = self.terms(access)
            index = " + ".join(terms)
            index = f"({index}).to(tl.int64)" if terms else "tl.full([], 0, tl.int64)"
            if access.buffer.source == "index":
                return scope.let("x", index, "int64")
            return scope.let(
                "x", self._random_words(access) or f"random_word({self.pointer(access)}, {index})", "int64"
            )
        at, mask = self.place(access)
        if row:
            moved, guard = self.moved(scope, mask, *row)
            at = f"{at} + {moved}"
            mask = f"{mask} & {guard}, other=0" if mask else f"{guard}, other=0"
        elif other is not None:
            at = f"tl.where({guard}, {at}, {self.place(other)[0]})"
        elif guard:
            _, by_row, by_column = self.terms(access)
            if not by_row or not (by_column or self.tile.kind is TileKind.FLAT):
                at = f"{at} + {guard}.to(tl.int32) * 0"  # an address for each element that the condition is about
            mask = f"{mask} & {guard}, other=0" if mask else f"{guard}, other=0"
        text = f"tl.load({at}{', ' + mask if mask else ''})"
        if kind == "cond":
            return scope.let("x", f"{text} != 0", kind)
        lines = len(scope.lines)
        name = scope.let("x", text if access.buffer.dtype is getattr(fl, kind) else f"{text}.to(tl.{kind})", kind)
        if self.early is not None and len(scope.lines) > lines and not guard and self._is_weight(access):
            self.early.append(scope.lines.pop())
        return name

    def moved(
        self, scope: Scope, mask: str, index: str, size: int, stride: int, reported: bool, wraps: bool = False
    ) -> tuple[str, str]:
        """How far a row is from the first one, and whether it exists; where it does not, that may be reported."""
        index = scope.cast(index, "int64")
        rows = self.number("rows of a table", size)
        if wraps:
            index = scope.let("q", f"tl.where({index} < 0, {index} + {rows}, {index})", "int64")
        exists = scope.let("q", f"({index} >= 0) & ({index} < {rows})", "cond")
        if reported:
            high, low = (self.number("failure", half, word) for half, word in enumerate(_words(self.failure)))
            flag = f"(({high}.to(tl.int64) << 32) | ({low}.to(tl.int64) & 0xFFFFFFFF)).to(tl.pointer_type(tl.int32))"
            lacks = scope.let("q", f"{f'{mask} & ' if mask else ''}(({index} < 0) | ({index} >= {rows}))", "cond")
            report = f"tl.store({flag} + {lacks}.to(tl.int32) * 0, 1, {lacks})"
            if report not in scope.lines:
                scope.lines.append(report)
        return index if stride == 1 else f"{index} * {self.number('stride of a table', stride)}", exists

    def _random_words(self, access: Access) -> str | None:
        """The words of a whole tile, of which each four come from one counter: where rows of the tile lie in order and begin at
        multiples of 64. None where they do not."""
        pointer, strides = self.pointer(access), [access.strides[pick] for pick in self.picks]
        if self.tile.kind is TileKind.FLAT:
            in_order = strides == [math.prod(self.sizes[at + 1 :]) for at in range(len(strides))]
            if not strides or not in_order or self.tile.x % 64:
                return None
            first = f"{self.program(0)}.to(tl.int64) * X + tl.zeros([1, 1], tl.int64)"
            return f"tl.reshape(random_words({pointer}, {first}, 1, X), [X])"
        whole = self.tile.full_rows and self.tile.kind in (TileKind.BY_ROWS, TileKind.BY_COLUMNS)
        if not whole or strides[self.rows :] != [1] or self.tile.r % 64 or any(s % 64 for s in strides[: self.rows]):
            return None
        rows, _, _ = self.terms(replace(access, strides=self._without_columns(access.strides)))
        count = "X" if rows else "1"
        first = " + ".join([*rows, f"tl.zeros([{count}, 1], tl.int64)"])
        return f"random_words({pointer}, {first}, {count}, R)"

    def _without_columns(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        columns = set(self.picks[self.rows :])
        return tuple(0 if at in columns else stride for at, stride in enumerate(strides))

    def _is_weight(self, access: Access) -> bool:
        """Whether it is read from an input, as that is before any kernel runs."""
        return access.buffer.source == "input" and access.buffer.memory is access.buffer

    def store(self, scope: Scope, access: Access, name: str, zero: str = "x * 0") -> None:
        at, mask = self.place(access)
        if " " not in at and self.tile.kind is not TileKind.FLAT:
            at = f"{at} + {zero}"  # one element, addressed by a tile of one
        if access.buffer.dtype in _FLOAT8 and name in self.codes:
            scope.lines.append(f"tl.store({at}, {self.codes[name]}{', ' + mask if mask else ''})")
        else:
            self.store_text(scope, at, mask, name, access.buffer.dtype)

    def store_member(self, scope: Scope, member: Member, name: str) -> None:
        """What a member makes, to its buffer, or to the place in it that a number in memory says."""
        place = member.loop.place
        if place is None:
            self.store(scope, member.write, name)
            return
        at, mask = self.place(member.write)
        zero = "" if " " in at or self.tile.kind is TileKind.FLAT else " + x * 0"
        index = self.value(scope, member.reads[place.read])
        moved, exists = self.moved(scope, mask, index, place.size, place.stride, True)
        at = f"{at}{zero} + {moved}"
        self.store_text(scope, at, f"{mask} & {exists}" if mask else exists, name, member.loop.write.buffer.dtype)

    @staticmethod
    def store_text(scope: Scope, at: str, mask: str, name: str, dtype: Any) -> None:
        kind = "int1" if dtype is fl.bool else str(dtype).rpartition(".")[2]
        value = _FLOAT8[dtype].format(name) if dtype in _FLOAT8 else f"({name}).to(tl.{kind})"
        scope.lines.append(f"tl.store({at}, {value}{', ' + mask if mask else ''})")

    # ---------------------------------------------------------------- values

    def value(
        self, scope: Scope, access: Access, guard: str = "", other: Access | None = None, row: tuple[Any, ...] = ()
    ) -> str:
        """What a member reads: a register, or memory."""
        source = self.group.made.get(access.buffer)
        if source is None:
            return self.load(scope, access, guard, other, row)
        if source.level is not Level.POINT:
            name = self.row_values[access.buffer]
            if other is None:
                return name
            return scope.let("h", f"other_half({name}, {self.tile.x // 2})", self.kinds[name])
        return self.compute(scope, source)

    def compute(self, scope: Scope, member: Member) -> str:
        """The value of a member at the points of the tile, as its buffer would hold it."""
        key = ("value", member.loop.write.buffer)
        if key not in scope.seen:
            scope.seen[key] = self.held(scope, member.loop.write.buffer, self.operand(scope, member))
        return scope.seen[key]

    def held(self, scope: Scope, buffer: Buffer, name: str) -> str:
        """A value rounded to what a buffer of its dtype holds."""
        name = scope.cast(name, TYPES[buffer.dtype][1])
        if buffer.dtype in _FLOAT8:
            code = scope.let("v", _FLOAT8[buffer.dtype].format(name), "float8")
            value = scope.let("v", f"{code}.to(tl.float32)", "float32")
            self.codes[value] = code
            return value
        narrow = _NARROW.get(buffer.dtype)
        return scope.let("v", f"{name}.to(tl.{narrow}).to(tl.int64)", "int64") if narrow else name

    def operand(self, scope: Scope, member: Member) -> str:
        """The value of a member's expression, in the type it computes in."""
        kind = _kind(member.loop.compute)

        def leaf(
            node: Expr, guard: str = "", exact: bool = False, other: Expr | None = None, row: tuple[Any, ...] = ()
        ) -> str:
            place, second = (None if n is None else member.reads[n.args[0]] for n in (node, other))  # type: ignore[call-overload]
            assert place is not None
            name = self.value(scope, place, guard, second, row)
            return name if exact else scope.cast(name, kind)

        bits = {fl.bfloat16: 8, fl.float16: 11}.get(member.loop.compute, 24)
        return scope.cast(scope.expression(member.loop.expr, leaf, kind, bits), kind)

    # ---------------------------------------------------------------- coordinates

    def coordinates(self, letter: str, source: str, sizes: list[int]) -> list[str]:
        """The position in each dimension from the number of a row, a column or an element."""
        lines = []
        left = source
        for k in range(len(sizes) - 1, -1, -1):
            if k == 0:
                lines.append(f"{letter}{k} = {left}")
            else:
                size = self.number(letter, k, sizes[k])
                lines += [f"{letter}{k} = {left} % {size}", f"{letter}q{k} = {left} // {size}"]
                left = f"{letter}q{k}"
        return lines

    def program(self, axis: int) -> str:
        return f"tl.program_id({axis}).to(tl.int64)" if self.wide else f"tl.program_id({axis})"

    def row_lines(self, first: str, axis: str) -> list[str]:
        total = self.number("rows", 0, self.height)
        lines = [f"x = {first} + tl.arange(0, X){axis}"]
        if halves := self.group.halves:
            half = self.tile.x // 2
            lines = [
                f"x = {self.program(0)} * {half}",
                f"x = x // {halves} * {2 * halves} + x % {halves}",
                f"x = x + (tl.arange(0, X) % {half} + tl.arange(0, X) // {half} * {halves}){axis}",
            ]
        if not self.exact_rows:
            lines.append(f"xm = x < {total}")
        return lines + self.coordinates("r", "x", self.sizes[: self.rows])

    def column_lines(self, first: str) -> list[str]:
        total = self.number("columns", 0, self.width)
        lines = [f"c = {first}tl.arange(0, R)[None, :]"]
        if not self.exact_columns:
            lines.append(f"rm = c < {total}")
        if self.room:
            lines.append(f"rv = c < {self.number('vectors', 0, self._even_width())}")
        return lines + self.coordinates("c", "c", self.sizes[self.rows :])

    def mask_lines(self) -> list[str]:
        both = not self.exact_rows and not self.exact_columns
        return ["m = xm & rm"] if both else []

    # ---------------------------------------------------------------- reductions

    def initial(self, reduce: Reduce, kind: str) -> str:
        if reduce.init in ("lowest", "highest"):
            if kind.startswith("float"):
                return self.constant(float("-inf" if reduce.init == "lowest" else "inf"), kind)
            return self.constant(-(1 << 63) if reduce.init == "lowest" else (1 << 63) - 1, kind)
        return self.constant(reduce.init, kind)

    def inside(self, scope: Scope, member: Member, name: str) -> str:
        """A fold's operand with the neutral element outside of the data."""
        assert member.loop.reduce is not None
        kind = _kind(member.loop.reduce.accumulate)
        name = scope.cast(name, kind)
        masks = [m for m, exact in (("xm", self.exact_rows), ("rm", self.exact_columns)) if not exact]
        if member.level is Level.ROW_REDUCTION and "xm" in masks:
            masks.remove("xm")  # rows outside of the data are reduced and not stored
        mask = "m" if len(masks) == 2 else masks[0] if masks else ""
        if mask:
            return scope.let("f", f"tl.where({mask}, {name}, {self.initial(member.loop.reduce, kind)})", kind)
        rows = "1" if member.loop.write.buffer in self.same_for_rows else "X"
        return scope.let("f", f"tl.broadcast_to({name}, [{rows}, R])", kind)

    @staticmethod
    def folded(reduce: Reduce, name: str, axis: int) -> str:
        """All of a tile reduced along an axis, which stays with size 1."""
        back = "[:, None]" if axis else "[None, :]"
        if reduce.combine.op == "add":
            return f"tl.sum({name}, {axis}){back}"
        return f"tl.reduce({name}, {axis}, fold_{reduce.combine.op}){back}"

    @staticmethod
    def combined(reduce: Reduce, a: str, b: str) -> str:
        op = reduce.combine.op
        infix = {"add": "+", "mul": "*", "bitor": "|", "bitand": "&"}.get(op)
        return f"{a} {infix} {b}" if infix else f"fold_{op}({a}, {b})"

    def finished(self, scope: Scope, member: Member, total: str) -> str:
        """The end of a fold: what its buffer holds."""
        reduce = member.loop.reduce
        assert reduce is not None
        kind = _kind(reduce.accumulate)
        self.kinds[total] = kind

        def leaf(node: Expr) -> str:
            if node.args[0] == "a":
                return total
            count = member.loop.count or (self.width if member.level is Level.ROW_REDUCTION else self.height)
            name = self.number("count", 0, count)
            self.kinds[name] = "int"
            return scope.let("q", f"({name} + 0).to(tl.{kind})", kind)

        return self.held(scope, member.loop.write.buffer, scope.expression(reduce.finish, leaf, kind))

    # ---------------------------------------------------------------- one pass over the columns

    def full_stores(self, scope: Scope, at: int) -> None:
        for member in self.group.members:
            buffer = member.loop.write.buffer
            if member.level is Level.POINT and self.depth[buffer] == at and buffer in self.stored:
                self.store_member(scope, member, self.compute(scope, member))
                if buffer in self.group.overwrites:
                    scope.late.append(scope.lines.pop())

    def reductions(self, level: Level, at: int | None = None) -> list[Member]:
        return [
            m for m in self.group.members if m.level is level and (at is None or self.depth[m.loop.write.buffer] == at)
        ]

    def row_level(self, scope: Scope, at: int, totals: dict[Buffer, str]) -> None:
        """What is known once a row after pass `at`: the results of its reductions, and loops over rows only."""
        for member in self.group.members:
            buffer = member.loop.write.buffer
            if self.depth[buffer] != at or member.level not in (Level.ROW_REDUCTION, Level.ROW):
                continue
            if member.level is Level.ROW_REDUCTION:
                if buffer in self.scratch:
                    continue
                name = self.finished(scope, member, totals[buffer])
            else:
                name = self.held(scope, buffer, self.operand(scope, member))
            self.row_values[buffer] = name
            if buffer in self.stored:
                self.store_member(scope, member, name)

    # ---------------------------------------------------------------- the kernel

    def kernel(self, names: str, stages: int = 2) -> Kernel:
        """The kernel; `names` say what it computes."""
        lines = self.body()
        shape = self.shape()
        parameters = [*self.pointers.values(), *self.numbers.values(), *(f"{name}: tl.constexpr" for name in shape)]
        body = "\n".join(f"    {line}" for line in [*self.head, *lines])
        return Kernel(
            f"# {names}\n@triton.jit\ndef @NAME@({', '.join(parameters)}):\n{body}\n", list(self.pointers),
            [key[-1] for key in self.numbers], self.wide, shape, self.tile.warps, self.grid(), stages,
            self.tile.registers, tuple(self.scratch.values()),
        )  # fmt: skip

    def shape(self) -> dict[str, int]:
        """What the kernel is compiled for."""
        return {"X": self.tile.x} | ({"R": self.tile.r} if self.tile.kind is not TileKind.FLAT else {})

    def body(self) -> list[str]:
        return {
            TileKind.FLAT: self._flat,
            TileKind.BLOCK: self._block,
            TileKind.BY_ROWS: self._by_rows,
            TileKind.BY_COLUMNS: self._by_columns,
        }[self.tile.kind]()

    def _flat(self) -> list[str]:
        scope = Scope(self)
        self.full_stores(scope, 0)
        return [*self.row_lines(f"{self.program(0)} * X", ""), *scope.lines, *scope.late]

    def _block(self) -> list[str]:
        scope = Scope(self)
        self.full_stores(scope, 0)
        return [
            *self.row_lines(f"{self.program(0)} * X", "[:, None]"),
            *self.column_lines(f"{self.program(1)} * R + "),
            *self.mask_lines(),
            *scope.lines,
            *scope.late,
        ]

    def _by_rows(self) -> list[str]:
        lines = self.row_lines(f"{self.program(0)} * X", "[:, None]")
        if self.tile.full_rows:
            lines += [*self.column_lines(""), *self.mask_lines()]
            if not multiplies_vectors(self.group):
                scope = Scope(self)
                self._load_named_rows(scope)
                return [*lines, *self._whole_rows(scope).lines]
            self.early = []
            scope = Scope(self)
            self._load_row_operands(scope)
            self._whole_rows(scope)
            return [*lines, *self.early, WAIT_HERE, *scope.lines]
        rows = Scope(self)
        rows.lines = lines
        for at in range(max(self.passes, 1)):
            self._looped_pass(rows, at)
        return rows.lines

    def _load_named_rows(self, scope: Scope) -> None:
        """Reads what memory names for each row before the rows, as two loads wait for each other: the score of its class, say."""
        for member in self.group.members:
            outside = all(a.buffer not in self.group.made for a in member.reads)
            if member.level is Level.ROW and outside and moved_loads(member.loop.expr):
                self.operand(scope, member)

    def _load_row_operands(self, scope: Scope) -> None:
        """Loads what is added to the sums of rows, say, before those are made, whose time hides the loads'."""
        for member in self.group.members:
            if member.level is Level.ROW and not guarded_loads(member.loop.expr):
                for access in member.reads:
                    if access.buffer not in self.group.made and access.buffer.source not in ("index", "random"):
                        self.load(scope, access)

    def _whole_rows(self, scope: Scope) -> Scope:
        """All passes over rows whose columns are all in the tile."""
        for at in range(max(self.passes, 1)):
            self.full_stores(scope, at)
            totals = {}
            for member in self.reductions(Level.ROW_REDUCTION, at):
                name = self.inside(scope, member, self.operand(scope, member))
                assert member.loop.reduce is not None
                kind = _kind(member.loop.reduce.accumulate)
                totals[member.loop.write.buffer] = scope.let("f", self.folded(member.loop.reduce, name, 1), kind)
            self.row_level(scope, at, totals)
        return scope

    def _looped_pass(self, rows: Scope, at: int) -> None:
        """One pass in steps over the columns, all rows of the tile at once."""
        scope = Scope(self, rows)
        accumulators = {m.loop.write.buffer: self.fresh("a") for m in self.reductions(Level.ROW_REDUCTION, at)}
        self.full_stores(scope, at)
        for member in self.reductions(Level.ROW_REDUCTION, at):
            self._accumulate(scope, member, accumulators[member.loop.write.buffer], rows)
        if scope.lines:
            columns = self.number("columns", 0, self.width)
            first, last = "0", columns
            if self.tile.splits > 1:
                chunk = self._chunk(self.width, self.tile.r)
                rows.lines += [f"begin = {self.program(1)} * {chunk}", f"end = tl.minimum(begin + {chunk}, {columns})"]
                first, last = "begin", "end"
            body = [*self.column_lines("start + "), *self.mask_lines(), *scope.lines]
            rows.lines += [f"for start in range({first}, {last}, R):", *(f"    {line}" for line in body)]
        totals = {}
        for member in self.reductions(Level.ROW_REDUCTION, at):
            buffer, reduce = member.loop.write.buffer, member.loop.reduce
            assert reduce is not None
            kind = _kind(reduce.accumulate)
            totals[buffer] = rows.let("f", self.folded(reduce, accumulators[buffer], 1), kind)
            if buffer in self.scratch:
                splits = self.number("splits", 0, self.tile.splits)
                pointer = self.pointer(Access(self.scratch[buffer], 0, ()))
                mask = "" if self.exact_rows else "xm"
                at_ = f"{pointer} + x * {splits} + tl.program_id(1)"
                self.store_text(rows, at_, mask, totals[buffer], self.scratch[buffer].dtype)
        self.row_level(rows, at, totals)

    def _chunk(self, size: int, step: int) -> str:
        each = -(-size // self.tile.splits)
        return self.number("chunk", 0, -(-each // step) * step)

    def _accumulate(self, scope: Scope, member: Member, name: str, outside: Scope) -> None:
        """One step of a fold that runs over a loop."""
        reduce = member.loop.reduce
        assert reduce is not None
        kind = _kind(reduce.accumulate)
        self.kinds[name] = kind
        outside.lines.append(f"{name} = tl.zeros([X, R], tl.{kind}) + {self.initial(reduce, kind)}")
        operand = self.inside(scope, member, self.operand(scope, member))
        scope.lines.append(f"{name} = {self.combined(reduce, name, operand)}")

    def _by_columns(self) -> list[str]:
        head = Scope(self)
        head.lines = self.column_lines("" if self.tile.full_rows else f"{self.program(0)} * R + ")
        reductions = self.reductions(Level.COLUMN_REDUCTION)
        accumulators = {m.loop.write.buffer: self.fresh("a") for m in reductions}
        scope = Scope(self)
        self._whole_rows(scope)
        for member in reductions:
            self._accumulate(scope, member, accumulators[member.loop.write.buffer], head)
        rows = self.number("rows", 0, self.height)
        first, last = "0", rows
        if self.tile.splits > 1:
            chunk = self._chunk(self.height, self.tile.x)
            head.lines += [f"begin = {self.program(1)} * {chunk}", f"end = tl.minimum(begin + {chunk}, {rows})"]
            first, last = "begin", "end"
        body = [*self.row_lines("start", "[:, None]"), *self.mask_lines(), *scope.lines, *scope.late]
        lines = [*head.lines, f"for start in {self._row_range(first, last)}:", *(f"    {line}" for line in body)]
        ends = Scope(self)
        for member in reductions:
            buffer, reduce = member.loop.write.buffer, member.loop.reduce
            assert reduce is not None
            total = ends.let("f", self.folded(reduce, accumulators[buffer], 0), _kind(reduce.accumulate))
            if buffer in self.scratch:
                width = self.number("columns", 0, self.width)
                pointer = self.pointer(Access(self.scratch[buffer], 0, ()))
                mask = "" if self.exact_columns else "rm"
                at = f"{pointer} + {self.program(1)} * {width} + c"
                self.store_text(ends, at, mask, total, self.scratch[buffer].dtype)
            else:
                self.row_values[buffer] = name = self.finished(ends, member, total)
                self.store(ends, member.write, name, "c * 0")
        for member in self.group.members:
            buffer = member.loop.write.buffer
            if member.level is Level.COLUMN:
                self.row_values[buffer] = name = self.held(ends, buffer, self.operand(ends, member))
                if buffer in self.stored:
                    self.store(ends, member.write, name, "c * 0")
        return lines + ends.lines

    def _row_range(self, first: str, last: str) -> str:
        """The range of a loop over rows. Where rows are reduced, each step waits for the sums of its own, so that the next rows
        are sent for before that, as many as there is shared memory for."""
        loads = {
            a for a in row_reads(self.group) if a.buffer.source not in ("index", "random") and all(self.terms(a)[1:])
        }
        size = self.tile.x * self.tile.r * sum(a.buffer.dtype.itemsize for a in loads)
        resident = 2 if self.tile.warps >= 8 else 4  # programs of a processor, by their registers
        stages = min(3, _SHARED_FOR_ROWS // resident // max(size, 1))
        if not self.reductions(Level.ROW_REDUCTION) or stages < 2:
            return f"range({first}, {last}, X)"
        return f"tl.range({first}, {last}, X, num_stages={stages})"

    # ---------------------------------------------------------------- the launch

    def grid(self) -> tuple[int, int, int]:
        tile = self.tile
        down = -(-self.height // tile.x)
        if tile.kind is TileKind.BLOCK:
            return down, -(-self.width // tile.r), 1
        if tile.kind is TileKind.BY_COLUMNS:
            return (1 if tile.full_rows else -(-self.width // tile.r)), tile.splits, 1
        return down, tile.splits, 1


def _kind(dtype: Any) -> str:
    """The type that arithmetic of a dtype is done in."""
    kind = TYPES[dtype][1]
    return "int64" if kind == "cond" else kind


def _words(address: int) -> tuple[int, int]:
    """The halves of an address, as kernels take numbers: signed."""
    return address >> 32, (address & 0xFFFFFFFF) - ((address & 0x80000000) << 1)


def print_part(part: Part, target: Target) -> Kernel:
    """The kernel of one part."""
    return Writer(part, target.failure).kernel(", ".join(m.loop.name for m in part.group.members))


def print_operator(item: OperatorCall, target: Target) -> list[Kernel] | None:
    """The kernels of an operator call that has some of its own; None when it is called."""
    if item.call is None or not item.on_device:
        return None
    from flambeau._inductor import attention

    printer = attention.PRINTERS.get(item.call.op._full_name)
    return printer(item, target) if printer is not None else None


def print_group(group: Group, stored: set[Buffer], target: Target, tuner: Tuner | None = None) -> list[Kernel]:
    """The kernels of a group in the order in which they run; `stored` are the buffers that somebody outside needs."""
    launches = []
    for part in divide(group, stored, target):
        kernel = print_part(part, target)
        if tuner is not None:
            tiles = [t for t in alternatives(part.tile) if not part.group.halves or t.x == part.tile.x]
            kernels = [kernel, *(print_part(replace(part, tile=tile), target) for tile in tiles)]
            kernel = kernels[tuner.loop(kernels)]
        extra = tuple(b for b in part.stored if b not in stored)
        launches.append(replace(kernel, scratch=kernel.scratch + extra))
    return launches


def print_all(
    work: list[Work], target: Target, tuner: Tuner | None = None, steps: Sequence[int] | None = None
) -> list[list[Kernel] | None]:
    """The kernels of groups and operator calls; those of one step become one kernel where that can be."""
    printed = [
        print_group(item, stored, target, tuner) if isinstance(item, Group) else print_operator(item, target)
        for item, stored in work
    ]
    if tuner is not None:
        from flambeau._inductor.triton_products import finish_products

        finish_products(work, printed, tuner, target)
    if target.capability >= 90:
        printed = [None if kernels is None else [waiting(k) for k in kernels] for kernels in printed]
    if steps is not None:
        join_steps(printed, steps)
    return printed
