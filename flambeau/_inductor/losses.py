"""Lowering cross entropy to loops, for printers that know the numbers of elements.

The score of a row's class is picked by comparing each column's number with the class while the row is read anyway, so that
nothing is gathered or scattered, and the scores are never written in another dtype or as probabilities.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall
from flambeau._inductor.ir import Access, Buffer, Loop, Reduce
from flambeau.ops import expr as e

__all__ = ["cross_entropy", "cross_entropy_backward"]

_MEAN, _SUM = 1, 2
_LOG2_E = 1.4426950408889634
_FLOATS = (fl.float32, fl.bfloat16, fl.float16)


def _load(i: int) -> e.Expr:
    return e.Expr("load", i)


class _Rows:
    """Loops over a matrix of scores, under construction."""

    def __init__(self, lowering: Any, scores: Any, target: Any) -> None:
        self.lowering = lowering
        self.rows, self.columns = scores.size
        self.scores = lowering.read(scores)
        classes = lowering.read(target)
        self.classes = Access(classes.buffer, classes.offset, (*classes.strides, 0))
        self.column = Access(Buffer(-1, fl.int64, (), (), "index"), 0, (0, 1))

    def buffer(self, size: tuple[int, ...], dtype: Any = fl.float32) -> Buffer:
        strides = tuple(1 for _ in size)
        buffer = Buffer(self.lowering.count, dtype, size, strides, "loop")
        self.lowering.count += 1
        return buffer

    def exp(self, x: e.Expr) -> e.Expr:
        """The exponential; where scores have few bits, a single instruction of the device is as good."""
        return e.fast_exp2(x * _LOG2_E) if self.scores.buffer.dtype.itemsize == 2 else e.exp(x)

    def exp_from(self, x: e.Expr, top: e.Expr) -> e.Expr:
        """The exponential of a difference to the largest score; where scores have few bits, in one multiplication and addition."""
        few = self.scores.buffer.dtype.itemsize == 2
        return e.fast_exp2(x * _LOG2_E - top * _LOG2_E) if few else e.exp(x - top)

    def row(self, buffer: Buffer) -> Access:
        """One number for each row, seen from the matrix."""
        return Access(buffer, 0, (0 if self.rows == 1 else 1, 0))

    def fold(self, name: str, op: str, init: Any, body: e.Expr, reads: list[Access]) -> Buffer:
        """One number for each row: the fold of its columns."""
        reduced = self.buffer((self.rows,))
        a, b = e.arg("a"), e.arg("b")
        reduce = Reduce(init, e.call(op, a, b), a, fl.float32, (True, False))
        domain = (self.rows, self.columns)
        self.lowering.items.append(Loop(name, domain, body, reads, self.row(reduced), fl.float32, reduce))
        return reduced

    def picked(self) -> Buffer:
        """The score of each row's class: read by itself where scores are in memory, else found while the row is read."""
        if self.lowering.printer.places and self.scores.buffer.source != "loop":
            picked = self.buffer((self.rows,))
            first, classes = (
                Access(a.buffer, a.offset, a.strides[:1]) for a in (self.scores, self.classes)
            )  # of each row
            body = e.Expr("row", _load(1), _load(0), self.columns, self.scores.strides[1], False)
            write = Access(picked, 0, (0 if self.rows == 1 else 1,))
            self.lowering.items.append(Loop("pick", (self.rows,), body, [first, classes], write, fl.float32))
            return picked
        chosen = e.where(e.Expr("at", _load(1), _load(2)), _load(0), 0.0)
        return self.fold("pick", "add", 0, chosen, [self.scores, self.column, self.classes])

    def each(
        self, name: str, body: e.Expr, buffers: list[Buffer], classes: bool, target: Buffer | None = None
    ) -> Buffer:
        """One number for each row, of others; the last read is the class, where that takes part."""
        target = target or self.buffer((self.rows,))
        reads = [Access(b, 0, (0 if b.size == () or self.rows == 1 else 1,)) for b in buffers]
        if classes:
            reads.append(Access(self.classes.buffer, self.classes.offset, self.classes.strides[:1]))
        write = Access(target, 0, (0 if self.rows == 1 else 1,))
        self.lowering.items.append(Loop(name, (self.rows,), body, reads, write, fl.float32))
        return target

    def total(self, name: str, body: e.Expr, buffers: list[Buffer]) -> Buffer:
        """The sum over all rows of something that depends on the row's class, which is the last read."""
        total = self.buffer(())
        a, b = e.arg("a"), e.arg("b")
        reads = [Access(source, 0, (0 if self.rows == 1 else 1,)) for source in buffers]
        reads.append(Access(self.classes.buffer, self.classes.offset, self.classes.strides[:1]))
        reduce = Reduce(0, a + b, a, fl.float32, (False,))
        self.lowering.items.append(Loop(name, (self.rows,), body, reads, Access(total, 0, (0,)), fl.float32, reduce))
        return total

    def scalar(self, name: str, body: e.Expr, buffers: list[Buffer], result: Any) -> None:
        result_buffer = self.lowering.result(result)
        reads = [Access(b, 0, ()) for b in buffers]
        self.lowering.items.append(Loop(name, (), body, reads, Access(result_buffer, 0, ()), fl.float32))


