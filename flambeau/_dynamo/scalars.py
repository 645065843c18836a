"""Numbers that are read out of tensors and stay in the graph (`config.capture_scalar_outputs`).

Python may calculate with them, store and return them. Where the program's course depends on their value, the graph breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._dynamo import breaks, config
from flambeau._dynamo.traced import TracedNumber, TracedTensor

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer


def can_read(tensor: TracedTensor, name: str) -> bool:
    """Whether item() or float() of a tensor is to stay in the graph."""
    wanted = config.capture_scalar_outputs and name in ("item", "__float__")
    return wanted and tensor.fake.dtype.is_floating_point and bool(tensor.fake.numel() == 1)


def read(tracer: Tracer, tensor: TracedTensor) -> TracedNumber:
    node = tracer.builder.add_node("call_function", read_number, (tensor,), {})
    node.meta["example_value"] = 1.0
    return TracedNumber(tracer, node, 1.0, None, {}, unknown=breaks.TENSOR_VALUE)


def read_number(tensor: Any) -> float:
    return float(tensor)


read_number.__dict__["_rehearse"] = lambda tensor: 1.0
