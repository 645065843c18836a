"""Lowering: recorded operator calls become loops, where their arithmetic is known, or stay operator calls.

In:  calls on values (`_functorch.aot.trace`), which are windows on numbered storages.
Out: `Loop`s and `Operator`s on buffers, in order. A storage that is written becomes a new buffer where that can be done
     without a copy; otherwise the call stays and writes in place.

The arithmetic comes from the op records: pointwise expressions, reductions, and for some operators a definition in terms of
those (tagged `fuses`), which the recorder applies before calls get here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Set
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau._inductor import across, normalization, sequences
from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall, Reduce
from flambeau._inductor.printers import Printer
from flambeau.backends import records
from flambeau.ops import expr as e
from flambeau.ops import tags
from flambeau.ops.record import find as find_record

__all__ = ["Lowering", "defined"]

_REAL = {
    fl.float32, fl.float64, fl.bfloat16, fl.float16, fl.bool, fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64,
}  # fmt: skip


_FLOAT8 = {fl.float8_e4m3fn, fl.float8_e5m2}
_COMPLEX = {fl.complex64, fl.complex128}


@functools.cache
def defined(both_directions: bool = False) -> dict[str, Callable[..., Any]]:
    """The definitions of the operators that are worth taking apart, for printers whose kernels reduce along rows only or in
    `both_directions`."""
    from flambeau.ops.rules import definition

    names = tags.operators("fuses", "fuses_both_directions") if both_directions else tags.operators("fuses")
    definitions = {name: function for name in names if (function := definition.find(name)) is not None}
    if both_directions:
        own = {**normalization.BOTH_DIRECTIONS, **sequences.DEFINITIONS, "conv2d": _convolution}
    else:
        own = {**normalization.ALONG_ROWS, "linear": _linear}
    return definitions | own


def _convolution(input: Any, weight: Any, bias: Any = None, *settings: Any) -> Any:
    """The bias is added by a loop, which fuses with the normalisation or activation that follows, and so does the sum that
    is its gradient."""
    if bias is None or bias.dtype != input.dtype or input.dim() != 4:
        return NotImplemented
    return fl.nn.functional.conv2d(input, weight, None, *settings) + bias.reshape(1, -1, 1, 1)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """The bias is added by a loop, which fuses with the activation or sum that follows."""
    if bias is None or input.dtype not in (fl.float32, fl.float64) or bias.dtype != input.dtype or weight.dim() != 2:
        return NotImplemented
    return fl.nn.functional.linear(input, weight) + bias


def _is_truncated(operand: Any, compute: Any) -> bool:
    """Whether an operand is not what conversion in a kernel would make of it: eager mode drops the high bits of a single
    integer that is wider than what it meets, and a fraction is a true boolean, which kernels hold as integers."""
    if compute == fl.bool and isinstance(operand, RecordedValue):
        return records.dtype_class(operand.dtype) in "fc"
    single = isinstance(operand, RecordedValue) and not operand.size and records.dtype_class(operand.dtype) == "i"
    return single and records.dtype_class(compute) == "i" and operand.dtype.itemsize > compute.itemsize


def is_dense(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether a window covers a block of memory, each element once."""
    expected = 1
    for n, s in sorted(((n, s) for n, s in zip(size, stride) if n != 1), key=lambda pair: pair[1]):
        if s != expected:
            return False
        expected *= n
    return True