def _fits(lowering: Any, scores: Any, target: Any, weight: Any) -> bool:
    return (
        lowering.printer.indices
        and weight is None
        and len(scores.size) == 2
        and len(target.size) == 1
        and scores.dtype in _FLOATS
        and target.dtype is fl.int64
        and 0 not in scores.size
        and 1 < scores.size[1] < 1 << 31  # columns are compared as integers of 32 bits
    )


def cross_entropy(lowering: Any, call: RecordedCall) -> bool:
    """_cross_entropy_forward(scores, target, weight, reduction, ignored) -> loss, number of rows, logsumexp of rows."""
    scores, target, weight, reduction, ignored = call.args
    loss, total, sums = call.results
    if not _fits(lowering, scores, target, weight) or loss is None or total is None or sums is None:
        return False
    rows = _Rows(lowering, scores, target)
    top = rows.fold("amax", "maximum", "lowest", _load(0), [rows.scores])
    spread = rows.fold("sum", "add", 0, rows.exp_from(_load(0), _load(1)), [rows.scores, rows.row(top)])
    picked = rows.picked()
    normalizer = rows.each("logsumexp", _load(0) + e.log(_load(1)), [top, spread], False, lowering.result(sums))
    if reduction not in (_MEAN, _SUM):
        result = lowering.result(loss)
        counts = _load(2) != float(ignored)
        rows.each("loss", e.where(counts, _load(0) - _load(1), 0.0), [normalizer, picked], True, result)
    else:
        losses = rows.each("loss", _load(0) - _load(1), [normalizer, picked], False)
    # Both sums read the classes, so that they are one kernel.
    count = rows.total("sum", e.where(_load(0) != float(ignored), 1.0, 0.0), [])
    rows.scalar("copy", _load(0), [count], total)
    if reduction in (_MEAN, _SUM):
        summed = rows.total("sum", e.where(_load(1) != float(ignored), _load(0), 0.0), [losses])
        body = _load(0) / _load(1) if reduction == _MEAN else _load(0)
        rows.scalar("cross_entropy", body, [summed, count] if reduction == _MEAN else [summed], loss)
    return True


def cross_entropy_backward(lowering: Any, call: RecordedCall) -> bool:
    """_cross_entropy_backward(gradient, scores, target, weight, reduction, ignored, number of rows, logsumexp)."""
    grad, scores, target, weight, reduction, ignored, total, sums = call.args
    result = call.results[0]
    if not _fits(lowering, scores, target, weight) or result is None:
        return False
    rows = _Rows(lowering, scores, target)
    reads = [lowering.read(v, (rows.rows,)) for v in (grad, total, target)]
    share = _load(0) / _load(1) if reduction == _MEAN else _load(0)
    factor = rows.buffer((rows.rows,))
    write = Access(factor, 0, (0 if rows.rows == 1 else 1,))
    body = e.where(_load(2) != float(ignored), share, 0.0)
    lowering.items.append(Loop("factor", (rows.rows,), body, reads, write, fl.float32))
    normalizer = lowering.read(sums)
    reads = [
        rows.scores, Access(normalizer.buffer, normalizer.offset, (*normalizer.strides, 0)), rows.row(factor),
        rows.column, rows.classes,
    ]  # fmt: skip
    here = e.where(e.Expr("at", _load(3), _load(4)), 1.0, 0.0)
    gradient = (rows.exp(_load(0) - _load(1)) - here) * _load(2)
    return bool(lowering._store("cross_entropy_backward", (result, False), gradient, reads, fl.float32))
