"""Matrix products with what follows them as one Triton kernel, where that was measured as quicker.

A product whose result only one group of pointwise loops reads can be made by that group's kernel: each program computes a
tile of the product in its registers, and goes on with the loops where they would have read it from memory. With
`max_autotune` (`triton_tune.py`) kernels with several tiles are measured beside the library's product and the group's own
kernels, and the winner for these sizes is remembered. Convolutions (`triton_convolutions.py`) are products too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import flambeau as fl
from flambeau._inductor.ir import Access, Buffer, OperatorCall, moved_loads
from flambeau._inductor.printers import Work
from flambeau._inductor.product_operands import product_operands
from flambeau._inductor.schedule import Group, Level
from flambeau._inductor.tiles import Part, Target, Tile, TileKind, power, subgroup
from flambeau._inductor.triton import Kernel, Scope, Tuner, Writer

__all__ = ["Choice", "Finished", "Matrix", "Product", "finish_products", "over"]


class Choice(NamedTuple):
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def fits(self, target: Target, dtype: Any) -> bool:
        """Whether the operands of all stages have room in shared memory."""
        room = 225_000 if target.capability >= 90 else 160_000 if target.capability in (80, 87) else 98_000
        return (self.rows + self.columns) * self.depth * self.stages * int(dtype.itemsize) <= room


CHOICES = (
    Choice(128, 256, 64, 8, 3), Choice(256, 128, 64, 8, 3), Choice(128, 128, 64, 8, 3), Choice(128, 128, 64, 4, 3),
    Choice(64, 128, 64, 4, 4), Choice(128, 64, 64, 4, 4), Choice(64, 64, 64, 4, 4), Choice(16, 128, 128, 4, 4),
    Choice(16, 32, 64, 2, 4),
)  # fmt: skip
_BAND = 8  # tiles above each other that are computed one after the other, so that operands are found in the cache


class Matrix(Protocol):
    """A call whose result is a matrix, a sum over products for each element."""

    item: OperatorCall
    result: Buffer
    bias: Access | None  # over the columns

    @property
    def operands(self) -> tuple[Access, ...]:
        """What is read."""

    def over(self, group: Group) -> Group | None:
        """A pointwise group as rows by columns of the matrix; None where it walks over it in another way."""

    def kernels(self, group: Group, stored: set[Buffer], target: Target) -> list[Kernel]:
        """Kernels that compute the matrix and the group, for several tiles."""

    def call(self) -> Any:
        """The call that computes the matrix alone."""

    def leave(self) -> list[Kernel] | None:
        """Takes the matrix out of the item; None when something else is left to be called."""


@dataclass
class Product:
    """a[m, k] * b[k, n] + bias[n]"""

    item: OperatorCall
    a: Access  # over m, k
    b: Access  # over k, n
    bias: Access | None  # over n
    result: Buffer
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        parts = (self.m, self.n, self.k, self.a.strides, self.b.strides, self.bias is not None, self.result.dtype)
        return " ".join(map(str, parts))

    @property
    def operands(self) -> tuple[Access, ...]:
        return (self.a, self.b) if self.bias is None else (self.a, self.b, self.bias)

    def call(self) -> Any:
        return self.item.call

    def leave(self) -> list[Kernel] | None:
        return []

    def over(self, group: Group) -> Group | None:
        dims = group.dims
        split = next((i for i in range(len(dims) + 1) if math.prod(dims[i:]) == self.n), None)
        if split is None or math.prod(dims[:split]) != self.m:
            return None
        return over(self, group, split)

    def kernels(self, group: Group, stored: set[Buffer], target: Target) -> list[Kernel]:
        names = ", ".join([self.item.call.op._full_name, *(m.loop.name for m in group.members)])
        return [
            _ByDepth(self, group, stored, choice).kernel(names, stages=choice.stages)
            for choice in CHOICES
            if choice.rows <= max(power(self.m), 16) and choice.columns <= max(power(self.n), 16)
            if choice.fits(target, self.result.dtype)
        ]


def finish_products(work: list[Work], printed: list[list[Kernel] | None], tuner: Tuner, target: Target) -> None:
    """Replaces kernels of groups by such that compute a product too, whose call then goes. The tuner is given these, one for
    each tile, and the group's own ones, and says which of the former to take."""
    for at, reader, product, group in _pairs(work):
        kernels = product.kernels(group, work[reader][1], target)
        chosen = tuner.product(product, kernels, printed[reader] or []) if kernels else None
        if chosen is not None:
            printed[at], printed[reader] = product.leave(), [kernels[chosen]]


