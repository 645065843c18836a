"""Recorded graphs as StableHLO text.

In:  a graph of calls (`flambeau.lazy.graph`), recorded again with every operator taken apart by its definition as far as it
     goes: what is left are pointwise and reduction records, copies, fills, products, reads and writes by index, scans, sorts.
Out: a module with one function over the graph's inputs. Storages are values of the program; a window that is not a whole
     storage is a transposition, a broadcast or a gather of it, and writing one is a scatter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Recorder, Trace, _run
from flambeau.backends.records import bind, dtype_class, pick
from flambeau.lazy.graph import Call, Replay
from flambeau.ops.expr import Expr, arg, lift
from flambeau.ops.record import find
from flambeau.ops.recording import DependsOnData
from flambeau.xla import draws, expressions

__all__ = ["NotPrintable", "Printed", "print_function", "print_graph"]

_TYPES = {
    fl.float32: "f32", fl.float64: "f64", fl.bfloat16: "bf16", fl.float16: "f16", fl.int64: "i64", fl.int32: "i32",
    fl.int16: "i16", fl.int8: "i8", fl.uint8: "ui8", fl.bool: "i1",
}  # fmt: skip


class NotPrintable(Exception):
    """An operator that has no StableHLO; the name is the message."""


class Printed(NamedTuple):
    text: str
    outputs: int  # results that are wanted; those after them are new values of inputs
    written: list[int]  # the inputs that are written
    used: list[int]  # the inputs that the function takes
    draws: int = 0  # rows of random state that it takes after them


class _WithUpdates(Replay):
    """Runs optimizer steps operator by operator, so that numbers may be tensors."""

    def _run(self, call: Call, update: bool, tensors: Any, parameters: Any) -> None:
        if not update:
            return super()._run(call, update, tensors, parameters)
        from flambeau.lazy.graph import Parameter, Window, _window
        from flambeau.ops.evaluate import evaluate

        def read(a: Any) -> Any:
            if isinstance(a, Window):
                return _window(tensors[a.slot], a)
            if isinstance(a, Parameter):
                return parameters[a.place]
            return [read(x) for x in a] if isinstance(a, list) else a

        record = find(call.op._full_name)
        assert record is not None
        names = [a.name for a in record.schema.args]
        values = {n: read(a) for n, a in zip(names, call.arguments)}
        outputs = record.details["expr"](*map(arg, names))
        lists = [n for n in names if isinstance(values[n], list)]
        for at in range(len(values[lists[0]])):
            own = {n: (v[at] if n in lists else float(v) if isinstance(v, bool) else v) for n, v in values.items()}
            memo: dict[int, Any] = {}
            fresh = {n: evaluate(lift(x), own, memo) for n, x in outputs.items()}
            for n, value in fresh.items():
                own[n].copy_(value)  # type: ignore[union-attr]


@functools.cache
def _definitions() -> dict[str, Callable[..., Any]]:
    from flambeau.ops import tags
    from flambeau.ops.rules import definition

    claimed = set(_CALLS) | tags.operators("only_draws", "data_dependent", "pointwise", "reduction")
    return {name: f for name, f in definition.all().items() if name not in claimed}


def _traced(function: Any, inputs: list[Any]) -> Trace:
    trace = Trace()
    try:
        with fl.no_grad():
            _run(trace, Recorder(trace, _definitions()), function, inputs)
    except DependsOnData as why:
        raise NotPrintable(str(why)) from why
    return trace


def print_graph(replay: Replay, inputs: list[Any]) -> Printed:
    """The module of a recorded graph."""
    from flambeau.ops import tags

    printed = print_trace(_traced(_WithUpdates(replay.graph), inputs))
    recorded = sum(call.op._full_name in tags.operators("random") for call in replay.graph.calls)
    if printed.draws != recorded:  # each operator takes one number from the generator's stream
        raise NotPrintable("an operator that draws more or less than once")
    return printed


def print_function(function: Any, inputs: list[Any]) -> Printed:
    """The module of a function over tensors."""
    return print_trace(_traced(function, inputs))


def print_trace(trace: Trace) -> Printed:
    printer = _Printer(trace)
    for call in trace.calls:
        printer.call(call)
    return printer.finished()


def tensor_type(size: Any, dtype: Any) -> str:
    try:
        return f"tensor<{''.join(f'{n}x' for n in size)}{_TYPES[dtype]}>"
    except KeyError:
        raise NotPrintable(f"a tensor of {dtype}") from None


def _literal(value: Any, dtype: Any) -> str:
    if dtype is fl.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        return str(int(value))
    number = float(value)
    if math.isfinite(number):
        return f"{number:.17e}" if number else "0.000000e+00" if math.copysign(1, number) > 0 else "-0.000000e+00"
    width = {fl.float64: 16, fl.float32: 8}.get(dtype, 4)
    bits = {fl.float64: 0x7FF0000000000000, fl.float32: 0x7F800000, fl.float16: 0x7C00}.get(dtype, 0x7F80)
    sign = 1 << (4 * width - 1)
    quiet = {fl.float64: 1 << 51, fl.float32: 1 << 22, fl.float16: 1 << 9}.get(dtype, 1 << 6)
    pattern = bits | quiet if number != number else bits | (sign if number < 0 else 0)
    return f"0x{pattern:0{width}X}"


def _dense_order(size: Any, stride: Any) -> list[int] | None:
    """The dimensions from the outermost in memory, of a window without gaps."""
    order = sorted(range(len(size)), key=lambda d: (-stride[d], d))
    expected = 1
    for d in reversed(order):
        if size[d] != 1 and stride[d] != expected:
            return None
        expected *= size[d]
    return order


class Named(NamedTuple):
    """A value of the program."""

    name: str
    size: tuple[int, ...]
    dtype: Any


class _Storage:
    """What is known of a storage: windows on it that are values of the program, newest state only."""

    def __init__(self) -> None:
        self.windows: dict[Any, Named] = {}
        self.flat: Named | None = None
        self.length = 0


def _key(v: RecordedValue) -> Any:
    return (v.dtype, v.size, tuple(0 if n == 1 else s for n, s in zip(v.size, v.stride)), v.offset)


class _Printer:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lines: list[str] = []
        self.count = 0
        self.storages: dict[int, _Storage] = {}
        self.arguments: list[str] = []
        self.written: dict[int, int] = {}  # storages of inputs that are written, and the inputs
        self.inputs = {v.storage: i for i, v in enumerate(trace.inputs)}
        for i, value in enumerate(trace.inputs):
            name = f"%arg{i}"
            self.arguments.append(f"{name}: {tensor_type(value.size, value.dtype)}")
            self.define(value, Named(name, value.size, value.dtype))
        if trace.constants:
            raise NotPrintable("a tensor that is no input")
        self.draws = sum(call.op._full_name in draws.operators() for call in trace.calls)
        self.drawn = 0
        if self.draws:
            self.arguments.append(f"%state: {tensor_type((self.draws, 4), fl.int64)}")

    # ---------------------------------------------------------------- values

    def emit(self, text: str, size: Any, dtype: Any) -> Named:
        """A statement with one result; `{}` stands for nothing, types are part of the text."""
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        return Named(name, tuple(size), dtype)

    def iota(self, dim: int, size: Any) -> Named:
        return self.emit(f"stablehlo.iota dim = {dim} : {tensor_type(size, fl.int64)}", size, fl.int64)

    def state_row(self) -> list[Named]:
        """The random state of the next operator that draws, as four numbers."""
        at, whole = self.drawn, tensor_type((self.draws, 4), fl.int64)
        self.drawn += 1
        one = tensor_type((1, 1), fl.int64)
        cells = [
            self.emit(f"stablehlo.slice %state [{at}:{at + 1}, {k}:{k + 1}] : ({whole}) -> {one}", (1, 1), fl.int64)
            for k in range(4)
        ]
        return [self.reshape(cell, ()) for cell in cells]

    def constant(self, value: Any, size: Any, dtype: Any) -> Named:
        return self.emit(
            f"stablehlo.constant dense<{_literal(value, dtype)}> : {tensor_type(size, dtype)}", size, dtype
        )

    def simple(self, op: str, operands: list[Named], dtype: Any = None) -> Named:
        first = operands[0]
        dtype = dtype or first.dtype
        kinds = ", ".join(tensor_type(o.size, o.dtype) for o in operands)
        names = ", ".join(o.name for o in operands)
        text = f'"{op}"({names}) : ({kinds}) -> {tensor_type(first.size, dtype)}'
        return self.emit(text, first.size, dtype)

    def convert(self, value: Named, dtype: Any) -> Named:
        if value.dtype is dtype:
            return value
        if dtype is fl.bool:
            zero = self.constant(0, value.size, value.dtype)
            return self.compare("NE", value, zero)
        if value.dtype.is_floating_point and not dtype.is_floating_point and dtype is not fl.int64:
            value = self.simple("stablehlo.convert", [value], fl.int64)
        return self.simple("stablehlo.convert", [value], dtype)

    def compare(self, direction: str, a: Named, b: Named) -> Named:
        kind = "FLOAT" if a.dtype.is_floating_point else "UNSIGNED" if a.dtype in (fl.bool, fl.uint8) else "SIGNED"
        text = f"stablehlo.compare {direction}, {a.name}, {b.name}, {kind} : ({tensor_type(a.size, a.dtype)}, {tensor_type(b.size, b.dtype)}) -> {tensor_type(a.size, fl.bool)}"
        return self.emit(text, a.size, fl.bool)

    def reshape(self, value: Named, size: Any) -> Named:
        if value.size == tuple(size):
            return value
        text = f"stablehlo.reshape {value.name} : ({tensor_type(value.size, value.dtype)}) -> {tensor_type(size, value.dtype)}"
        return self.emit(text, size, value.dtype)

    def transpose(self, value: Named, order: list[int]) -> Named:
        if order == list(range(len(order))):
            return value
        size = tuple(value.size[d] for d in order)
        text = f"stablehlo.transpose {value.name}, dims = {order} : ({tensor_type(value.size, value.dtype)}) -> {tensor_type(size, value.dtype)}"
        return self.emit(text, size, value.dtype)

    def broadcast(self, value: Named, size: Any, dims: list[int] | None = None) -> Named:
        size = tuple(size)
        if dims is None:
            if value.size == size:
                return value
            dims = list(range(len(size) - len(value.size), len(size)))
        text = f"stablehlo.broadcast_in_dim {value.name}, dims = {dims} : ({tensor_type(value.size, value.dtype)}) -> {tensor_type(size, value.dtype)}"
        return self.emit(text, size, value.dtype)

    # ---------------------------------------------------------------- windows

    def define(self, value: RecordedValue, named: Named) -> None:
        """A fresh storage, or a new value of a whole one."""
        storage = self.storages[value.storage] = _Storage()
        storage.windows[_key(value)] = named
        order = _dense_order(value.size, value.stride)
        storage.length = math.prod(value.size) if order is not None else 0

    def flat(self, number: int) -> Named:
        """A storage as its elements in the order of memory."""
        storage = self.storages[number]
        if storage.flat is None:
            for (_, size, stride, offset), named in storage.windows.items():
                order = _dense_order(size, stride)
                if offset == 0 and order is not None and math.prod(size) == storage.length:
                    storage.flat = self.reshape(self.transpose(named, order), (storage.length,))
                    break
            else:
                raise NotPrintable("memory with gaps")
        return storage.flat

    def read(self, value: RecordedValue) -> Named:
        storage = self.storages[value.storage]
        key = _key(value)
        known = storage.windows.get(key)
        if known is None:
            known = storage.windows[key] = self._derived(value, storage)
        return known

    def _derived(self, value: RecordedValue, storage: _Storage) -> Named:
        dtype, size, stride, offset = _key(value)
        for (own_dtype, own_size, own_stride, own_offset), named in list(storage.windows.items()):
            if (own_dtype, own_offset) == (dtype, offset):
                arranged = self._arranged(named, own_size, own_stride, size, stride)
                if arranged is not None:
                    return arranged
        flat = self.flat(value.storage)
        if flat.dtype is not dtype:
            raise NotPrintable("memory read as another dtype")
        if _dense_order(size, stride) == list(range(len(size))) and offset + math.prod(size) <= storage.length:
            n = math.prod(size)
            text = f"stablehlo.slice {flat.name} [{offset}:{offset + n}] : ({tensor_type(flat.size, dtype)}) -> {tensor_type((n,), dtype)}"
            return self.reshape(self.emit(text, (n,), dtype), size)
        return self.reshape(self.gather_flat(flat, self.places(size, stride, offset)), size)

    def _arranged(self, named: Named, own_size: Any, own_stride: Any, size: Any, stride: Any) -> Named | None:
        """A window as a transposition and broadcast of another one."""
        own = [d for d, n in enumerate(own_size) if n != 1]
        wanted = [d for d, (n, s) in enumerate(zip(size, stride)) if n != 1 and s != 0]
        pairs = {(own_size[d], own_stride[d]): d for d in own}
        if len(pairs) != len(own) or len(wanted) != len(own):
            return None
        if any((size[d], stride[d]) not in pairs for d in wanted):
            return None
        squeezed = self.reshape(named, [own_size[d] for d in own])
        order = [own.index(pairs[size[d], stride[d]]) for d in wanted]
        if len(set(order)) != len(order):
            return None
        return self.broadcast(self.transpose(squeezed, order), size, wanted)

    def places(self, size: Any, stride: Any, offset: int) -> Named:
        """Where the elements of a window lie, as a list of integers."""
        total = self.constant(offset, size, fl.int64)
        for d, (n, s) in enumerate(zip(size, stride)):
            if n != 1 and s != 0:
                iota = self.emit(f"stablehlo.iota dim = {d} : {tensor_type(size, fl.int64)}", size, fl.int64)
                total = self.simple(
                    "stablehlo.add",
                    [total, self.simple("stablehlo.multiply", [iota, self.constant(s, size, fl.int64)])],
                )
        return self.reshape(total, (math.prod(size),))

    def gather_flat(self, flat: Named, places: Named) -> Named:
        n = places.size[0]
        index = self.reshape(places, (n, 1))
        numbers = "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
        kinds = f"({tensor_type(flat.size, flat.dtype)}, {tensor_type((n, 1), fl.int64)}) -> {tensor_type((n,), flat.dtype)}"
        text = f'"stablehlo.gather"({flat.name}, {index.name}) <{{dimension_numbers = {numbers}, slice_sizes = array<i64: 1>, indices_are_sorted = false}}> : {kinds}'
        return self.emit(text, (n,), flat.dtype)

    def scatter_flat(self, flat: Named, places: Named, values: Named, combine: str | None) -> Named:
        n = places.size[0]
        index = self.reshape(places, (n, 1))
        numbers = (
            "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
        )
        scalar = tensor_type((), flat.dtype)
        body = (
            f"%s = {combine} %a, %b : {scalar} stablehlo.return %s : {scalar}"
            if combine
            else f"stablehlo.return %b : {scalar}"
        )
        kinds = f"({tensor_type(flat.size, flat.dtype)}, {tensor_type((n, 1), fl.int64)}, {tensor_type((n,), flat.dtype)}) -> {tensor_type(flat.size, flat.dtype)}"
        text = (
            f'"stablehlo.scatter"({flat.name}, {index.name}, {values.name}) <{{indices_are_sorted = false, scatter_dimension_numbers = {numbers}, unique_indices = false}}> '
            f"({{ ^bb0(%a: {scalar}, %b: {scalar}): {body} }}) : {kinds}"
        )
        return self.emit(text, flat.size, flat.dtype)

    def write(self, value: RecordedValue, named: Named) -> None:
        """New contents of a window."""
        if value.storage in self.inputs:
            self.written[value.storage] = self.inputs[value.storage]
        storage = self.storages[value.storage]
        order = _dense_order(value.size, value.stride)
        if order is not None and value.offset == 0 and math.prod(value.size) == storage.length:
            self.define(value, named)
            return
        values = self.reshape(named, (math.prod(value.size),))
        places = self.places(value.size, value.stride, value.offset)
        flat = self.scatter_flat(self.flat(value.storage), places, values, None)
        fresh = self.storages[value.storage] = _Storage()
        fresh.flat, fresh.length = flat, storage.length
        fresh.windows[_key(value)] = named

    # ---------------------------------------------------------------- calls

    def call(self, call: RecordedCall) -> None:
        name = call.op._full_name
        handler = _CALLS.get(name)
        if handler is not None:
            handler(self, call, bind(call.op, call.args, call.kwargs))
            return
        if name in draws.operators():
            return draws.draw(self, call)
        record = find(name)
        functional = find(_functional(name)) if record is None else record
        if functional is not None and functional.kind == "pointwise":
            self.pointwise(call, functional)
        elif record is not None and record.kind == "reduction":
            self.reduction(call, record)
        else:
            raise NotPrintable(name)

    def result(self, call: RecordedCall, value: Named, at: int = 0) -> None:
        """Stores the result of a call, new or in place."""
        target = call.writes[0] if call.writes else call.results[at]
        if target is None:
            return
        value = self.broadcast(self.convert(value, target.dtype), target.size)
        if call.writes:
            self.write(target, value)
        else:
            self.define(target, value)

    def operand(self, value: Any, size: Any, dtype: Any) -> Named:
        if isinstance(value, RecordedValue):
            return self.broadcast(self.convert(self.read(value), dtype), size)
        if isinstance(value, fl.Tensor):
            value = value.item()
        if isinstance(value, complex) or value is None or isinstance(value, str):
            raise NotPrintable(f"an operand {value!r}")
        return self.constant(value, size, dtype)

    def expression(self, node: Expr, leaves: dict[str, Named], size: Any, dtype: Any) -> Named:
        memo: dict[int, Named] = {}

        def visit(at: Expr) -> Named:
            known = memo.get(id(at))
            if known is None:
                known = memo[id(at)] = self._node(at, visit, leaves, size, dtype)
                distinct.append(at)
            return known

        distinct: list[Expr] = []  # identities stay their own
        return visit(node)

    def _node(self, at: Expr, visit: Any, leaves: dict[str, Named], size: Any, dtype: Any) -> Named:
        real = dtype.is_floating_point
        if at.op == "arg":
            return leaves[str(at.args[0])]
        if at.op == "const":
            return self.operand(at.args[0], size, dtype)
        other = expressions.composed(at.op, list(at.args), real)  # type: ignore[arg-type]
        if other is not None:
            return visit(other)
        args: list[Named] = [visit(a) for a in at.args]
        if at.op == "where":
            branches = [self.convert(a, dtype) for a in args[1:]]
            return self.simple("stablehlo.select", [self.convert(args[0], fl.bool), *branches], dtype)
        if at.op in expressions.COMPARISONS:
            if any(a.dtype is not args[0].dtype for a in args):
                args = [self.convert(a, dtype) for a in args]
            return self.compare(expressions.COMPARISONS[at.op], *args)
        if at.op in ("land", "lor", "lnot"):
            return self.simple(expressions.OPERATIONS[at.op], [self.convert(a, fl.bool) for a in args])
        operation = expressions.OPERATIONS.get(at.op)
        if operation is None:
            raise NotPrintable(f"the function {at.op}")
        result = fl.bool if at.op == "isfinite" else None
        return self.simple(operation, [self.convert(a, dtype) for a in args], result)

    def pointwise(self, call: RecordedCall, record: Any) -> None:
        details = record.details
        bound = bind(call.op, call.args, call.kwargs)
        names = [a.name for a in record.schema.args if a.name != details["select"]]
        elements = [a.name for a in record.schema.args if a.is_tensor]
        typed = [_exemplar(bound[n]) for n in elements if n not in details["mask"]]
        dtype = fl._C._promote_operands(typed)
        if details["promote"] == "float" and dtype_class(dtype) in "bi":
            dtype = fl.get_default_dtype()
        elif details["promote"] in ("first", "self"):
            dtype = bound[elements[0]].dtype
        compute = fl.int64 if dtype_class(dtype) == "b" else dtype
        table = details["table"]
        function = table[bound[details["select"]]] if details["select"] else pick(table, dtype_class(dtype))
        if function is None or dtype.is_complex:
            raise NotPrintable(record.name)
        target = call.writes[0] if call.writes else call.results[0]
        assert target is not None
        size = target.size
        # Booleans are computed as integers, but a fraction becomes a boolean first.
        leaves = {n: self.operand(bound[n], size, fl.bool if n in details["mask"] else dtype) for n in names}
        leaves = {n: v if n in details["mask"] else self.convert(v, compute) for n, v in leaves.items()}
        self.result(call, self.expression(lift(function(*map(arg, names))), leaves, size, compute))

    def reduction(self, call: RecordedCall, record: Any) -> None:
        details = record.details
        bound = bind(call.op, call.args, call.kwargs)
        source = bound["self"]
        dims = bound.get("dim")
        dims = [dims] if isinstance(dims, int) else list(dims or range(len(source.size)))
        dims = sorted({d % len(source.size) for d in dims}) if source.size else []
        dtype = bound.get("dtype") or source.dtype
        if details["result"] == "sum" and dtype_class(dtype) in "bi":
            dtype = fl.int64
        compute = fl.int64 if dtype_class(dtype) == "b" else dtype
        names = [a.name for a in record.schema.args if a.name not in ("self", "dim", "keepdim", "dtype")]
        value = self.operand(source, source.size, compute)
        parameters = {n: self.operand(bound[n], source.size, compute) for n in names}
        load = lift(pick(details["load"], dtype_class(dtype))(arg("x"), *map(arg, names)))
        loaded = self.expression(load, {"x": value, **parameters}, source.size, compute)
        accumulate = {"int": fl.int64, "bool": fl.bool}.get(details["accumulate"], compute)
        loaded = self.convert(loaded, accumulate)
        combine = lift(details["combine"](arg("a"), arg("b")))
        total = self.reduce(loaded, dims, combine.op, details["init"])
        count = math.prod(source.size[d] for d in dims)
        leaves = {"a": total, "n": self.constant(count, total.size, accumulate)}
        leaves |= {n: self.operand(bound[n], total.size, accumulate) for n in names}
        finished = self.expression(
            lift(details["finish"](arg("a"), arg("n"), *map(arg, names))), leaves, total.size, accumulate
        )
        target = call.results[0]
        assert target is not None
        self.define(target, self.convert(self.reshape(finished, target.size), target.dtype))

    def reduce(self, value: Named, dims: list[int], combine: str, init: Any) -> Named:
        operation = expressions.OPERATIONS.get(combine)
        if operation is None:
            raise NotPrintable(f"a reduction by {combine}")
        if isinstance(init, str):
            init = _extreme(init, value.dtype)
        start = self.constant(init, (), value.dtype)
        size = tuple(n for d, n in enumerate(value.size) if d not in dims)
        text = (
            f"stablehlo.reduce({value.name} init: {start.name}) applies {operation} across dimensions = {dims} : "
            f"({tensor_type(value.size, value.dtype)}, {tensor_type((), value.dtype)}) -> {tensor_type(size, value.dtype)}"
        )
        return self.emit(text, size, value.dtype)

    # ---------------------------------------------------------------- the module

    def finished(self) -> Printed:
        values = [self.read(v) for v in self.trace.outputs if v is not None]
        count = len(values)
        written = sorted(self.written.items(), key=lambda pair: pair[1])
        values += [self.read(self.trace.inputs[i]) for _, i in written]
        kinds = ", ".join(tensor_type(v.size, v.dtype) for v in values)
        names = ", ".join(v.name for v in values)
        body = "\n    ".join(self.lines)
        back = f"return {names} : {kinds}" if values else "return"
        text = (
            f"module @flambeau {{\n  func.func public @main({', '.join(self.arguments)}) -> ({kinds}) {{\n    {body}\n"
            f"    {back}\n  }}\n}}\n"
        )
        return Printed(text, count, [i for _, i in written], list(range(len(self.trace.inputs))), self.draws)


def _functional(name: str) -> str:
    base, _, overload = name.partition(".")
    return (f"{base[:-1]}.{overload}" if overload else base[:-1]) if base.endswith("_") else name


def _exemplar(value: Any) -> Any:
    return value.tensor if isinstance(value, RecordedValue) else value


def _extreme(init: str, dtype: Any) -> Any:
    if dtype.is_floating_point:
        return -math.inf if init == "lowest" else math.inf
    if dtype is fl.bool:
        return init == "highest"
    return fl.iinfo(dtype).min if init == "lowest" else fl.iinfo(dtype).max


# ---------------------------------------------------------------- operators that are no expressions


def _copy(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
    p.result(call, p.read(a["src"] if "src" in a else a["self"]))


def _fill(value: str | float) -> Callable[..., None]:
    def handle(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
        target = call.writes[0] if call.writes else call.results[0]
        assert target is not None
        number = a[value] if isinstance(value, str) else value
        p.result(call, p.operand(number, target.size, target.dtype))

    return handle


def _product(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
    left, right = p.read(a["self"]), p.read(a["mat2"])
    target = call.results[0]
    assert target is not None
    batch = len(left.size) - 2
    batching = "batching_dims = [0] x [0], " if batch else ""
    text = (
        f"stablehlo.dot_general {left.name}, {right.name}, {batching}contracting_dims = [{batch + 1}] x [{batch}] : "
        f"({tensor_type(left.size, left.dtype)}, {tensor_type(right.size, right.dtype)}) -> {tensor_type(target.size, left.dtype)}"
    )
    p.define(target, p.emit(text, target.size, left.dtype))


def _line_places(p: _Printer, index: Named, shape: Any, dim: int) -> Named:
    """Where an index along a dimension points, in a contiguous tensor of a shape."""
    size = index.size
    wide = p.convert(index, fl.int64)
    zero = p.constant(0, size, fl.int64)
    wrapped = p.simple("stablehlo.add", [wide, p.constant(shape[dim], size, fl.int64)])
    at = p.simple("stablehlo.select", [p.compare("LT", wide, zero), wrapped, wide], fl.int64)
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    total = p.simple("stablehlo.multiply", [at, p.constant(strides[dim], size, fl.int64)])
    for d in range(len(size)):
        if d != dim and size[d] != 1:
            iota = p.emit(f"stablehlo.iota dim = {d} : {tensor_type(size, fl.int64)}", size, fl.int64)
            total = p.simple(
                "stablehlo.add", [total, p.simple("stablehlo.multiply", [iota, p.constant(strides[d], size, fl.int64)])]
            )
    return p.reshape(total, (math.prod(size),))


_LINE = 256  # elements of a line in which one is looked for by comparing


def _chosen(p: _Printer, index: Named, size: tuple[int, ...], dim: int) -> Named | None:
    """Which elements the one index of each line points to, as booleans; None where lines have more of them. Comparing is
    quicker than what XLA makes of gathers and scatters, which walk them one by one."""
    if index.size != tuple(1 if d == dim else n for d, n in enumerate(size)):
        return None
    wide = p.convert(index, fl.int64)
    wrapped = p.simple("stablehlo.add", [wide, p.constant(size[dim], index.size, fl.int64)])
    negative = p.compare("LT", wide, p.constant(0, index.size, fl.int64))
    place = p.simple("stablehlo.select", [negative, wrapped, wide], fl.int64)
    spread = p.broadcast(place, size, list(range(len(size))))
    return p.compare(
        "EQ", p.emit(f"stablehlo.iota dim = {dim} : {tensor_type(size, fl.int64)}", size, fl.int64), spread
    )


def _gather(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
    source, index = p.read(a["self"]), p.read(a["index"])
    if not source.size or not index.size:
        raise NotPrintable("gather of one number")
    dim = a["dim"] % len(source.size)
    chosen = _chosen(p, index, source.size, dim) if source.size[dim] <= _LINE and source.dtype is not fl.bool else None
    if chosen is not None:
        others = p.constant(0, source.size, source.dtype)
        picked = p.simple("stablehlo.select", [chosen, source, others], source.dtype)
        return p.result(call, p.reshape(p.reduce(picked, [dim], "add", 0), index.size))
    places = _line_places(p, index, source.size, a["dim"] % len(source.size))
    flat = p.reshape(source, (math.prod(source.size),))
    p.result(call, p.reshape(p.gather_flat(flat, places), index.size))


def _scatter(combine: str | None) -> Callable[..., None]:
    def handle(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
        target, index, src = p.read(a["self"]), p.read(a["index"]), p.read(a["src"])
        if not target.size or src.size != index.size:
            raise NotPrintable("scatter of a part")
        dim = a["dim"] % len(target.size)
        chosen = _chosen(p, index, target.size, dim) if target.dtype is not fl.bool else None
        if chosen is not None:
            values = p.broadcast(src, target.size, list(range(len(target.size))))
            if combine:
                values = p.simple(combine, [target, values])
            return p.result(call, p.simple("stablehlo.select", [chosen, values, target], target.dtype))
        places = _line_places(p, index, target.size, a["dim"] % len(target.size))
        flat = p.reshape(target, (math.prod(target.size),))
        values = p.reshape(src, (math.prod(src.size),))
        p.result(call, p.reshape(p.scatter_flat(flat, places, values, combine), target.size))

    return handle


def _arange(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
    target = call.results[0]
    assert target is not None
    start, step = a.get("start", 0), a.get("step", 1)
    wide = fl.float64 if target.dtype.is_floating_point else fl.int64
    value = p.emit(f"stablehlo.iota dim = 0 : {tensor_type(target.size, wide)}", target.size, wide)
    value = p.simple("stablehlo.multiply", [value, p.constant(step, target.size, wide)])
    p.result(call, p.simple("stablehlo.add", [value, p.constant(start, target.size, wide)]))


def _cumsum(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
    target = call.results[0]
    assert target is not None
    value = p.convert(p.read(a["self"]), target.dtype)
    if not value.size:
        return p.result(call, value)
    dim, rank = a["dim"] % len(value.size), len(value.size)
    n = value.size[dim]
    zero = p.constant(0, (), value.dtype)
    window = ", ".join(str(n) if d == dim else "1" for d in range(rank))
    padding = ", ".join(f"[{n - 1 if d == dim else 0}, 0]" for d in range(rank))
    scalar = tensor_type((), value.dtype)
    text = (
        f'"stablehlo.reduce_window"({value.name}, {zero.name}) <{{window_dimensions = array<i64: {window}>, padding = dense<[{padding}]> : tensor<{rank}x2xi64>}}> '
        f"({{ ^bb0(%a: {scalar}, %b: {scalar}): %s = stablehlo.add %a, %b : {scalar} stablehlo.return %s : {scalar} }}) : "
        f"({tensor_type(value.size, value.dtype)}, {scalar}) -> {tensor_type(value.size, value.dtype)}"
    )
    p.result(call, p.emit(text, value.size, value.dtype))


def _sort_keys(p: _Printer, value: Named) -> Named:
    """What values are ordered by: NaN is the greatest whatever its sign, and both zeros are equal."""
    if not value.dtype.is_floating_point:
        return p.convert(value, fl.int32) if value.dtype is fl.bool else value
    zeros = p.constant(0, value.size, value.dtype)
    greatest = p.constant(math.nan, value.size, value.dtype)
    number = p.simple("stablehlo.select", [p.compare("EQ", value, zeros), zeros, value], value.dtype)
    return p.simple("stablehlo.select", [p.compare("NE", value, value), greatest, number], value.dtype)


def _sort(p: _Printer, call: RecordedCall, a: dict[str, Any]) -> None:
    value = p.read(a["self"])
    if not value.size:
        p.result(call, value)
        return p.result(call, p.constant(0, (), fl.int64), 1)
    dim = a.get("dim", -1) % len(value.size)
    places = p.emit(f"stablehlo.iota dim = {dim} : {tensor_type(value.size, fl.int64)}", value.size, fl.int64)
    operands = [_sort_keys(p, value), value, places]
    key = tensor_type((), operands[0].dtype)
    kind = "TOTALORDER" if value.dtype.is_floating_point else "UNSIGNED" if value.dtype is fl.uint8 else "SIGNED"
    parameters = ", ".join(f"%{x}{i}: {tensor_type((), o.dtype)}" for i, o in enumerate(operands) for x in "ab")
    types = ", ".join(tensor_type(o.size, o.dtype) for o in operands)
    name = f"%{p.count}"
    p.count += 1
    p.lines.append(
        f'{name}:3 = "stablehlo.sort"({", ".join(o.name for o in operands)}) <{{dimension = {dim} : i64, is_stable = true}}> '
        f"({{ ^bb0({parameters}): %c = stablehlo.compare {'GT' if a.get('descending') else 'LT'}, %a0, %b0, {kind} : "
        f"({key}, {key}) -> tensor<i1> stablehlo.return %c : tensor<i1> }}) : ({types}) -> ({types})"
    )
    p.result(call, Named(f"{name}#1", value.size, value.dtype))
    p.result(call, Named(f"{name}#2", value.size, fl.int64), 1)


_CALLS: dict[str, Callable[..., None]] = {
    "copy_": _copy, "clone": _copy, "_to_copy": _copy, "contiguous": _copy, "mm": _product, "bmm": _product,
    "fill_": _fill("value"), "zeros": _fill(0), "ones": _fill(1), "full": _fill("fill_value"), "zeros_like": _fill(0),
    "ones_like": _fill(1), "full_like": _fill("fill_value"), "empty": _fill(0), "empty_strided": _fill(0),
    "empty_like": _fill(0), "new_zeros": _fill(0), "new_empty": _fill(0), "zero_": _fill(0), "scalar_tensor": _fill("s"),
    "gather": _gather, "scatter.src": _scatter(None), "scatter_add": _scatter("stablehlo.add"), "arange": _arange,
    "arange.start": _arange, "arange.start_step": _arange, "cumsum": _cumsum,
    "sort": _sort, "sort.stable": _sort,
}  # fmt: skip
