"""Graphs as the recorder hands them over (csrc/lazy), and what runs them again call by call.

A graph is a list of calls on windows of numbered slots. Inputs of a program are the slots of kind "input" and "host", in
order, then the parameters: Python numbers that may be others in the next run.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import flambeau as fl
from flambeau.lazy.errors import place

__all__ = ["Call", "Graph", "NotParametric", "Parameter", "Replay", "Use", "Window"]


class NotParametric(Exception):
    """A number that can be no parameter of a program; the argument's name is the message."""


class Window(NamedTuple):
    """A tensor of a graph."""

    slot: int
    dtype: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Parameter(NamedTuple):
    """A number among the arguments that is an input of the program."""

    place: int
    value: float


class Call(NamedTuple):
    op: Any
    arguments: list[Any]  # all of the schema, in order
    results: list[Window]
    line: tuple[str, int] | None  # of the program that recorded it

    @property
    def where(self) -> str:
        """file:line: text."""
        return place(self.line)


class Graph(NamedTuple):
    slots: list[tuple[str, Window]]
    calls: list[Call]
    outputs: list[int]  # slots that are wanted
    parameters: int
    device: Any  # below, on which it runs

    @property
    def inputs(self) -> list[int]:
        """The slots that are given, in the order of the program's inputs."""
        return [slot for slot, (kind, _) in enumerate(self.slots) if kind in ("input", "host")]


def _is_update(op: Any) -> bool:
    from flambeau.ops.record import find

    record = find(op._full_name)
    return record is not None and record.kind == "update"


class Use(enum.Enum):
    """What a parameter is in the one call that it belongs to."""

    UPDATE = enum.auto()  # a number of an optimizer's step
    OPERAND = enum.auto()  # may be a tensor
    ARGUMENT = enum.auto()  # a number by the schema of a pointwise operator


def _use(call: Call, position: int) -> Use:
    formal = call.op._schema.arguments[position].name
    is_operand = _operands(call.op)[position] or _factored(call.op, formal) is not None or formal == _filling(call.op)
    return Use.OPERAND if is_operand else Use.ARGUMENT