# ---------------------------------------------------------------- which


def _pairs(work: list[Work]) -> Iterator[tuple[int, int, Matrix, Group]]:
    """Places of products and of the groups that alone read them, each group once."""
    from flambeau._inductor.triton_convolutions import convolution

    taken: set[int] = set()
    for at, (item, leaving) in enumerate(work):
        product: Matrix | None = None
        if isinstance(item, OperatorCall):
            product = _product(item) or convolution(item)
        if product is None or product.result in leaving:
            continue
        readers = [i for i in range(at + 1, len(work)) if _touches(work[i][0], product.result)]
        if len(readers) != 1 or readers[0] in taken:
            continue
        group = work[readers[0]][0]
        sources = {access.buffer.memory for access in product.operands}
        between = itertools.chain.from_iterable(_written(item) for item, _ in work[at + 1 : readers[0] + 1])
        if isinstance(group, Group) and not any(b.memory in sources for b in between):
            pointwise = group.split is None and all(m.level is Level.POINT for m in group.members)
            fitting = product.over(group) if pointwise else None
            if fitting is not None:
                taken.add(readers[0])
                yield at, readers[0], product, fitting


def _touches(item: Group | OperatorCall, buffer: Buffer) -> bool:
    if isinstance(item, OperatorCall):
        return any(b.memory is buffer for b, _ in item.reads)
    return any(b.memory is buffer for b in item.buffers)


def _written(item: Group | OperatorCall) -> list[Buffer]:
    return item.written if isinstance(item, OperatorCall) else [m.loop.write.buffer for m in item.members]


def over(matrix: Matrix, group: Group, split: int) -> Group | None:
    """A pointwise group with its dimensions from `split` on as columns; None where it reads the matrix in another order than
    it lies in memory."""
    dims = group.dims
    rows = tuple(math.prod(dims[i + 1 :]) for i in range(len(dims)))
    for member in group.members:
        if (
            member.write.buffer.memory is matrix.result
            or member.loop.place is not None
            or moved_loads(member.loop.expr)
        ):
            return None
        for access in member.reads:
            if access.buffer.memory is matrix.result:
                same = all(s == r for s, r, n in zip(access.strides, rows, dims) if n != 1)
                if access.buffer is not matrix.result or access.offset != 0 or not same:
                    return None
    return subgroup(dims, split, group.members)


def _product(item: OperatorCall) -> Product | None:
    operands = None if item.call is None else product_operands(item.call)
    if operands is None:
        return None
    a, b, bias = operands.first, operands.second, operands.bias
    result = item.results[0]
    if result is None or result.memory is not result or result.padded or len(item.results) != 1:
        return None
    if result.dtype not in (fl.bfloat16, fl.float16) or any(v.dtype is not result.dtype for v in (a, b)):
        return None
    if bias is not None and (bias.dtype is not result.dtype or len(bias.size) != 1):
        return None
    rows = _as_matrix(a.size, a.stride) if len(a.size) > 1 else None
    matrix = _as_matrix(result.size, result.stride)
    if rows is None or matrix is None or len(b.size) != 2:
        return None
    (m, k), strides = rows
    turned = operands.transposed
    n = int(b.size[0 if turned else 1])
    if matrix != ((m, n), (n, 1)) or min(m, n, k) == 0:
        return None
    buffers = {id(v): buffer for buffer, v in item.reads}
    return Product(
        item,
        Access(buffers[id(a)], a.offset, strides),
        Access(buffers[id(b)], b.offset, (b.stride[1], b.stride[0]) if turned else tuple(b.stride)),
        Access(buffers[id(bias)], bias.offset, tuple(bias.stride)) if bias is not None else None,
        result, m, n, k,
    )  # fmt: skip


