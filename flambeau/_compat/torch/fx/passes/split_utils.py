"""Splitting a module by tags on its nodes."""

from __future__ import annotations

import operator
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.split_module import split_module

__all__ = ["getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """An attribute by dotted path; None when it is not there."""
    for atom in name.split("."):
        if not hasattr(obj, atom):
            return None
        obj = getattr(obj, atom)
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Set an attribute by dotted path."""
    *prefix, last = attr.split(".")
    for atom in prefix:
        obj = getattr(obj, atom)
    setattr(obj, last, value)


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """A module with one submodule for each tag, named by it. Each node that computes something has an attribute `tag`;
    `tags` gives the order in which parts run. With return_fqn_mapping, also from attributes in the parts to those of gm."""

    def tag_of(node: Node) -> str:
        tag = getattr(node, "tag", None)
        if tag is None:
            raise AssertionError(f"[split_by_tags] expected a tag on every node, got none on {node}")
        if tag not in tags:
            raise AssertionError(f"[split_by_tags] expected one of the tags {tags}, got {tag!r} on {node}")
        return str(tag)

    split = split_module(gm, gm, tag_of, keep_original_order=True)
    mapping: dict[str, str] = {}
    for name, child in list(split.named_children()):
        tag = name.removeprefix("submod_")
        if not isinstance(child, GraphModule) or tag not in tags:
            continue
        for node in split.graph.nodes:
            if node.op == "call_module" and node.target == name:
                node.target = tag
        split.delete_submodule(name)
        if return_tuple and not isinstance(child.graph.output_node().args[0], tuple):
            output = child.graph.output_node()
            output.args = ((output.args[0],),)
            child.recompile()
            _unpack_single(split, tag)
        split.add_submodule(tag, child)
        mapping.update((f"{tag}.{n}", n.replace("_", ".")) for n, _ in child.named_parameters())
    split.recompile()
    result = split if GraphModuleCls is GraphModule else GraphModuleCls(split, split.graph)
    return (result, mapping) if return_fqn_mapping else result


def _unpack_single(gm: GraphModule, target: str) -> None:
    """Let users of a part that now returns a tuple of one take its item."""
    for node in list(gm.graph.nodes):
        if node.op == "call_module" and node.target == target:
            with gm.graph.inserting_after(node):
                item = gm.graph.call_function(operator.getitem, (node, 0))
            node.replace_all_uses_with(item)
            item.args = (node, 0)