class Replay:
    """A graph as a function of its inputs: runs the calls on whatever tensors it is given."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.updates = [_is_update(call.op) for call in graph.calls]

    def uses(self) -> dict[int, Use]:
        """What the parameters are, by their places."""
        return {
            a.place: Use.UPDATE if update else _use(call, i)
            for call, update in zip(self.graph.calls, self.updates)
            for i, a in enumerate(call.arguments)
            if isinstance(a, Parameter)
        }

    def __call__(self, *inputs: Any) -> list[Any]:
        graph = self.graph
        tensors: dict[int, Any] = dict(zip(graph.inputs, inputs))
        parameters = inputs[len(graph.inputs) :]
        # Inputs of the device below stand elsewhere while the graph is recorded for the compiler.
        device = next((tensors[slot].device for slot in graph.inputs if graph.slots[slot][0] == "input"), graph.device)
        for slot, (kind, root) in enumerate(graph.slots):
            if kind == "empty":
                tensors[slot] = fl.empty_strided(root.size, root.stride, dtype=root.dtype, device=device)
        for call, update in zip(graph.calls, self.updates):
            self._run(call, update, tensors, parameters)
        return [_window(tensors[slot], graph.slots[slot][1]) for slot in graph.outputs]

    def _run(self, call: Call, update: bool, tensors: dict[int, Any], parameters: Sequence[Any]) -> None:
        def read(argument: Any) -> Any:
            if isinstance(argument, Window):
                return _window(tensors[argument.slot], argument)
            if isinstance(argument, Parameter):
                return parameters[argument.place]
            return [read(a) for a in argument] if isinstance(argument, list) else argument

        if not update and any(isinstance(a, Parameter) for a in call.arguments):
            result = _with_parameters(call, read)
        else:
            positional, keywords = _split(
                call.op, [_operand(f, read(a)) for f, a in zip(_formals(call.op), call.arguments)]
            )
            result = call.op(*positional, **keywords)
        flat = result if isinstance(result, (list, tuple)) else [result]
        fresh = [t for t in flat if isinstance(t, fl.Tensor)]
        if call.results and len(fresh) != len(call.results):  # some are arguments that were written
            argument_ids = {id(a) for a in call.arguments}
            fresh = [t for t in fresh if id(t) not in argument_ids][: len(call.results)]
        for window, tensor in zip(call.results, fresh):
            tensors[window.slot] = _laid_out(tensor, window)


def _types(op: Any) -> list[str]:
    """Types of the arguments. Those of a record say where a number may stand in place of a tensor."""
    from flambeau.ops.record import find

    record = find(op._full_name)
    return [str(a.type) for a in (op._schema.arguments if record is None else record.schema.args)]


@functools.cache
def _formals(op: Any) -> list[bool]:
    """Of each argument: whether it is a tensor, so that a number has to be one that promotes like a number."""
    return [t == "Tensor" for t in _types(op)]


@functools.cache
def _operands(op: Any) -> list[bool]:
    """Of each argument: whether it may be a tensor."""
    return [t.startswith("Tensor") and "[" not in t for t in _types(op)]


def _operand(is_tensor: bool, value: Any) -> Any:
    if not is_tensor or isinstance(value, (fl.Tensor, type(None), list)):
        return value
    return fl.scalar_tensor(value, dtype=_dtype_of(value), device="cpu")._mark_wrapped_number()


def _dtype_of(value: Any) -> Any:
    return {bool: fl.bool, int: fl.int64, float: fl.float64}.get(type(value), fl.complex128)


def _split(op: Any, values: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    formals = op._schema.arguments
    count = sum(1 for a in formals if not a.kwarg_only)
    return values[:count], {a.name: v for a, v in zip(formals[count:], values[count:])}


@functools.cache
def _factored(op: Any, factor: str) -> str | None:
    """The operand that a number multiplies, if a pointwise operator does nothing else with either of them."""
    from flambeau.ops.expr import Expr, arg
    from flambeau.ops.record import find

    record = find(op._full_name)
    if record is None or record.kind != "pointwise" or "" not in record.details["table"]:
        return None
    uses: dict[str, int] = {}
    products: list[str] = []  # operands of a product with the number

    def walk(e: Any) -> None:
        if not isinstance(e, Expr):
            return
        if e.op == "arg":
            uses[str(e.args[0])] = uses.get(str(e.args[0]), 0) + 1
            return
        inner = [x.args[0] if isinstance(x, Expr) and x.op == "neg" else x for x in e.args]
        names = [str(x.args[0]) for x in inner if isinstance(x, Expr) and x.op == "arg"]
        if e.op == "mul" and len(names) == 2 and factor in names:
            products.extend(name for name in names if name != factor)
        for x in e.args:
            walk(x)

    walk(record.details["table"][""](*(arg(a.name) for a in record.schema.args)))
    tensors = [a.name for a, is_operand in zip(record.schema.args, _operands(op)) if is_operand]
    return next((name for name in products if name in tensors and uses[name] == uses[factor] == 1), None)


@functools.cache
def _filling(op: Any) -> str | None:
    """The argument that says with what an operator fills its result."""
    from flambeau.ops.record import find

    record = find(op._full_name)
    return record.fill if record is not None and isinstance(record.fill, str) else None


def _with_parameters(call: Call, read: Any) -> Any:
    """A call with numbers that are tensors now: operands stand as they are, factors are multiplied by before."""
    formals = call.op._schema.arguments
    values = {a.name: read(v) for a, v in zip(formals, call.arguments)}
    tensors = dict(zip((a.name for a in formals), _formals(call.op)))
    filling = None
    for name, is_operand in zip([a.name for a in formals], _operands(call.op)):
        value = values[name]
        if not isinstance(value, fl.Tensor):
            continue
        if name == _filling(call.op):
            filling, values[name] = value, 0.0
        elif is_operand:
            continue
        elif factored := _factored(call.op, name):
            values[factored], values[name] = values[factored] * value, 1
        else:
            raise NotParametric(name)
    values = {name: _operand(tensors[name], value) for name, value in values.items()}
    positional = [values.pop(a.name) for a in formals if not a.kwarg_only]
    result = call.op(*positional, **values)
    return result if filling is None else result.copy_(filling)


def _laid_out(tensor: Any, root: Window) -> Any:
    """A result as the recorder saw it in memory: an operator's definition may lay it out otherwise than its kernel."""
    if tensor.stride() == root.stride and tensor.storage_offset() == root.offset:
        return tensor
    return fl.empty_strided(root.size, root.stride, dtype=root.dtype, device=tensor.device).copy_(tensor)


def _window(tensor: Any, window: Window) -> Any:
    """The window on a slot's memory, which `tensor` is the root of."""
    same = tensor.dtype is window.dtype and tuple(tensor.shape) == window.size
    if same and tensor.stride() == window.stride and tensor.storage_offset() == window.offset:
        return tensor
    if tensor.dtype is not window.dtype:
        tensor = _elements(tensor).view(window.dtype)
    ahead = window.offset - tensor.storage_offset()
    if ahead < 0:
        return tensor.as_strided(window.size, window.stride, window.offset)
    if ahead:  # counted from the root, which may be an input at any place in memory
        tensor = _elements(tensor)[ahead:]
    return tensor.as_strided(window.size, window.stride)


def _elements(root: Any) -> Any:
    """All elements of a root's memory, in a row."""
    return root.as_strided((root.untyped_storage().nbytes() // root.dtype.itemsize - root.storage_offset(),), (1,))
