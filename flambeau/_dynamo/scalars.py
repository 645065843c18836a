"""Numbers that are read out of tensors and stay in the graph (`config.capture_scalar_outputs`, `fullgraph=True`).

Integers are symbols without a value, so that they may be sizes; floats are `TracedNumber`s. Python may calculate with them,
store and return them. Where the program's course depends on their value, the graph breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau._dynamo import breaks
from flambeau._dynamo.traced import TracedNumber, TracedTensor

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


def read_float(tracer: Tracer, tensor: TracedTensor) -> TracedNumber:
    node = tracer.builder.add_node("call_function", read_number, (tensor,), {})
    node.meta["example_value"] = 1.0
    node.meta["reads_data"] = True
    return TracedNumber(tracer, node, 1.0, None, {}, unknown=breaks.TENSOR_VALUE)


def read_number(tensor: Any) -> Any:
    number = tensor.item()
    return number if isinstance(number, fl.SymFloat) else float(number)


read_number.__dict__["_rehearse"] = lambda tensor: 1.0