class Lowering:
    """The state of lowering one list of calls."""

    def __init__(
        self,
        printer: Printer,
        owners: frozenset[int] = frozenset(),
        host: Set[int] = frozenset(),
        unaligned: Set[int] = frozenset(),
        padded: Set[int] = frozenset(),
    ) -> None:
        self.printer = printer
        self.dtypes = _REAL | _COMPLEX if self.printer.complex else _REAL  # that loops compute in
        self.owners = owners  # storages that must have memory of their own: those written or returned
        self.host = host  # storages that are not where the loops run
        self.unaligned = unaligned  # storages whose addresses are not multiples of sixteen
        self.padded = padded  # storages with room at the end of each row
        self.items: list[Loop | OperatorCall] = []
        self.widened: dict[Buffer, Access] = {}  # copies in a wider dtype, by what they are copies of
        self.recasts: dict[tuple[Buffer, Any], Buffer] = {}  # states of memory, read as other dtypes
        self.fills: dict[Buffer, int | bool] = {}  # buffers that hold one small integer, which every dtype represents
        self.current: dict[int, Buffer] = {}  # the state of each storage
        self.count = 0

    # ---------------------------------------------------------------- buffers

    def new_buffer(self, value: RecordedValue, source: str) -> Buffer:
        buffer = Buffer(self.count, value.dtype, value.size, value.stride, source)
        buffer.padded = value.storage in self.padded
        self.count += 1
        return buffer

    def enter(self, value: RecordedValue, source: str) -> Buffer:
        """The buffer of a value that is given: an input or a constant."""
        buffer = self.current[value.storage] = self.new_buffer(value, source)
        buffer.aligned = value.storage not in self.unaligned
        return buffer

    def result(self, value: RecordedValue, source: str = "loop") -> Buffer:
        """A fresh buffer, from now on the state of the value's storage."""
        buffer = self.current[value.storage] = self.new_buffer(value, source)
        return buffer

    def state(self, value: RecordedValue) -> Buffer:
        """The state of a value's storage, in the dtype of the value. One that is read as another dtype counts as made by a
        call of its own, so that no loop reads it in the kernel that computes it, where it has no address yet."""
        buffer = self.current[value.storage]
        if buffer.dtype is value.dtype:
            return buffer
        recast = self.recasts.get((buffer, value.dtype))
        if recast is None:
            recast = self.recasts[buffer, value.dtype] = self.new_buffer(value, "recast")
            recast.memory = buffer.memory
            self.items.append(OperatorCall(None, [(buffer, value)], [], [recast]))
        return recast

    def read(self, value: RecordedValue, shape: tuple[int, ...] | None = None) -> Access:
        """The window of a value, broadcast to a shape."""
        shape = value.size if shape is None else shape
        narrow = self.widened.get(self.current[value.storage])
        if narrow is not None and self._is_whole(value):
            lead = (0,) * (len(shape) - len(value.size))
            return Access(narrow.buffer, narrow.offset, lead + narrow.strides)
        if narrow is not None and self._lies_like(narrow, value):
            buffer, offset = narrow.buffer, narrow.offset + value.offset
        else:
            buffer, offset = self.state(value), value.offset
        strides = [0] * (len(shape) - len(value.size)) + list(value.stride)
        padded = [1] * (len(shape) - len(value.size)) + list(value.size)
        return Access(buffer, offset, tuple(0 if n == 1 else s for n, s in zip(padded, strides)))

    def _lies_like(self, narrow: Access, value: RecordedValue) -> bool:
        """Whether the original of a wider copy has its elements in the same places, so that a window on one is one on the
        other."""
        copy = self.current[value.storage]
        strides = tuple(0 if n == 1 else s for n, s in zip(copy.size, copy.stride))
        return value.dtype is copy.dtype and narrow.strides == strides

    def _is_whole(self, value: RecordedValue) -> bool:
        buffer = self.current[value.storage]
        return (value.dtype, value.size, value.stride, value.offset) == (buffer.dtype, buffer.size, buffer.stride, 0)

    def widen(self, value: RecordedValue, source: Access) -> None:
        """Notes that a value is an exact copy in a wider dtype: loops may as well read the original, which spares the copy
        where nobody else needs it. Printers that give each element its own dtype would gain nothing."""
        narrow = source.buffer.dtype in (fl.bfloat16, fl.float16) and value.dtype is fl.float32
        if narrow and self.printer.converts_loads and self._is_whole(value):
            self.widened[self.current[value.storage]] = source

    def needed(self, last: list[Loop], outputs: Iterable[RecordedValue | None]) -> list[Loop | OperatorCall]:
        """The items without loops that make what nobody reads, in the order in which printers want their dimensions."""
        if self.printer.orders_by_memory:
            self.items = across.with_own_operands(self.items, self.count)
            self.count += len(self.items)
        read = {self.current[v.storage] for v in outputs if v is not None}
        read |= {a.buffer for loop in last for a in loop.reads}
        needed: list[Loop | OperatorCall] = []
        for item in reversed(self.items):
            if isinstance(item, OperatorCall):
                read |= {b for b, _ in item.reads}
            elif item.write.buffer in read or item.write.buffer.memory is not item.write.buffer:
                read |= {a.buffer for a in item.reads}
            else:
                continue
            needed.append(item)
        needed.reverse()
        return across.ordered(needed) if self.printer.orders_by_memory else needed

    # ---------------------------------------------------------------- calls

    def lower(self, call: RecordedCall) -> None:
        """Adds what a call becomes."""
        before = len(self.items)
        self._lower(call)
        for item in self.items[before:]:
            if isinstance(item, Loop):
                item.line = call.line

    def _lower(self, call: RecordedCall) -> None:
        if not self.printer.fuses or (self.host and self._touches_host(call)):
            before = len(self.items)
            self._operator(call)
            for item in self.items[before:]:
                if isinstance(item, OperatorCall):
                    item.on_device = False
            return
        handler = _handler(call.op._full_name)
        if handler is not None and handler(self, call):
            return
        record = records.find(call.op)
        if record is None and call.writes:
            record = self._functional_record(call)
        if record is not None and self._computes(call):
            if record.kind == "pointwise" and self._pointwise(call, record):
                return
            if record.kind == "reduction" and not call.writes and self._reduction(call, record):
                return
        self._operator(call)

    def _touches_host(self, call: RecordedCall) -> bool:
        values = [*call.reads, *call.writes, *(v for v in call.results if v is not None)]
        return any(v.storage in self.host for v in values)

    def _computes(self, call: RecordedCall) -> bool:
        """Whether loops know all dtypes of a call, and it has elements."""
        values = [*call.reads, *(v for v in call.results if v is not None)]
        return all(v.dtype in self.dtypes and 0 not in v.size for v in values)

    def _converts(self, call: RecordedCall, source: RecordedValue, result: RecordedValue) -> bool:
        """Whether a copy is one that loops make: of dtypes they compute in, or from or to those they only store."""
        if self._computes(call):
            return result.dtype in _COMPLEX or source.dtype not in _COMPLEX  # parts are dropped by the operator
        kinds = {source.dtype, result.dtype}
        narrow = len(kinds & _FLOAT8) == 1 and (len(kinds) == 1 or len(kinds & _REAL) == 1)
        return self.printer.float8 and narrow and 0 not in source.size and 0 not in result.size

    @staticmethod
    def _functional_record(call: RecordedCall) -> Any:
        """The record of which an in-place operator is the other form."""
        name, _, overload = call.op._full_name.partition(".")
        if not name.endswith("_"):
            return None
        full = f"{name[:-1]}.{overload}" if overload else name[:-1]
        return find_record(full)

    def _target(self, call: RecordedCall) -> tuple[RecordedValue, bool] | None:
        """Where the one result goes, and whether that is a whole storage written in place; None when it cannot be."""
        if not call.writes:
            value = call.results[0]
            return (value, False) if len(call.results) == 1 and value is not None else None
        if len(call.writes) != 1 or any(v is not None for v in call.results):
            return None
        value = call.writes[0]
        buffer = self.current[value.storage]
        whole = value.offset == 0 and is_dense(value.size, value.stride) and _numel(value.size) == _numel(buffer.size)
        whole = whole and is_dense(buffer.size, buffer.stride) and value.dtype is buffer.dtype
        return (value, True) if whole else None

    def _store(
        self, name: str, target: tuple[RecordedValue, bool], expr: e.Expr, reads: list[Access], compute: Any
    ) -> bool:
        value, _ = target
        if expr.op == "load" and self._is_the_same(value, reads[0]):
            self.current[value.storage] = reads[0].buffer
            return True
        buffer = self.result(value)
        self.items.append(
            Loop(name, value.size, expr, reads, Access(buffer, value.offset, _flat_strides(value)), compute)
        )
        return True

    def _is_the_same(self, value: RecordedValue, access: Access) -> bool:
        """Whether a value is a copy of a whole buffer that can do without being one."""
        buffer = access.buffer
        return (
            value.storage not in self.owners
            and buffer.source in ("loop", "operator")
            and buffer.memory is buffer
            and not any(self.current[s] is buffer for s in self.owners if s in self.current)
            and (value.dtype, value.size, value.stride, access.offset) == (buffer.dtype, buffer.size, buffer.stride, 0)
            and access.strides == _flat_strides(value)
        )

    def _pointwise(self, call: RecordedCall, record: Any) -> bool:
        target = self._target(call)
        if target is None:
            return False
        details = record.details
        arguments = records.bind(call.op, call.args, call.kwargs)
        arguments = {k: v.item() if isinstance(v, fl.Tensor) else v for k, v in arguments.items()}
        names = [a.name for a in record.schema.args if a.name != details["select"]]
        elements = [a.name for a in record.schema.args if a.is_tensor]
        typed = [_exemplar(arguments[n]) for n in elements if n not in details["mask"]]
        compute = _C._promote_operands(typed)
        if details["promote"] == "float" and records.dtype_class(compute) in "bi":
            compute = fl.get_default_dtype()
        elif details["promote"] in ("first", "self"):
            compute = arguments[elements[0]].dtype
        if compute not in self.dtypes or any(_is_truncated(arguments[n], compute) for n in elements):
            return False
        case = details["cases"].get(arguments[names[-1]]) if isinstance(arguments[names[-1]], (int, float)) else None
        if compute == fl.float16 and arguments[names[-1]] == 0.5 and self.printer.host_memory:
            case = None  # no square root, as in eager mode: (-inf) ** 0.5 is inf
        if case is not None:
            details, names = case.details, names[:-1]
        table = details["table"]
        if details["select"]:
            function = table.get(arguments[details["select"]])
        else:
            function = records.pick(table, records.dtype_class(compute))
        if function is None:
            return False
        reads: list[Access] = []
        leaves: dict[str, e.Expr] = {}
        for name in names:
            operand = arguments[name]
            if (
                isinstance(operand, RecordedValue)
                and (number := self.fills.get(self.current[operand.storage])) is not None
            ):
                leaves[name] = e.Expr("const", bool(number) if compute == fl.bool else number)
            elif isinstance(operand, RecordedValue):
                leaves[name] = e.Expr("load", len(reads))
                reads.append(self.read(operand, target[0].size))
            elif isinstance(operand, (bool, int, float, complex)):
                # A number of the call may be a size, other than those of the record.
                leaves[name] = e.Expr("const", bool(operand) if compute == fl.bool else operand, "operand")
            else:
                return False
        body = _substituted(e.lift(function(*map(e.arg, names))), leaves)
        if not self.printer.knows(body, compute) or (
            records.dtype_class(compute) in "bi" and _may_divide_by_zero(body)
        ):
            return False
        return self._store(record.name, target, body, reads, compute)

    def _reduction(self, call: RecordedCall, record: Any) -> bool:
        result = call.results[0]
        details = record.details
        arguments = records.bind(call.op, call.args, call.kwargs)
        source = arguments["self"]
        if result is None or not {source.dtype, result.dtype} <= _REAL:
            return False
        dims = arguments.get("dim")
        dims = [dims] if isinstance(dims, int) else list(dims or range(len(source.size)))
        dims = {d % len(source.size) for d in dims} if source.size else set()
        if record.name.startswith("sum") and self._is_small_sum_of_rows(source, dims):
            return False
        compute = arguments.get("dtype") or source.dtype
        if details["result"] == "sum" and records.dtype_class(compute) in "bi":
            compute = fl.int64
        names = [a.name for a in record.schema.args if a.name not in ("self", "dim", "keepdim", "dtype")]
        if any(not isinstance(arguments[n], (bool, int, float)) for n in names):
            return False
        parameters = [e.Expr("const", arguments[n]) for n in names]
        load = records.pick(details["load"], records.dtype_class(compute))
        loaded = e.Expr("load", 0)
        accumulate = {"int": fl.int64, "bool": fl.bool}.get(details["accumulate"], compute)
        if arguments.get("dtype") == fl.bool:
            compute, loaded = source.dtype, loaded != 0
        a, b, n = map(e.arg, "abn")
        combine = e.lift(details["combine"](a, b))
        if combine.op not in e.COMBINATIONS or {x.op for x in combine.args} != {"arg"}:
            return False
        body = e.lift(load(loaded, *parameters))
        finish = e.lift(details["finish"](a, n, *parameters))
        if not self.printer.knows(body, compute) or not self.printer.knows(finish, accumulate):
            return False
        is_kept = tuple(d not in dims for d in range(len(source.size)))
        buffer = self.result(result)
        own = iter(_flat_strides(result))
        keeps_dims = len(result.size) == len(source.size)
        strides = tuple(s if k else 0 for k, s in _placed(is_kept, own, keeps_dims))
        self.items.append(
            Loop(
                record.name,
                source.size,
                body,
                [self.read(source)],
                Access(buffer, 0, strides),
                compute,
                Reduce(
                    details["init"],
                    combine,
                    finish,
                    accumulate,
                    is_kept,
                ),
            )
        )
        return True

    def _is_small_sum_of_rows(self, source: RecordedValue, dims: set[int]) -> bool:
        """Whether no loop makes the rows that are summed, so that nothing is gained by another loop: the operator takes
        eight rows at a time, and the last bits (of a layer's bias gradient, say) are those of eager mode."""
        return (
            not self.printer.small_row_sums
            and dims == {0}
            and len(source.size) == 2
            and _numel(source.size) <= 1 << 14
            and self.current[source.storage].source in ("input", "operator")
        )

    def _operator(self, call: RecordedCall) -> None:
        reads = [(self.state(v), v) for v in call.reads]
        results: list[Buffer | None] = []
        late: list[Loop | OperatorCall] = []
        for value in call.results:
            if value is None:
                results.append(None)
            elif value.storage in self.current:
                results.append(None)  # the operator gave back (a window on) something it was given
            elif value.storage in self.padded and call.op._full_name != "_product_pitched":
                results.append(self._spread(value, late))
            else:
                results.append(self.result(value, "operator"))
        item = OperatorCall(call, reads, results)
        if call.writes:
            self.widened.clear()  # what they are copies of may be written
        for value in call.writes:
            old = self.current[value.storage]
            state = Buffer(self.count, old.dtype, old.size, old.stride, "operator")
            self.count += 1
            state.memory = old.memory
            self.current[value.storage] = state
            item.written.append(state)
        self.items += [item, *late]

    def _spread(self, value: RecordedValue, late: list[Loop | OperatorCall]) -> Buffer:
        """The buffer of a result as the operator makes it, and the copy of it to where its rows should lie."""
        size, plain = value.size, _contiguous(value.size)
        contiguous = Buffer(self.count, value.dtype, size, plain, "operator")
        self.count += 1
        reads = [Access(contiguous, 0, tuple(0 if n == 1 else s for n, s in zip(size, plain)))]
        write = Access(self.result(value), value.offset, _flat_strides(value))
        late.append(Loop("copy", size, e.Expr("load", 0), reads, write, value.dtype))
        return contiguous


