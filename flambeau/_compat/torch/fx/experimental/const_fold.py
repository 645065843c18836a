"""Constant folding under the name PyTorch has for it: the part of a graph that depends on no input is a graph of its own,
whose results the rest reads as an attribute."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.constant_folding import _written_attributes
from flambeau.nn.parameter import Parameter

__all__ = ["FoldedGraphModule", "split_const_subgraphs"]

_ATTRIBUTE = "_FX_CONST_FOLDED_ATTRS"


class FoldedGraphModule(GraphModule):
    """A graph module whose constants are computed by `run_folding`, at the latest in the first call."""

    def __init__(
        self, root: Any, graph: Graph, const_subgraph_module: GraphModule | None = None, name: str | None = None
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = const_subgraph_module
        self.fx_const_folded_attrs_name = name
        self.has_folding_been_run = False

    def run_folding(self) -> None:
        """Computes the constants, once."""
        if self.const_subgraph_module is None or self.has_folding_been_run:
            return
        self.has_folding_been_run = True
        folded = self.const_subgraph_module()
        assert self.fx_const_folded_attrs_name is not None
        setattr(self, self.fx_const_folded_attrs_name, _as_parameters(folded))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.run_folding()
        return super().__call__(*args, **kwargs)


def _as_parameters(folded: Any) -> Any:
    if isinstance(folded, (tuple, list)):
        return [_as_parameters(one) for one in folded]
    if isinstance(folded, flambeau.Tensor) and not isinstance(folded, Parameter):
        return Parameter(folded.detach(), folded.requires_grad)
    return folded


def _constants(traced: GraphModule, skip: Callable[[Node], bool] | None) -> set[Node]:
    """The nodes that depend on no input and may be computed beforehand."""
    constants: set[Node] = set()
    written = _written_attributes(traced)
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or (node.op == "get_attr" and str(node.target) in written):
            continue
        if node.op != "get_attr" and not constants.issuperset(node.all_input_nodes):
            continue
        if (skip is not None and skip(node)) or node.is_impure():
            continue
        constants.add(node)
    return constants


def split_const_subgraphs(
    module: Any, skip_folding_node_fn: Callable[[Node], bool] | None = None, device_for_folded_attrs: str = "cpu"
) -> FoldedGraphModule:
    """A module in which all that depends on no input is computed once, parameters included, on their own device."""
    if device_for_folded_attrs != "cpu":
        raise NotImplementedError(
            f"[split_const_subgraphs] expected device_for_folded_attrs='cpu', got {device_for_folded_attrs!r}"
        )
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constants = _constants(traced, skip_folding_node_fn)
    computed = [node for node in traced.graph.nodes if node in constants and node.op != "get_attr"]
    needed = [node for node in computed if any(user not in constants for user in node.users)]
    if not needed:
        return FoldedGraphModule(traced, traced.graph)
    beforehand, rest = Graph(), Graph()
    copies: dict[Node, Node] = {}
    for node in traced.graph.nodes:
        if node in constants:
            copies[node] = beforehand.node_copy(node, copies.__getitem__)
    results = tuple(copies[node] for node in needed)
    beforehand.output(results[0] if len(results) == 1 else results)
    beforehand.eliminate_dead_code()
    name = _free_name(traced)
    copied = _read_attribute(rest, name, needed)
    for node in traced.graph.nodes:
        if node not in copied and (node not in constants or node.op == "get_attr"):
            copied[node] = rest.node_copy(node, copied.__getitem__)
    rest.eliminate_dead_code()
    const_module = GraphModule(traced, beforehand)
    setattr(traced, name, Parameter(flambeau.empty(0), False) if len(needed) == 1 else [])
    folded = FoldedGraphModule(traced, rest, const_module, name)
    delattr(traced, name)
    return folded


def _read_attribute(graph: Graph, name: str, needed: list[Node]) -> dict[Node, Node]:
    """Nodes that read the folded constants, at the first place of the graph."""
    attribute = graph.get_attr(name)
    if len(needed) == 1:
        attribute.meta.update(needed[0].meta)
        return {needed[0]: attribute}
    copied: dict[Node, Node] = {}
    for index, node in enumerate(needed):
        copied[node] = graph.call_function(operator.getitem, (attribute, index))
        copied[node].meta.update(node.meta)
    return copied


def _free_name(module: GraphModule) -> str:
    name, number = _ATTRIBUTE, 0
    while hasattr(module, name):
        number += 1
        name = f"{_ATTRIBUTE}_{number}"
    return name
