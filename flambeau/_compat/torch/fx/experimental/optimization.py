"""Optimisations for inference under the names PyTorch has for them; the work is done in `passes/inference.py`."""

from __future__ import annotations

import copy
from typing import Any

from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes import inference

__all__ = ["fuse", "matches_module_pattern", "optimize_for_inference", "remove_dropout", "replace_node_module"]


def fuse(model: Any, inplace: bool = False, no_trace: bool = False) -> GraphModule:
    """Fold batch normalisation into convolutions and linear layers."""
    model = model if inplace else copy.deepcopy(model)
    gm: GraphModule = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    inference.fold_batch_norm(gm)
    return gm


def remove_dropout(model: Any) -> GraphModule:
    """The traced model without dropout."""
    gm = symbolic_trace(model)
    inference.remove_dropout(gm)
    return gm


def optimize_for_inference(model: Any, pass_config: dict[str, Any] | None = None, tracer: Any = None) -> GraphModule:
    """The traced model made ready for inference: see `passes.inference.prepare_for_inference`."""
    config = {"conv_bn_fuse": True, "remove_dropout": True, **(pass_config or {})}
    model = copy.deepcopy(model)
    gm = symbolic_trace(model) if tracer is None else GraphModule(model, tracer().trace(model))
    if config["remove_dropout"]:
        inference.remove_dropout(gm)
    if config["conv_bn_fuse"]:
        inference.fold_batch_norm(gm)
    inference.fuse_activations(gm)
    return gm


def matches_module_pattern(pattern: Any, node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node calls a module of the second type on the result of one of the first."""
    if not node.args:
        return False
    for kind, current in zip(pattern, (node.args[0], node)):
        if not isinstance(current, Node) or current.op != "call_module" or not isinstance(current.target, str):
            return False
        if current.target not in modules or type(modules[current.target]) is not kind:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Any) -> None:
    """Put another module where the one a node calls is."""
    parent, _, name = str(node.target).rpartition(".")
    modules[str(node.target)] = new_module
    setattr(modules[parent], name, new_module)
