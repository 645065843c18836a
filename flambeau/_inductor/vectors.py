"""Lowering products of a matrix and one vector: a sum along each row of the matrix, as a loop.

Such a product reads each weight once, so that its time is that of the memory, and what follows it costs a launch each if it
is a kernel of its own. As loops, products of the same vector run together, and bias, activation, gate and residual sum are
computed where the sums are. The norm before a product is computed by each of its programs, which read the whole vector anyway.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall, Reduce, moved_loads
from flambeau._inductor.joining import guarded_loads
from flambeau.ops import expr as e

__all__ = ["linear", "mm"]

_DTYPES = (fl.float32, fl.bfloat16, fl.float16)
_FAR = 64  # items behind which the loops that make a vector are not looked for
_MOST_LOOPS = 16  # that make a vector in the kernel of a product
_MOST_ROWS = 8192  # of a matrix whose programs do so: more would take longer for it than a kernel


def linear(lowering: Any, call: RecordedCall) -> bool:
    """linear(input, weight, bias)"""
    vector, matrix, bias = (*call.args, *call.kwargs.values(), None)[:3]
    return len(matrix.size) == 2 and _product(lowering, call, vector, matrix, tuple(matrix.stride), bias)


def mm(lowering: Any, call: RecordedCall) -> bool:
    """mm(self, mat2)"""
    vector, matrix = call.args
    return _product(lowering, call, vector, matrix, tuple(matrix.stride)[::-1], None)


def _product(
    lowering: Any,
    call: RecordedCall,
    vector: RecordedValue,
    matrix: RecordedValue,
    strides: tuple[int, ...],
    bias: RecordedValue | None,
) -> bool:
    """`strides` are those of results by summands in the matrix."""
    result = call.results[0]
    if not lowering.printer.matrix_vectors or result is None or not lowering._computes(call):
        return False
    count, depth = int(result.size[-1]), int(vector.size[-1])
    same = all(v.dtype is result.dtype for v in call.reads) and result.dtype in _DTYPES
    if not same or math.prod(vector.size) != depth or count == 1 or depth == 1 or strides[1] != 1:
        return False
    result_buffer = lowering.result(result)
    target = result_buffer
    if bias is not None:
        target = Buffer(lowering.count, fl.float32, (count,), (1,), "loop")
        lowering.count += 1
    read = lowering.read(matrix)
    vector_read = lowering.read(vector)
    kind = -1 - vector_read.buffer.index  # of the products with this vector, and of what is computed for them
    reads = [Access(read.buffer, read.offset, strides), _operand(lowering, vector_read, count, depth, kind)]
    a, b = e.arg("a"), e.arg("b")
    reduce = Reduce(0, a + b, a, fl.float32, (True, False))
    body = e.Expr("load", 0) * e.Expr("load", 1)
    write = Access(target, 0, (1, 0))
    lowering.items.append(Loop("product", (count, depth), body, reads, write, fl.float32, reduce, apart=kind))
    if bias is not None:
        reads = [Access(target, 0, (1,)), Access(*_whole(lowering.read(bias)))]
        body = e.Expr("load", 0) + e.Expr("load", 1)
        lowering.items.append(Loop("bias", (count,), body, reads, Access(result_buffer, 0, (1,)), fl.float32))
    return True


def _operand(lowering: Any, vector: Access, count: int, depth: int, kind: int) -> Access:
    """A vector as one row, seen from all rows of a matrix: read, or computed for each row by copies of the loops that make it."""
    copies: dict[Buffer, Buffer] = {}
    for loop in _makers(lowering, vector.buffer, depth) if count <= _MOST_ROWS else ():
        own = copies[loop.write.buffer] = Buffer(lowering.count, loop.write.buffer.dtype, (), (), "loop")
        own.size, own.stride = loop.write.buffer.size, loop.write.buffer.stride
        lowering.count += 1
        lowering.items.append(replace(_for_each_row(loop, count, depth, copies), apart=kind))
    return Access(copies.get(vector.buffer, vector.buffer), vector.offset, (0, vector.strides[-1]))


def _makers(lowering: Any, buffer: Buffer, depth: int) -> list[Loop]:
    """The loops over a vector and single numbers that make one, in order: those of a norm, say. Sums of a product's results are
    in memory already."""
    recent: list[Loop | OperatorCall] = lowering.items[-_FAR:]
    made_at = {item.write.buffer: at for at, item in enumerate(recent) if isinstance(item, Loop)}
    places: set[int] = set()
    pending = [buffer]
    while pending:
        at = made_at.get(pending.pop(), -1)
        loop = recent[at] if at >= 0 else None
        if at in places or not isinstance(loop, Loop) or not _is_of_vector(loop, depth):
            continue
        sources = [recent[made_at[a.buffer]] for a in loop.reads if a.buffer in made_at]
        if any(isinstance(source, Loop) and source.name == "product" for source in sources):
            continue
        places.add(at)
        pending += [a.buffer for a in loop.reads]
    between = recent[min(places, default=0) :]
    written = any(
        bool(i.written) if isinstance(i, OperatorCall) else i.write.buffer.memory is not i.write.buffer for i in between
    )
    return [] if written or len(places) > _MOST_LOOPS else [recent[at] for at in sorted(places)]  # type: ignore[misc]


def _is_of_vector(loop: Loop, depth: int) -> bool:
    """Whether a loop runs over a vector, maybe to reduce it to one number, or makes one number."""
    long = [n for n in loop.domain if n != 1]
    if long not in ([], [depth]) or loop.place is not None or guarded_loads(loop.expr) - moved_loads(loop.expr):
        return False
    if any(a.buffer.source in ("index", "random") for a in loop.reads):
        return False
    return loop.reduce is None or (long == [depth] and not any(loop.write.strides))


def _for_each_row(loop: Loop, count: int, depth: int, copies: dict[Buffer, Buffer]) -> Loop:
    """A loop over a vector or one number, for each row of a matrix."""
    along = next((i for i, n in enumerate(loop.domain) if n != 1), None)

    def seen(access: Access) -> Access:
        strides = (0,) if along is None else (0, access.strides[along])
        return Access(copies.get(access.buffer, access.buffer), access.offset, strides)

    return replace(
        loop,
        domain=(count,) if along is None else (count, depth),
        reads=[seen(a) for a in loop.reads],
        write=seen(loop.write),
        reduce=None if loop.reduce is None else replace(loop.reduce, kept=(True, False)),
    )


def _whole(access: Access) -> tuple[Buffer, int, tuple[int, ...]]:
    return access.buffer, access.offset, access.strides[-1:]
