"""Types of the comparison of traced models."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau.fx import Node

__all__ = [
    "NSNodeTargetType", "NSResultsType", "NSSingleResultType", "NSSingleResultValuesType", "NSSubgraph",
]  # fmt: skip


class NSSingleResultValuesType(str, enum.Enum):  # noqa: UP042  prints as PyTorch's does
    """What the values of a result are."""

    WEIGHT = "weight"
    NODE_OUTPUT = "node_output"
    NODE_INPUT = "node_input"


class NSSubgraph(NamedTuple):
    """Nodes that belong together: the first, the last, and the one that says what they compute."""

    start_node: Node
    end_node: Node
    base_op_node: Node


NSSingleResultType = dict[str, Any]
NSResultsType = dict[str, dict[str, dict[str, list[NSSingleResultType]]]]
NSNodeTargetType = Callable[..., Any] | str