def _numel(size: tuple[int, ...]) -> int:
    total = 1
    for n in size:
        total *= n
    return total


def _flat_strides(value: RecordedValue) -> tuple[int, ...]:
    return tuple(0 if n == 1 else s for n, s in zip(value.size, value.stride))


def _placed(is_kept: tuple[bool, ...], strides: Any, keeps_dims: bool) -> Any:
    """For each dimension of a reduction's source whether it is kept, and the result's stride there."""
    for k in is_kept:
        yield k, next(strides) if k or keeps_dims else 0


def _substituted(node: e.Expr, leaves: dict[str, e.Expr]) -> e.Expr:
    """The expression with its arguments replaced."""
    if node.op == "arg":
        return leaves[node.args[0]]  # type: ignore[index]
    if node.op in ("const", "load"):
        return node
    args = [_substituted(a, leaves) for a in node.args]  # type: ignore[arg-type]
    if node.op == "mul":
        for one, other in (args, args[::-1]):
            if one.op == "const" and one.args[0] == 1:
                return other
    return e.Expr(node.op, *args)


def _may_divide_by_zero(node: e.Expr) -> bool:
    """Whether an expression on integers divides by what is not known to be other than zero, for which it must raise."""
    if node.op in ("const", "load"):
        return False
    if node.op in e.DIVISIONS and not (node.args[1].op == "const" and node.args[1].args[0]):
        return True
    return any(_may_divide_by_zero(a) for a in node.args if isinstance(a, e.Expr))


