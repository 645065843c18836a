"""Finding a pattern graph in a graph.

The pattern's placeholders match anything; its other nodes match nodes of the same kind and target whose arguments match.
A match is contained: what it computes on the way is used by nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import flambeau
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node, map_arg
from flambeau.nn.modules.module import Module

_MISSING = object()


@dataclass
class InternalMatch:
    """One place where a pattern was found.

    anchors            the pattern's results
    nodes_map          from nodes of the pattern to nodes of the graph (or plain values, for placeholders)
    placeholder_nodes  what the pattern's placeholders stand for, in their order
    returning_nodes    the graph's nodes for the pattern's results
    """

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Any] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            self.anchors, dict(self.nodes_map), list(self.placeholder_nodes), list(self.returning_nodes)
        )


class SubgraphMatcher:
    """Finds a pattern.

    match_output       also match the pattern's output node with the graph's
    match_placeholder  placeholders match placeholders only
    remove_overlapping_matches  keep the first of matches that share nodes
    ignore_literals    let numbers and strings in the pattern match any others
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if not len(pattern.nodes):
            raise ValueError("[matcher] expected a pattern with nodes, got an empty graph")
        output = pattern.output_node()
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        results: list[Node] = []
        map_arg(output.args, lambda n: results.append(n))
        self.pattern_returning_nodes = list(dict.fromkeys(results))
        if not results or all(n.op == "placeholder" for n in results):
            raise ValueError("[matcher] expected a pattern that computes something, got one that returns its inputs")
        # A result that other results need is found on the way to them.
        inner: set[Node] = set()
        for node in self.pattern_returning_nodes:
            stack = list(node._input_nodes)
            while stack:
                used = stack.pop()
                if used not in inner:
                    inner.add(used)
                    stack.extend(used._input_nodes)
        self.pattern_anchors = [output] if match_output else [n for n in self.pattern_returning_nodes if n not in inner]

    # ------------------------------------------------------------------------------------------ finding

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """All places in a graph, in its order."""
        candidates = [
            [node for node in graph.nodes if self._nodes_are_equal(anchor, node)] for anchor in self.pattern_anchors
        ]
        matches: list[InternalMatch] = []
        order = {node: number for number, node in enumerate(graph.nodes)}
        for nodes_map in self._combinations(candidates, 0, {}):
            if not self._is_contained(nodes_map):
                continue
            matches.append(
                InternalMatch(
                    list(self.pattern_anchors),
                    nodes_map,
                    [nodes_map.get(p) for p in self.pattern_placeholder_nodes],
                    [nodes_map[n] for n in self.pattern_returning_nodes],
                )
            )
        matches.sort(
            key=lambda m: min(order[n] for p, n in m.nodes_map.items() if p.op != "placeholder" and n in order)
        )
        return self._without_overlaps(matches) if self.remove_overlapping_matches else matches

    def _combinations(
        self, candidates: list[list[Node]], at: int, matched: dict[Node, Any]
    ) -> Iterator[dict[Node, Any]]:
        if at == len(candidates):
            yield matched
            return
        for node in candidates[at]:
            if node in matched.values():
                continue
            extended = dict(matched)
            if self._match_nodes(self.pattern_anchors[at], node, extended):
                yield from self._combinations(candidates, at + 1, extended)

    def _without_overlaps(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        taken: set[Node] = set()
        disjoint = []
        for match in matches:
            own = {n for p, n in match.nodes_map.items() if p.op not in ("placeholder", "output")}
            if own & taken:
                continue
            taken |= own
            disjoint.append(match)
        return disjoint

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:
        """Whether nothing outside of the match uses what it computes on the way."""
        inside = {n for p, n in nodes_map.items() if isinstance(n, Node)}
        for pattern_node, node in nodes_map.items():
            if pattern_node.op in ("placeholder", "get_attr", "output") or pattern_node in self.pattern_returning_nodes:
                continue
            if any(user not in inside for user in node.users):
                return False
        return True

    # ------------------------------------------------------------------------------------------ comparing

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        if pn.op == "get_attr":
            return self._match_attributes(pn, gn)
        if pn.op == "call_module":
            return self._match_modules(pn, gn)
        return bool(pn.target == gn.target)

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        ours, theirs = _attribute(pn), _attribute(gn)
        if ours is _MISSING or theirs is _MISSING:
            return pn.target == gn.target
        if isinstance(ours, flambeau.Tensor) and isinstance(theirs, flambeau.Tensor):
            return True
        return type(ours) is type(theirs)

    def _match_modules(self, pn: Node, gn: Node) -> bool:
        ours, theirs = _attribute(pn), _attribute(gn)
        if isinstance(ours, Module) and isinstance(theirs, Module):
            return type(ours) is type(theirs)
        return pn.target == gn.target

    def _match_nodes(self, pn: Node, gn: Any, matched: dict[Node, Any]) -> bool:
        if pn in matched:
            return matched[pn] is gn or (
                not isinstance(gn, Node) and type(matched[pn]) is type(gn) and matched[pn] == gn
            )
        if not isinstance(gn, Node):
            if pn.op != "placeholder" or self.match_placeholder:
                return False
            matched[pn] = gn
            return True
        if pn.op != "placeholder" and any(value is gn for value in matched.values()):
            return False  # a node stands for one node of the pattern only
        if not self._nodes_are_equal(pn, gn):
            return False
        saved = dict(matched)
        matched[pn] = gn
        if pn.op == "placeholder" or self._match_arguments(pn, gn, matched):
            return True
        matched.clear()
        matched.update(saved)
        return False

    def _match_arguments(self, pn: Node, gn: Node, matched: dict[Node, Any]) -> bool:
        ours, theirs = (pn.args, dict(pn.kwargs)), (gn.args, dict(gn.kwargs))
        if len(ours[0]) != len(theirs[0]) or ours[1].keys() != theirs[1].keys():
            left, right = (
                n.normalized_arguments(n.graph.owning_module, normalize_to_only_use_kwargs=True) for n in (pn, gn)
            )
            if left is None or right is None:
                return False
            ours, theirs = (left.args, left.kwargs), (right.args, right.kwargs)
            if len(ours[0]) != len(theirs[0]) or ours[1].keys() != theirs[1].keys():
                return False
        return all(self._match_values(a, b, matched) for a, b in zip(ours[0], theirs[0])) and all(
            self._match_values(value, theirs[1][name], matched) for name, value in ours[1].items()
        )

    def _match_values(self, a: Any, b: Any, matched: dict[Node, Any]) -> bool:
        if isinstance(a, Node):
            return self._match_nodes(a, b, matched)
        if isinstance(b, Node):
            return False
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b) and all(self._match_values(x, y, matched) for x, y in zip(a, b))
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(self._match_values(a[k], b[k], matched) for k in a)
        if isinstance(a, slice) and isinstance(b, slice):
            return all(self._match_values(x, y, matched) for x, y in zip(_ends(a), _ends(b)))
        return self.ignore_literals or (type(a) is type(b) and bool(a == b))


def _ends(s: slice) -> tuple[Any, Any, Any]:
    return s.start, s.stop, s.step


def _attribute(node: Node) -> Any:
    value: Any = node.graph.owning_module
    if value is None:
        return _MISSING
    for atom in str(node.target).split("."):
        value = getattr(value, atom, _MISSING)
        if value is _MISSING:
            break
    return value