def _as_matrix(size: Any, stride: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Sizes and strides with all dimensions but the last as one; None where they are not."""
    if len(size) < 2:
        return None
    lead = [(n, s) for n, s in zip(size[:-1], stride[:-1]) if n != 1]
    if any(s != t * n for (_, s), (n, t) in itertools.pairwise(lead)):
        return None
    down = lead[-1][1] if lead else size[-1]
    return (int(math.prod(size[:-1])), int(size[-1])), (int(down), int(stride[-1]))


# ---------------------------------------------------------------- printing


class Finished(Writer):
    """A kernel that computes a tile of a matrix, then the loops of a group."""

    def __init__(self, matrix: Matrix, group: Group, stored: set[Buffer], choice: Choice) -> None:
        self.matrix = matrix
        self.depth_of_tile = choice.depth
        super().__init__(
            Part(group, stored, Tile(TileKind.BLOCK, choice.rows, choice.columns, choice.warps, full_rows=False))
        )
        if self.width % choice.columns == 0:
            self.exact_columns, self.room = True, False

    def sums(self) -> list[str]:
        """Lines that compute `made`, in float32, for rows `i` and columns `j`."""
        raise NotImplementedError

    def shape(self) -> dict[str, int]:
        return super().shape() | {"K": self.depth_of_tile}

    def grid(self) -> tuple[int, int, int]:
        down, across, _ = super().grid()
        return down * across, 1, 1

    def load(
        self, scope: Scope, access: Access, guard: str = "", other: Access | None = None, row: tuple[Any, ...] = ()
    ) -> str:
        if access.buffer is self.matrix.result:
            return scope.let("x", "made", "float32")
        return super().load(scope, access, guard, other, row)

    def body(self) -> list[str]:
        scope = Scope(self)
        self.full_stores(scope, 0)
        down, across, _ = super().grid()
        width = self.number("width", 0, _BAND * across)
        lines = [
            f"program = {self.program(0)}",
            f"first = program // {width} * {_BAND}",
            f"tall = tl.minimum({self.number('down', 0, down)} - first, {_BAND})",
            *self.row_lines(f"(first + program % {width} % tall) * X", "[:, None]"),
            *self.column_lines(f"program % {width} // tall * R + "),
            *self.mask_lines(),
            "k = tl.arange(0, K)",
            # What is outside of the matrices is computed from what is inside, and not stored.
            f"i = {self.wrapped('x', 'rows', self.exact_rows, self.height)}",
            f"j = {self.wrapped('c', 'columns', self.exact_columns, self.width)}",
            "made = tl.zeros([X, R], tl.float32)",
            *self.sums(),
        ]
        bias = self.matrix.bias
        if bias is not None:
            lines.append(f"made += tl.load({self.pointer(bias)} + {self.times('j', bias.strides[0])}).to(tl.float32)")
        narrow = {fl.bfloat16: "bfloat16", fl.float16: "float16"}.get(self.matrix.result.dtype)
        return [*lines, *([f"made = made.to(tl.{narrow}).to(tl.float32)"] if narrow else []), *scope.lines]

    def wrapped(self, variable: str, what: str, exact: bool, size: int) -> str:
        """By the remainder, which leaves sixteen neighbours side by side where the size is a multiple of that."""
        return variable if exact else f"{variable} % {self.number(what, 0, size)}"

    def times(self, variable: str, stride: int) -> str:
        return variable if stride == 1 else f"{variable} * {self.number('stride of', variable, stride)}"

    def at(self, access: Access, *indices: str) -> str:
        terms = [self.times(i, s) for i, s in zip(indices, access.strides)]
        return " + ".join([self.pointer(access), *terms])


class _ByDepth(Finished):
    """Of a product of two matrices."""

    matrix: Product

    def _reach(self) -> int:
        p = self.matrix
        far = (p.m * p.a.strides[0] + p.k * p.a.strides[1], p.k * p.b.strides[0] + p.n * p.b.strides[1])
        return max(super()._reach(), *far)

    def sums(self) -> list[str]:
        p = self.matrix
        depth = self.number("depth", 0, p.k)
        whole = p.k % self.depth_of_tile == 0
        left, right = (
            ("", "") if whole else (f", k[None, :] < {depth} - start, 0.0", f", k[:, None] < {depth} - start, 0.0")
        )
        return [
            f"a = {self.at(p.a, 'i', 'k[None, :]')}",
            f"b = {self.at(p.b, 'k[:, None]', 'j')}",
            f"for start in range(0, {depth}, K):",
            f"    made = tl.dot(tl.load(a{left}), tl.load(b{right}), made)",
            f"    a += {self.times('K', p.a.strides[1])}",
            f"    b += {self.times('K', p.b.strides[0])}",
        ]
