"""Groups as kernels of a C-like language, for devices that bring a `KernelPrinter` (flambeau/backends/printer.py).

A group without reductions is a kernel with a work item for each point. With reductions along rows it has one for each row,
which walks the columns once for each pass; what an earlier pass computed at a point is computed again. A reduction along
columns is a kernel of its own, with a work item for each column; values of rows that it needs go through memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau._inductor.ir import Access, Buffer, OperatorCall
from flambeau._inductor.iteration import assign_passes, iteration_space
from flambeau._inductor.printers import Launch, Printer, Work
from flambeau._inductor.product_operands import product_operands
from flambeau._inductor.schedule import Group, Level, Member
from flambeau._inductor.steps import KernelStep, Location, Step
from flambeau.backends import c99, products
from flambeau.backends.printer import KernelPrinter, Source
from flambeau.backends.reductions import _ends
from flambeau.ops.expr import Expr

__all__ = ["CGroupPrinter"]

_ROW_LEVELS = (Level.ROW, Level.ROW_REDUCTION)


class _CLaunch:
    """A kernel with everything but its addresses."""

    def __init__(
        self, printer: KernelPrinter, built: Any, source: str, pointers: list[tuple[Buffer, int]], integers: list[int],
        items: int,
    ) -> None:  # fmt: skip
        self.printer, self.built, self.pointers = printer, built, pointers
        self.integers, self.items = integers, items
        self.scratch: Sequence[Buffer] = ()
        self.kernel = _Built(source)

    def run(self, addresses: tuple[int, ...]) -> None:
        self.printer.device.launches += 1
        self.printer.launch(self.built, addresses, self.integers, (), self.items)

    def step(self, pointers: list[Location]) -> Step:
        native = self.printer.bound(self.built, len(pointers), self.integers, self.items)
        return KernelStep(0, (1, 1, 1), 0, 0, pointers, [], True, launch=self.run if native is None else native)


class _Built:
    """What the dump of stages shows."""

    def __init__(self, source: str) -> None:
        self.source = source


class CGroupPrinter(Printer):
    """Prints groups for a device with a `KernelPrinter`."""

    fuses = True
    indices = True
    small_row_sums = True
    keeps_layouts = False
    converts_loads = True

    def __init__(self, printer: KernelPrinter) -> None:
        self.printer = printer

    def knows(self, expr: Expr, dtype: Any) -> bool:
        if not self.printer.device.has(dtype):
            return False
        try:
            c99.CExpression({}).visit(expr, lambda node, exact=False: "x", c99.compute_type(dtype))
        except NotImplementedError:
            return False
        return True

    def definitions(self) -> dict[str, Callable[..., Any]]:
        return _unclaimed(frozenset(self.printer.device.claims))

    def launches(self, work: list[Work]) -> list[list[Launch] | None]:
        return [
            self._product(item) if isinstance(item, OperatorCall) else list(self._group(item, stored))
            for item, stored in work
        ]

    def _product(self, item: OperatorCall) -> list[Launch] | None:
        """The kernel of a product of matrices, so that it needs no dispatcher; None for other calls."""
        result = item.results[0] if len(item.results) == 1 else None
        operands = product_operands(item.call) if item.call is not None and item.on_device else None
        if operands is None or operands.bias is not None or result is None or item.written or 0 in result.size:
            return None
        buffers = {id(value): buffer for buffer, value in item.reads}
        first, second = operands.first, operands.second
        a, b = _matrices(first.size, first.stride), _matrices(second.size, second.stride)
        out = _matrices(result.size, result.stride)
        if a is None or b is None or out is None or not first.dtype == second.dtype == result.dtype:
            return None
        if operands.transposed:
            b = _Matrices(b.batch, b.columns, b.rows, (b.strides[0], b.strides[2], b.strides[1]))
        if a.columns != b.rows or not a.batch == b.batch == out.batch or not self.printer.device.has(result.dtype):
            return None
        sizes = (out.batch, out.rows, out.columns, a.columns)
        product = products.plan(self.printer, result.dtype, sizes, a.strides, b.strides, out.strides)
        if product is None:
            return None
        pointers = [(result, 0), (buffers[id(first)], first.offset), (buffers[id(second)], second.offset)]
        return [_CLaunch(self.printer, product.kernel, "", pointers, product.integers, product.items)]

    def _group(self, group: Group, stored: set[Buffer]) -> list[Launch]:
        columns = [m for m in group.members if m.level is Level.COLUMN_REDUCTION]
        others = [m for m in group.members if m.level is not Level.COLUMN_REDUCTION]
        row_values = self._row_values(group, columns)
        scratch = [b for b in row_values if b not in stored]
        launches: list[Launch] = []
        writes = stored | row_values
        if any(m.loop.write.buffer in writes for m in others):
            first = _Writer(self.printer, group, writes).rows(others)
            first.scratch = scratch
            launches.append(first)
        for member in columns:
            launches.append(_Writer(self.printer, group, writes).column(member))
        return launches

    @staticmethod
    def _row_values(group: Group, columns: list[Member]) -> set[Buffer]:
        """Values of rows that reductions along columns read."""
        needed: set[Buffer] = set()
        seen: set[Buffer] = set()
        pending = [a.buffer for m in columns for a in m.reads]
        while pending:
            buffer = pending.pop()
            member = group.made.get(buffer)
            if member is None or buffer in seen:
                continue
            seen.add(buffer)
            if member.level in _ROW_LEVELS:
                needed.add(buffer)
            else:
                pending += [a.buffer for a in member.reads]
        return needed


class _Matrices(NamedTuple):
    """How a batch of matrices lies in memory; strides are of batch, rows and columns."""

    batch: int
    rows: int
    columns: int
    strides: tuple[int, int, int]


def _matrices(size: tuple[int, ...], stride: tuple[int, ...]) -> _Matrices | None:
    """A matrix, or a batch of them; None for more dimensions, unless rows follow each other through all of them."""
    if len(size) == 2:
        return _Matrices(1, size[0], size[1], (0, stride[0], stride[1]))
    return _Matrices(size[0], size[1], size[2], (stride[0], stride[1], stride[2])) if len(size) == 3 else None


@functools.cache
def _unclaimed(claims: frozenset[str]) -> dict[str, Callable[..., Any]]:
    """Definitions of the operators that a device has no kernel for. Those that draw numbers or look at values stay calls."""
    from flambeau._inductor.lower import lowered_in
    from flambeau.ops import tags
    from flambeau.ops.rules import definition

    claimed = (
        claims
        | lowered_in("losses")
        | tags.operators("random", "data_dependent", "mixed_devices", "copy", "fill", "view", "update", "sequence")
    )
    return {name: function for name, function in definition.all().items() if name not in claimed}


class _Writer:
    """Prints one kernel of a group."""

    def __init__(self, printer: KernelPrinter, group: Group, writes: set[Buffer]) -> None:
        self.printer, self.group, self.writes = printer, group, writes
        self.source = Source(printer)
        self.lines = self.source.lines
        self.space = iteration_space(group)
        self.split = self.space.rows if group.split is not None else len(self.space.sizes)
        self.sizes = [self._size(n) for n in self.space.sizes]
        self.pointers: dict[tuple[Buffer, int], str] = {}
        self.numbers: list[int] = list(self.space.sizes)
        self.count = 0

    def _size(self, n: int) -> str:
        return self.source.integer()

    def _number(self, value: int) -> str:
        self.numbers.append(value)
        return self.source.integer()

    def pointer(self, access: Access) -> str:
        buffer = self.group.overwrites.get(access.buffer, access.buffer)
        key = (buffer, access.offset)
        if key not in self.pointers:
            self.pointers[key] = self.source.pointer(access.buffer.dtype)
        return self.pointers[key]

    def element(self, access: Access) -> str:
        return f"{self.pointer(access)}[{self._place(access) or '0'}]"

    def _place(self, access: Access) -> str:
        """The number of an element, from where the access begins."""
        terms = []
        for variable, dim in zip((f"c{k}" for k in range(len(self.space.sizes))), self.space.dims):
            stride = access.strides[dim]
            if stride:
                terms.append(variable if stride == 1 else f"{variable} * {self._number(stride)}")
        return " + ".join(terms)

    def load(self, access: Access) -> str:
        name = f"x{self.count}"
        self.count += 1
        if access.buffer.source == "index":
            self.lines.append(f"long {name} = {self._place(access) or '0'};")
            return name
        ctype = c99.compute_type(access.buffer.dtype)
        self.lines.append(f"{ctype} {name} = ({ctype}){c99.load(access.buffer.dtype, self.element(access))};")
        return name

    def evaluate(self, member: Member, values: dict[Buffer, str]) -> str:
        """The expression of a member, its operands in registers or loaded; in its compute type."""
        ctype = c99.compute_type(member.loop.compute)
        operands: dict[int, str] = {}

        def leaf(node: Expr, exact: bool = False) -> str:
            place: int = node.args[0]  # type: ignore[assignment]
            if place not in operands:
                access = member.reads[place]
                value = values.get(access.buffer)
                operands[place] = value if value is not None else self.load(access)
            return f"(({'long' if exact else ctype}){operands[place]})"

        return self.source.expression.visit(member.loop.expr, leaf, ctype)

    def rounded(self, buffer: Buffer, text: str) -> str:
        """A value as it is read from the buffer it belongs to, in a register."""
        name = f"v{self.count}"
        self.count += 1
        ctype = c99.compute_type(buffer.dtype)
        self.lines.append(f"{ctype} {name} = ({ctype}){c99.load(buffer.dtype, c99.stored(buffer.dtype, text))};")
        return name

    def store(self, member: Member, value: str) -> None:
        buffer = member.loop.write.buffer
        self.lines.append(f"{self.element(member.write)} = {c99.stored(buffer.dtype, value)};")

    def decompose(self, first: int, last: int, index: str) -> None:
        """Indices of the dimensions from `first` to `last`, of a flat one."""
        if first == last:
            return
        self.lines.append(f"long rest{first} = {index};")
        for k in range(last - 1, first, -1):
            self.lines.append(f"long c{k} = rest{first} % {self.sizes[k]}; rest{first} /= {self.sizes[k]};")
        self.lines.append(f"long c{first} = rest{first};")

    # ---------------------------------------------------------------- kernels

    def finished(self, items: int) -> _CLaunch:
        source = self.source.text()
        built = self.printer._groups.get(source)
        if built is None:
            built = self.printer._groups[source] = self.printer.build(source, "kernel_function")
        return _CLaunch(self.printer, built, source, list(self.pointers), self.numbers, items)

    def rows(self, members: list[Member]) -> _CLaunch:
        total = math.prod(self.space.sizes)
        if self.group.split is None:
            walked = self.printer.walks_rows and len(self.sizes) > 1
            last = len(self.sizes) - walked
            self.decompose(0, last, "i")
            if walked:
                self.lines.append(f"for (long c{last} = 0; c{last} < {self.sizes[last]}; ++c{last}) {{")
            values: dict[Buffer, str] = {}
            for member in members:
                self._point(member, values, True)
            if walked:
                self.lines.append("}")
            return self.finished(total // self.space.sizes[last] if walked and total else total)
        rows = math.prod(self.space.sizes[: self.split])
        self.decompose(0, self.split, "i")
        pass_of, passes = assign_passes(self.group)
        row_values: dict[Buffer, str] = {}
        for number in range(passes):
            self._pass(members, number, pass_of, row_values)
        return self.finished(rows)

    def _point(self, member: Member, values: dict[Buffer, str], store: bool) -> None:
        buffer = member.loop.write.buffer
        value = values[buffer] = self.rounded(buffer, self.evaluate(member, values))
        if store and buffer in self.writes:
            self.store(member, value)

    def _needed(self, wanted: list[Member]) -> set[Buffer]:
        """The points that some members are computed from, in this kernel."""
        needed: set[Buffer] = set()
        pending = [a.buffer for m in wanted for a in m.reads]
        while pending:
            buffer = pending.pop()
            member = self.group.made.get(buffer)
            if member is None or member.level is not Level.POINT or buffer in needed:
                continue
            needed.add(buffer)
            pending += [a.buffer for a in member.reads]
        return needed

    def _pass(
        self, members: list[Member], number: int, pass_of: dict[Buffer, int], row_values: dict[Buffer, str]
    ) -> None:
        own = [m for m in members if pass_of[m.loop.write.buffer] == number]
        walked = [m for m in own if m.level in (Level.POINT, Level.ROW_REDUCTION)]
        here = {m.loop.write.buffer for m in walked}
        again = self._needed(walked)
        accumulators: dict[Buffer, tuple[str, str]] = {}
        for member in walked:
            if member.level is Level.ROW_REDUCTION:
                accumulators[member.loop.write.buffer] = self._accumulator(member)
        if walked:
            self._open_columns(number)
            values = dict(row_values)
            for member in members:
                buffer = member.loop.write.buffer
                if member.level is Level.POINT and (buffer in here or buffer in again):
                    self._point(member, values, buffer in here)
                elif buffer in here:
                    self._accumulate(member, values, accumulators[buffer])
            self.lines.append("}")
        width = math.prod(self.space.sizes[self.split :])
        for member in own:
            buffer = member.loop.write.buffer
            if member.level is Level.ROW_REDUCTION:
                row_values[buffer] = self._finish(member, accumulators[buffer], member.loop.count or width)
            elif member.level is Level.ROW:
                row_values[buffer] = self.rounded(buffer, self.evaluate(member, row_values))
            else:
                continue
            if buffer in self.writes:
                self.store(member, row_values[buffer])

    def _open_columns(self, number: int) -> None:
        sizes = self.sizes[self.split :]
        if not sizes:
            self.lines.append("{")
            return
        self.lines.append(f"for (long j{number} = 0; j{number} < {' * '.join(sizes)}; ++j{number}) {{")
        self.decompose(self.split, len(self.sizes), f"j{number}")

    def _accumulator(self, member: Member) -> tuple[str, str]:
        reduce = member.loop.reduce
        assert reduce is not None
        ctype = c99.compute_type(reduce.accumulate)
        name = f"a{self.count}"
        self.count += 1
        self.lines.append(f"{ctype} {name} = {_ends(reduce.init, ctype)};")
        return name, ctype

    def _accumulate(self, member: Member, values: dict[Buffer, str], accumulator: tuple[str, str]) -> None:
        reduce = member.loop.reduce
        assert reduce is not None
        name, ctype = accumulator
        leaves = {"a": name, "b": f"(({ctype})({self.evaluate(member, values)}))"}
        combined = self.source.expression.visit(reduce.combine, lambda n: leaves[str(n.args[0])], ctype)
        self.lines.append(f"{name} = {combined};")

    def _finish(self, member: Member, accumulator: tuple[str, str], count: int) -> str:
        reduce = member.loop.reduce
        assert reduce is not None
        name, ctype = accumulator
        leaves = {"a": name, "n": f"(({ctype}){self._number(count)})"}
        text = self.source.expression.visit(reduce.finish, lambda n: leaves[str(n.args[0])], ctype)
        return self.rounded(member.loop.write.buffer, text)

    def column(self, member: Member) -> _CLaunch:
        """A reduction along the rows, for each column."""
        columns = math.prod(self.space.sizes[self.split :])
        height = math.prod(self.space.sizes[: self.split])
        self.decompose(self.split, len(self.sizes), "i")
        accumulator = self._accumulator(member)
        self.lines.append(f"for (long j = 0; j < {' * '.join(self.sizes[: self.split]) or '1'}; ++j) {{")
        self.decompose(0, self.split, "j")
        needed = self._needed([member])
        values: dict[Buffer, str] = {}
        for other in self.group.members:
            if other.loop.write.buffer in needed:
                self._point(other, values, False)
        self._accumulate(member, values, accumulator)
        self.lines.append("}")
        value = self._finish(member, accumulator, member.loop.count or height)
        self.store(member, value)
        return self.finished(columns)