def _exemplar(operand: Any) -> Any:
    return operand.tensor if isinstance(operand, RecordedValue) else operand


# ---------------------------------------------------------------- operators that only move or make numbers


_HANDLERS: dict[str, Callable[[Lowering, RecordedCall], bool]] = {}


def _lowers(name: str) -> Callable[[Any], Any]:
    """Decorator: the function lowers calls of an operator, or returns False."""
    return lambda handler: _HANDLERS.setdefault(name, handler)


@_lowers("copy_")
def _copy(lowering: Lowering, call: RecordedCall) -> bool:
    """copy_(self, src): an element of src for each of self."""
    target = lowering._target(call)
    source = call.args[1]
    if target is None or not isinstance(source, RecordedValue) or not lowering._converts(call, source, target[0]):
        return False
    value = target[0]
    reads = [lowering.read(source, value.size)]
    return lowering._store("copy_", target, e.Expr("load", 0), reads, source.dtype)


def _clone(lowering: Lowering, call: RecordedCall) -> bool:
    source, result = call.args[0], call.results[0]
    if result is None or not isinstance(source, RecordedValue) or not lowering._converts(call, source, result):
        return False
    reads = [lowering.read(source)]
    done = lowering._store(call.op._opname, (result, False), e.Expr("load", 0), reads, source.dtype)
    lowering.widen(result, reads[0])
    return done


