"""Constant folding under the name PyTorch has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.constant_folding import fold_constants


class FoldedGraphModule(GraphModule):
    """A graph module whose constants are folded by `run_folding`, at the latest in the first call."""

    _folded = False
    skip: Callable[[Node], bool] | None = None

    def run_folding(self) -> None:
        if not self._folded:
            self._folded = True
            fold_constants(self, fold_parameters=True, keep=self.skip)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.run_folding()
        return super().__call__(*args, **kwargs)


def split_const_subgraphs(
    module: Any, skip_folding_node_fn: Callable[[Node], bool] | None = None, device_for_folded_attrs: str = "cpu"
) -> FoldedGraphModule:
    """A module in which all that depends on no input is computed once, parameters included, on their own device."""
    if device_for_folded_attrs != "cpu":
        raise NotImplementedError(
            f"[split_const_subgraphs] expected device_for_folded_attrs='cpu', got {device_for_folded_attrs!r}"
        )
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    folded = FoldedGraphModule(traced, traced.graph, type(traced).__name__)
    folded.skip = skip_folding_node_fn
    return folded
