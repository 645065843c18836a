"""Loop IR: what is computed at one point of an iteration space, and where it is read and written.

A `Loop` has a domain (the sizes of its dimensions), an expression whose leaves are loads, and one store. A reduction
combines the expression over some of the dimensions. Expressions are those of the op records (`ops/expr.py`) with
`Expr("load", i)` for the element that access i of the loop reads.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

from flambeau._functorch.aot.trace import RecordedValue
from flambeau.ops.expr import Expr

__all__ = [
    "Access",
    "Buffer",
    "Loop",
    "ScalarInput",
    "OperatorCall",
    "Place",
    "Reduce",
    "chosen_loads",
    "in_memory_order",
    "moved_loads",
    "refine",
    "split_strides",
]


class Buffer:
    """A block of memory, or one state of it: writing in place makes a new state over the same memory."""

    __slots__ = ("aligned", "dtype", "index", "memory", "padded", "size", "source", "stride")

    def __init__(self, index: int, dtype: Any, size: tuple[int, ...], stride: tuple[int, ...], source: str) -> None:
        self.index = index
        self.dtype = dtype
        self.size = size
        self.stride = stride
        # Who makes it: "input", "constant", "loop", "operator", "random", "index"; "recast" is memory read as another dtype.
        self.source = source
        self.memory = self  # the buffer whose memory this is
        self.aligned = True  # its address is a multiple of sixteen
        self.padded = False  # its rows lie apart: at the end of each there are elements that nobody reads

    def __repr__(self) -> str:
        return f"b{self.index}"


@dataclass(frozen=True)
class Access:
    """An element of a buffer for each point of a domain: offset + sum(index * stride)."""

    buffer: Buffer
    offset: int
    strides: tuple[int, ...]


@dataclass
class Reduce:
    """How a loop reduces: finish(combine(... combine(init, x) ...), n) over the dimensions that are not kept."""

    init: Any  # a number, "lowest" or "highest"
    combine: Expr  # of arg("a") and arg("b")
    finish: Expr  # of arg("a") and arg("n")
    accumulate: Any  # dtype
    kept: tuple[bool, ...]


@dataclass(frozen=True)
class Place:
    """A dimension of what a loop writes in which the index is found in memory. An index that does not exist writes nothing."""

    read: int  # the one of the loop's reads that is the index
    stride: int  # elements from one index to the next
    size: int  # indices that exist


@dataclass
class Loop:
    """One op over one domain. `compute` is the dtype of its arithmetic, the store's dtype is the buffer's."""

    name: str
    domain: tuple[int, ...]
    expr: Expr
    reads: list[Access]
    write: Access  # of a reduction: over the whole domain too, with stride 0 along reduced dimensions
    compute: Any
    reduce: Reduce | None = None
    line: str | None = None  # of the program that it comes from, where somebody wants to know
    count: int = 0  # of a reduction of partial results: the elements of all parts
    place: Place | None = None  # None: the write says where everything goes
    apart: int = 0  # loops that run at the points of a group do so with their own kind only, if this is not zero


class ScalarInput(RecordedValue):
    """A tensor of one double or integer that stands for a scalar among the arguments of a call."""

    __slots__ = ()


@dataclass
class OperatorCall:
    """A call that runs as it is, through the dispatcher."""

    call: Any  # None: nothing is called; takes the state of a random stream, or reads memory as the dtype of `written`
    reads: list[Any]  # (Buffer, Value) of each tensor argument, in the order of the arguments
    results: list[Buffer | None]
    written: list[Buffer] = field(default_factory=list)  # states made by writing in place
    on_device: bool = True  # nothing of it is in the host's memory, so that kernels may take the place of the call


def moved_loads(expr: Any) -> set[int]:
    """The loads of an expression that are of a row whose number another load says: `row(number, load, ...)`."""
    if not isinstance(expr, Expr):
        return set()
    if expr.op == "row":
        load: Any = expr.args[1]
        return {load.args[0]}
    return set().union(*(moved_loads(a) for a in expr.args))


def chosen_loads(expr: Any) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The two loads of each choice by an index, `either(before(load, bound), load, load)`, with that load and its bound."""
    if not isinstance(expr, Expr):
        return []
    if expr.op == "either":
        condition, one, other = expr.args
        assert isinstance(condition, Expr) and isinstance(one, Expr) and isinstance(other, Expr)
        if condition.op != "before":
            return []
        number, bound = condition.args
        return [((one.args[0], other.args[0]), (number.args[0], bound))]  # type: ignore[list-item]
    return [choice for a in expr.args for choice in chosen_loads(a)]


def in_memory_order(loop: Loop) -> Loop:
    """The loop with its dimensions in the order in which they lie in memory, so that a reduction over all but the channels of
    channels-last memory is one along rows; as it is, where that would leave a reduction in the middle."""
    lead = loop.write if loop.reduce is None else max(loop.reads, key=lambda a: sum(map(bool, a.strides)), default=None)
    if lead is None:
        return loop
    order = sorted(range(len(loop.domain)), key=lambda i: -lead.strides[i])
    if order == list(range(len(order))):
        return loop
    reduce = loop.reduce
    if reduce is not None:
        kept_order = tuple(reduce.kept[i] for i in order)
        is_kept = [k for k, i in zip(kept_order, order) if loop.domain[i] != 1]
        if sum(a != b for a, b in itertools.pairwise(is_kept)) > 1:
            return loop
        reduce = replace(reduce, kept=kept_order)

    def turned(access: Access) -> Access:
        return Access(access.buffer, access.offset, tuple(access.strides[i] for i in order))

    domain = tuple(loop.domain[i] for i in order)
    return replace(loop, domain=domain, reads=list(map(turned, loop.reads)), write=turned(loop.write), reduce=reduce)


def refine(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The coarsest dimensions of which both lists of sizes are products of neighbours; None if there are none."""
    left, right = [n for n in a if n != 1], [n for n in b if n != 1]
    refined: list[int] = []
    i, j = len(left) - 1, len(right) - 1
    x = left[i] if i >= 0 else 1
    y = right[j] if j >= 0 else 1
    while i >= 0 and j >= 0:
        if x == y:
            refined.append(x)
            i, j = i - 1, j - 1
            x = left[i] if i >= 0 else 1
            y = right[j] if j >= 0 else 1
        elif x > y:
            if y == 0 or x % y:
                return None
            refined.append(y)
            x //= y
            j -= 1
            y = right[j] if j >= 0 else 1
        else:
            if x == 0 or y % x:
                return None
            refined.append(x)
            y //= x
            i -= 1
            x = left[i] if i >= 0 else 1
    return tuple(reversed(refined)) if i < 0 and j < 0 else None


def split_strides(strides: tuple[int, ...], domain: tuple[int, ...], refined: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over a domain as strides over a refinement of it."""
    split: list[int] = []
    at = len(refined) - 1
    for size, stride in zip(reversed(domain), reversed(strides)):
        if size == 1:
            continue
        covered = 1
        while covered < size:
            split.append(stride * covered)
            covered *= refined[at]
            at -= 1
    return tuple(reversed(split))
