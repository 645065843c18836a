"""Saying which nodes a backend can run, for partitioning."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

import flambeau
from flambeau.fx.node import Node
from flambeau.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]

Submodules = Mapping[str, Any]
IsNodeSupported = Callable[[Submodules, Node], bool]


class OperatorSupportBase(abc.ABC):
    """Answers whether a node is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        """Whether a node of a module with these submodules can be run."""


class OperatorSupport(OperatorSupportBase):
    """Support by a table from targets, as `tools_common.get_node_target` names them, to dtypes of inputs or None."""

    _support_dict: Mapping[str, Any]

    def __init__(self, support_dict: Mapping[str, Any] | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(dict(submodules), node)
        if target not in self._support_dict:
            return False
        dtypes = self._support_dict[target]
        if dtypes is None:
            return True
        wanted = dtypes[0]
        return all(_dtype(used) in allowed for used, allowed in zip(node.all_input_nodes, wanted))


def _dtype(node: Node) -> Any:
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    return getattr(value, "dtype", None)


class FunctionalOperatorSupport(OperatorSupportBase):
    """Support as a function says."""

    def __init__(self, is_node_supported: IsNodeSupported) -> None:
        self._is_node_supported = is_node_supported

    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        return self._is_node_supported(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    return FunctionalOperatorSupport(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supported when all agree."""
    return create_op_support(lambda modules, node: all(s.is_node_supported(modules, node) for s in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supported when any says so."""
    return create_op_support(lambda modules, node: any(s.is_node_supported(modules, node) for s in op_support))


class OpSupports:
    """Ready-made answers."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        return create_op_support(lambda modules, node: all(_dtype(used) != dtype for used in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        return create_op_support(lambda modules, node: node.name not in disallow_set)


def is_floating(node: Node) -> bool:
    """Whether shape propagation found a floating tensor."""
    return _dtype(node) in (flambeau.float16, flambeau.bfloat16, flambeau.float32, flambeau.float64)
