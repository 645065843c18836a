"""Graphs that read data on the way: a number out of a tensor, or a result whose size depends on values.

Programs are made for sizes that are known when they begin. Such a graph is therefore run as segments, each compiled by itself,
with what reads data between them. Arithmetic on sizes and numbers is done in both places, where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt

__all__ = ["reads_data", "with_segments"]

Compile = Callable[[GraphModule, list[Any]], Callable[..., Any]]
_NUMBERS = (int, float, SymInt, SymFloat, SymBool)
_SWITCHES = (_C._set_grad_enabled, _C._set_inference_mode)


def reads_data(graph: Any) -> bool:
    """Whether a graph has to be run as segments."""
    return hasattr(graph, "graph") and any(node.meta.get("reads_data") for node in graph.graph.nodes)


def with_segments(graph: GraphModule, compile_segment: Compile) -> Callable[..., Any]:
    """The graph as a function that runs its segments; each is compiled by the given function."""
    if any(node.target in _SWITCHES for node in graph.graph.nodes if node.op == "call_function"):
        return graph.forward
    return _Division(graph, compile_segment).run()


def _is_number(node: Node) -> bool:
    return isinstance(node.meta.get("example_value"), _NUMBERS)


class _Division:
    def __init__(self, graph: GraphModule, compile_segment: Compile) -> None:
        self.graph = graph
        self.compile_segment = compile_segment
        self.outer = Graph()
        self.copies: dict[Node, Node] = {}  # of nodes in the outer graph
        self.root = fl.nn.Module()

    def run(self) -> Callable[..., Any]:
        segments, between = self._groups()
        wanted = self._wanted_outside(segments)
        number = 0
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                self.copies[node] = self.outer.node_copy(node)
        for members, reader in zip(segments, between):
            if any(not _is_number(node) for node in members):
                self._add_segment(f"segment{number}", members, [n for n in members if n in wanted])
                number += 1
            if reader is not None:
                self.copies[reader] = self.outer.node_copy(reader, self._outside)
        forward: Callable[..., Any] = GraphModule(self.root, self.outer).forward
        return forward

    def _groups(self) -> tuple[list[list[Node]], list[Node | None]]:
        """The segments, and after each of them the node that reads data, or the output."""
        segments: list[list[Node]] = [[]]
        between: list[Node | None] = []
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output" or node.meta.get("reads_data"):
                between.append(node)
                segments.append([])
            else:
                segments[-1].append(node)
        return segments[:-1], between

    def _wanted_outside(self, segments: list[list[Node]]) -> set[Node]:
        """The tensors of segments that other segments, readers, and numbers outside are computed from."""
        place = {node: i for i, members in enumerate(segments) for node in members}
        wanted: set[Node] = set()
        seen: set[Node] = set()

        def want(node: Node) -> None:
            if node in seen:
                return
            seen.add(node)
            if _is_number(node) and node in place:
                for used in node.all_input_nodes:
                    want(used)
            elif node in place:
                wanted.add(node)

        for node in self.graph.graph.nodes:
            for used in node.all_input_nodes:
                if place.get(node) is None or place.get(used) != place[node]:
                    want(used)
        return wanted

    def _outside(self, node: Node) -> Node:
        """A node in the outer graph; numbers are computed there when they are first needed."""
        if node not in self.copies:
            assert _is_number(node), node
            self.copies[node] = self.outer.node_copy(node, self._outside)
        return self.copies[node]

    def _add_segment(self, name: str, members: list[Node], results: list[Node]) -> None:
        inner = Graph()
        copies: dict[Node, Node] = {}
        inputs: list[Node] = []
        own = set(members)
        for node in members:
            for used in node.all_input_nodes:
                if used not in own and used not in copies:
                    copies[used] = inner.placeholder(f"input{len(inputs)}")
                    copies[used].meta.update({k: v for k, v in used.meta.items() if k != "reads_data"})
                    inputs.append(used)
        for node in members:
            copies[node] = inner.node_copy(node, lambda used: copies[used])
        inner.output(tuple(copies[node] for node in results))
        module = GraphModule(self.graph, inner)
        run = self.compile_segment(module, [_example(node) for node in inputs])
        call = self.outer.call_function(_named(name, run), tuple(self._outside(node) for node in inputs))
        for i, node in enumerate(results):
            self.copies[node] = self.outer.call_function(_item, (call, i))
            self.copies[node].meta.update(node.meta)


def _named(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A native function as graphs call it."""

    def segment(*args: Any) -> Any:
        return run(*args)

    segment.__name__, segment.__module__ = name, "segments"  # no function that could be found by its name
    return segment


def _item(results: Any, index: int) -> Any:
    return results[index]


def _example(node: Node) -> Any:
    """What stands for an input of a segment: whether it is a tensor is all that counts."""
    value = node.meta.get("example_value")
    return 1 if isinstance(value, _NUMBERS) else value
