"""Shape propagation: run a graph on example inputs and note shape, dtype and strides of every value."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its data."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool = False
    qparams: dict[str, Any] = {}  # noqa: RUF012


_FORMATS = (flambeau.contiguous_format, flambeau.channels_last, flambeau.channels_last_3d)


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    memory_format = None
    if include_contiguity:
        memory_format = next((f for f in _FORMATS if result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, tuple(result.stride()), memory_format)


class ShapeProp(Interpreter):
    """Runs a graph module and leaves `tensor_meta` and `type` in the meta of its nodes. With a fake mode, the run costs no
    data."""

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        has_tensors = False

        def extract(value: Any) -> Any:
            nonlocal has_tensors
            if not isinstance(value, flambeau.Tensor):
                return value
            has_tensors = True
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, extract)
        if has_tensors:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run on example inputs; what the graph returns."""
        if self.fake_mode is None:
            return self.run(*args)
        with self.fake_mode:
            return self.run(*(self.fake_mode.from_tensor(a) if isinstance(a, flambeau.Tensor) else a for a in args))