@_lowers("native_dropout")
def _dropout(lowering: Lowering, call: RecordedCall) -> bool:
    """native_dropout(input, p, train): a word of random bits for each element decides whether it is kept."""
    source, p, train = call.args
    result, mask = call.results
    threshold = int((1 - p) * 2.0**32)  # of so many words
    if not lowering.printer.random or train is False or threshold >= 1 << 32 or result is None or mask is None:
        return False
    if not lowering._computes(call):
        return False
    # Elements are counted as they lie in memory, if the result lies as the source does.
    plain = result.stride == source.stride and is_dense(source.size, source.stride)
    order = _flat_strides(source) if plain else _contiguous(source.size)
    state = Buffer(lowering.count, fl.int64, (2,), (1,), "random")
    lowering.count += 1
    lowering.items.append(OperatorCall(None, [], [state]))
    word = Access(state, 0, tuple(0 if n == 1 else s for n, s in zip(source.size, order)))
    lowering._store("random", (mask, False), e.Expr("load", 0) < threshold, [word], fl.int64)
    factor = e.where(e.Expr("load", 1), 0.0 if p == 1 else 1 / (1 - p), 0.0)
    reads = [lowering.read(source), lowering.read(mask)]
    return lowering._store("native_dropout", (result, False), e.Expr("load", 0) * factor, reads, source.dtype)


