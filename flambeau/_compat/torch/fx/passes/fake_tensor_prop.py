"""Fake propagation: run a graph on fake tensors and leave each node's value in its meta."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a graph module on fakes and leaves `val` in the meta of its nodes: a fake tensor, or a structure of them."""

    def __init__(self, module: GraphModule, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = mode if mode is not None else FakeTensorMode()

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        n.meta["val"] = result
        return result

    def propagate(self, *args: Any) -> Any:
        """Run on the fakes of example inputs."""
        return self.propagate_dont_convert_inputs(*(self._faked(a) for a in args))

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Run on inputs that are fake already."""
        with self._mode:
            return self.run(*args)

    def _faked(self, a: Any) -> Any:
        return self._mode.from_tensor(a) if isinstance(a, flambeau.Tensor) and not isinstance(a, FakeTensor) else a
