"""The base of passes written as classes."""

from __future__ import annotations

import abc
from typing import NamedTuple

from flambeau.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether it changed."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: `call` does the work, `requires` checks before it and `ensures` after it."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(result.graph_module if result is not None else graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Do the work."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Check what the pass needs."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Check what the pass promises."""
