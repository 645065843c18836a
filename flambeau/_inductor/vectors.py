"""Lowering products of a matrix and one vector: a sum along each row of the matrix, as a loop.

Such a product reads each weight once, so that its time is that of the memory, and what follows it costs a launch each if it
is a kernel of its own. As loops, products of the same vector run together, and bias, activation, gate and residual sum are
computed where the sums are.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau._inductor.ir import Access, Buffer, Loop, Reduce
from flambeau.ops import expr as e

__all__ = ["linear", "mm"]

_DTYPES = (fl.float32, fl.bfloat16, fl.float16)


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
    made = lowering.result(result)
    target = made
    if bias is not None:
        target = Buffer(lowering.count, fl.float32, (count,), (1,), "loop")
        lowering.count += 1
    read, along = lowering.read(matrix), lowering.read(vector).strides[-1]
    reads = [Access(read.buffer, read.offset, strides), _row(lowering.read(vector), along)]
    a, b = e.arg("a"), e.arg("b")
    reduce = Reduce(0, a + b, a, fl.float32, (True, False))
    body = e.Expr("load", 0) * e.Expr("load", 1)
    write = Access(target, 0, (1, 0))
    lowering.items.append(Loop("product", (count, depth), body, reads, write, fl.float32, reduce))
    if bias is not None:
        reads = [Access(target, 0, (1,)), Access(*_whole(lowering.read(bias)))]
        body = e.Expr("load", 0) + e.Expr("load", 1)
        lowering.items.append(Loop("bias", (count,), body, reads, Access(made, 0, (1,)), fl.float32))
    return True


def _row(access: Access, stride: int) -> Access:
    """A vector as one row, seen from all rows of a matrix."""
    return Access(access.buffer, access.offset, (0, stride))


def _whole(access: Access) -> tuple[Buffer, int, tuple[int, ...]]:
    return access.buffer, access.offset, access.strides[-1:]