def _lowered_in(module: str, name: str) -> Callable[[Lowering, RecordedCall], bool]:
    """A function of another module, which is loaded when it is first needed."""

    def handle(lowering: Lowering, call: RecordedCall) -> bool:
        function = getattr(importlib.import_module(f"flambeau._inductor.{module}"), name)
        return bool(function(lowering, call))

    handle.__module__ = f"flambeau._inductor.{module}"
    return handle


def lowered_in(module: str) -> set[str]:
    """The operators whose loops are written in a module."""
    return {name for name, handle in _HANDLERS.items() if handle.__module__ == f"flambeau._inductor.{module}"}


def _contiguous(size: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_numel(size[i + 1 :]) for i in range(len(size)))


def _fill(lowering: Lowering, call: RecordedCall) -> bool:
    """The same number everywhere, which the record knows, or which argument says it."""
    target = lowering._target(call)
    record = find_record(call.op._full_name)
    assert record is not None
    number = record.fill
    if isinstance(number, str):
        number = records.bind(call.op, call.args, call.kwargs)[number]
    if target is None or not isinstance(number, (bool, int, float)) or target[0].dtype not in lowering.dtypes:
        return False
    if 0 in target[0].size:
        return False
    if target[0].dtype == fl.bool:
        number = bool(number)
    done = lowering._store(call.op._opname, target, e.Expr("const", number), [], target[0].dtype)
    if 0 <= number <= 100 and number == int(number):
        lowering.fills[lowering.current[target[0].storage]] = number if isinstance(number, bool) else int(number)
    return done


def _handler(name: str) -> Callable[[Lowering, RecordedCall], bool] | None:
    """What lowers an operator that only moves or makes numbers."""
    if name in tags.operators("copy"):
        return _clone
    return _fill if name in tags.operators("fill") else _HANDLERS.get(name)


_HANDLERS["_cross_entropy_forward"] = _lowered_in("losses", "cross_entropy")
_HANDLERS["_cross_entropy_backward"] = _lowered_in("losses", "cross_entropy_backward")
_HANDLERS["cat"] = _lowered_in("joining", "cat")
_HANDLERS["constant_pad_nd"] = _lowered_in("joining", "pad")
_HANDLERS["_slice_backward"] = _lowered_in("joining", "slice_backward")
_HANDLERS["index_copy_"] = _lowered_in("placing", "index_copy_")
_HANDLERS["argmax"] = _lowered_in("extremes", "argmax")
_HANDLERS["argmin"] = _lowered_in("extremes", "argmin")
_HANDLERS["embedding"] = _lowered_in("placing", "embedding")
_HANDLERS["index.Tensor"] = _lowered_in("placing", "index")
_HANDLERS["arange"] = _lowered_in("placing", "arange")
_HANDLERS["arange.start"] = _lowered_in("placing", "arange")
_HANDLERS["arange.start_step"] = _lowered_in("placing", "arange")
_HANDLERS["linear"] = _lowered_in("vectors", "linear")
_HANDLERS["mm"] = _lowered_in("vectors", "mm")
