"""Types of a graph's inputs from example values."""

from __future__ import annotations

from typing import Any

from flambeau import _C
from flambeau.jit import _types as T


def apply_input_props_using_example(graph: Any, example_input: list[Any]) -> None:
    """Give the inputs that are tensors the dtype, sizes and device of an example."""
    inputs = [v for v in graph.inputs() if not (isinstance(v.type(), T.ClassType) and v.debugName() == "self")]
    if len(inputs) != len(example_input):
        raise RuntimeError(f"[jit] expected one example for each of {len(inputs)} inputs, got {len(example_input)}")
    for number, (value, example) in enumerate(zip(inputs, example_input)):
        if example is None:
            continue
        if isinstance(example, _C.Tensor) != isinstance(value.type(), T.TensorType):
            raise RuntimeError(f"[jit] expected an example of type {value.type()} for input {number}, got {example!r}")
        if isinstance(example, _C.Tensor):
            value.setType(T.TensorType.create_from_tensor(example))
