"""Numbers that are read out of tensors and stay in the graph (`config.capture_scalar_outputs`, `fullgraph=True`).

Integers are symbols without a value, so that they may be sizes; floats are `TracedNumber`s. Python may calculate with them,
store and return them. Where the program's course depends on their value, the graph breaks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau._dynamo import breaks
from flambeau._dynamo.traced import TracedNumber, TracedTensor
from flambeau.ops.symbolic.numbers import wrap

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer


def can_read(tensor: TracedTensor, name: str) -> bool:
    """Whether item(), int(), float() or tolist() of a tensor is to stay in the graph."""
    dtype = tensor.fake.dtype
    if not tensor.fake.fake_mode.allows_scalars or dtype.is_complex:
        return False
    if name == "tolist":
        return bool(tensor.fake.numel() <= _MOST)
    if name not in ("item", "__float__", "__int__", "__index__") or not bool(tensor.fake.numel() == 1):
        return False
    return name != "__index__" or not (dtype.is_floating_point or dtype == fl.bool)


def in_place_of_tensors(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Arguments of an operator that refused a tensor, with what tensors of one element hold: operators take these for numbers."""

    def number(value: Any) -> Any:
        return read(tracer, value) if is_scalar(value) else value

    def is_scalar(value: Any) -> bool:
        return type(value) is TracedTensor and not value.fake.ndim and can_read(value, "item")

    if any(map(is_scalar, (*args[1:], *kwargs.values()))):
        yield (*args[:1], *map(number, args[1:])), {name: number(value) for name, value in kwargs.items()}
    if args and is_scalar(args[0]):
        yield tuple(map(number, args)), {name: number(value) for name, value in kwargs.items()}


_MOST = 1024  # numbers that tolist() may become


def read(tracer: Tracer, tensor: TracedTensor, name: str = "item") -> Any:
    """What a method of that name reads from a tensor."""
    if name == "tolist" and tensor.fake.ndim:
        return [read(tracer, row, name) for row in tensor]
    if tensor.fake.ndim:
        tensor = tracer.builder.call_method("reshape", (tensor, ()), {})
    dtype = tensor.fake.dtype
    wanted = {"__float__": fl.float64, "__int__": fl.int64}.get(name, fl.int64 if dtype == fl.bool else dtype)
    if wanted.is_floating_point != dtype.is_floating_point or dtype == fl.bool:
        tensor = tracer.builder.call_method("to", (tensor, wanted), {})
    if wanted.is_floating_point:
        return read_float(tracer, tensor)
    number = tracer.builder.sizes.read(tensor)
    return number != 0 if dtype == fl.bool and name in ("item", "tolist") else number


def read_truth(tracer: Tracer, tensor: TracedTensor) -> Any:
    """Whether the number in a tensor is not zero, as a condition on what the graph reads; the tensor where it is not read."""
    if not can_read(tensor, "item"):
        return tensor
    if tensor.fake.dtype != fl.bool:
        tensor = tracer.builder.call_method("ne", (tensor, 0), {})
    return read(tracer, tensor)


def holds_unknown(value: Any) -> bool:
    """Whether there is a number that only the graph knows among numbers in lists."""
    if isinstance(value, (list, tuple)):
        return any(map(holds_unknown, value))
    if type(value) is TracedNumber:
        return bool(value.unknown)
    return type(value) in (fl.SymInt, fl.SymBool) and value.hint is None


def to_tensor(tracer: Tracer, value: Any, options: dict[str, Any]) -> Any:
    """torch.tensor() of numbers of which the graph knows some: a tensor of each, put together."""
    kinds = {type(x) for x in _flat(value)}
    if not kinds <= {bool, int, float, fl.SymInt, fl.SymBool, TracedNumber} or not options.keys() <= {
        "dtype",
        "device",
    }:
        raise breaks.Unsupported(breaks.TENSOR_VALUE, "tensor")
    floating = bool(kinds & {float, TracedNumber})
    whole = fl.bool if kinds <= {bool, fl.SymBool} else fl.int64
    options = {"dtype": fl.get_default_dtype() if floating else whole, **options}

    def build(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tracer.builder.call_function(fl.stack, ([build(v) for v in value],), {})
        if type(value) is fl.SymBool:
            return tracer.builder.call_method("to", (to_condition(tracer, value), options["dtype"]), {})
        return tracer.builder.call_function(fl.scalar_tensor, (value,), options)

    return build(value)


def to_condition(tracer: Tracer, value: fl.SymBool) -> Any:
    """A condition on numbers that data decides, as a tensor."""
    condition = value.condition
    if condition.kind in ("and", "or"):
        join = fl.logical_and if condition.kind == "and" else fl.logical_or
        parts = [to_condition(tracer, fl.SymBool(part, value.env, None)) for part in condition.parts]
        return functools.reduce(lambda a, b: tracer.builder.call_function(join, (a, b), {}), parts)
    compare, expr, number = condition.comparison()
    known = tracer.builder.call_function(fl.scalar_tensor, (wrap(expr, value.env, None),), {"dtype": fl.int64})
    return tracer.builder.call_function(compare, (known, number), {})


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def read_float(tracer: Tracer, tensor: TracedTensor) -> TracedNumber:
    node = tracer.builder.add_node("call_function", read_number, (tensor,), {})
    node.meta["example_value"] = 1.0
    node.meta["reads_data"] = True
    return TracedNumber(tracer, node, 1.0, None, {}, unknown=breaks.TENSOR_VALUE)


def read_number(tensor: Any) -> Any:
    number = tensor.item()
    return number if isinstance(number, fl.SymFloat) else float(number)


read_number.__dict__["_rehearse"] = lambda tensor: 1.0
