"""Replacing subgraphs: write the pattern and its replacement as functions, and every match is rewritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

from flambeau.fx._matcher import InternalMatch, SubgraphMatcher
from flambeau.fx._ordering import stable_topological_sort
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule, _assign_attr
from flambeau.fx.node import Node, map_aggregate, map_arg

Pattern = Union[Callable[..., Any], Graph, GraphModule]
MatchFilter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """A rewritten place: the node that computed the result, and which nodes the pattern's nodes were."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A rewritten place, with the nodes that were put there."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Pattern, replacement: Pattern) -> list[Match]:
    """Replace each match of a pattern in a module's graph, and recompile it.

    Both are functions (or modules) of the same parameters, which stand for whatever the pattern is applied to:

        fx.replace_pattern(model, lambda x: torch.relu(x), lambda x: torch.nn.functional.gelu(x))

    Matches do not overlap, and what a match computes on the way must not be used elsewhere.
    """
    return [Match(r.anchor, r.nodes_map) for r in _replace_pattern(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None = None,
    match_filters: list[MatchFilter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Like replace_pattern, for the matches that all filters accept. A filter is given the match, the graph and the
    pattern. A callback may make the replacement for each match."""
    return _replace_pattern(gm, pattern, replacement, match_filters, ignore_literals, replacement_callback)


def _graph_of(pattern: Pattern) -> Graph:
    if isinstance(pattern, GraphModule):
        return pattern.graph
    return pattern if isinstance(pattern, Graph) else symbolic_trace(pattern).graph


def _replace_pattern(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None,
    match_filters: list[MatchFilter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
) -> list[ReplacedPatterns]:
    graph = gm.graph
    pattern_graph = _graph_of(pattern)
    matches = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals).match(graph)
    matches = [m for m in matches if all(accept(m, graph, pattern_graph) for accept in match_filters or ())]
    common = _graph_of(replacement) if replacement is not None else None
    replaced: dict[Any, Any] = {}  # nodes of earlier matches that later ones take as inputs
    done: list[ReplacedPatterns] = []
    for match in matches:
        replacement_graph = (
            replacement_callback(match, graph, pattern_graph) if replacement_callback is not None else common
        )
        if replacement_graph is None:
            raise AssertionError("[replace_pattern] expected a replacement or a callback that makes one, got neither")
        done.append(_replace_match(gm, pattern_graph, replacement_graph, match, replaced))
    if done:
        stable_topological_sort(graph)
        graph.lint()
        gm.recompile()
    return done


def _replace_match(
    gm: GraphModule, pattern: Graph, replacement: Graph, match: InternalMatch, replaced: dict[Any, Any]
) -> ReplacedPatterns:
    graph = gm.graph
    parameters = [n for n in replacement.nodes if n.op == "placeholder"]
    placeholders = match.placeholder_nodes
    if len(parameters) != len(placeholders):
        raise AssertionError(
            f"[replace_pattern] expected a replacement of {len(placeholders)} parameters like the pattern, got {len(parameters)}"
        )
    values: dict[Node, Any] = {
        p: replaced.get(v, v) if isinstance(v, Node) else v for p, v in zip(parameters, placeholders)
    }
    own = [n for p, n in match.nodes_map.items() if p.op not in ("placeholder", "output")]
    last = max(own)
    copies: list[Node] = []
    with graph.inserting_after(last):
        for node in replacement.nodes:
            if node.op in ("placeholder", "output"):
                continue
            copy = graph.create_node(
                node.op,
                node.target,
                _filled(node.args, values),
                _filled(dict(node.kwargs), values),
                node.name,
                node.type,
            )
            copy.meta = {**node.meta, **{k: v for k, v in last.meta.items() if k in ("nn_module_stack", "stack_trace")}}
            if node.op in ("call_module", "get_attr"):
                _adopt(gm, replacement, str(node.target))
            values[node] = copy
            copies.append(copy)
    results = _flat(_filled(replacement.output_node().args[0], values))
    old = _flat(map_arg(pattern.output_node().args[0], lambda n: match.nodes_map[n]))
    if len(results) != len(old):
        raise AssertionError(
            f"[replace_pattern] expected a replacement with {len(old)} results like the pattern, got {len(results)}"
        )
    for before, after in zip(old, results):
        if isinstance(before, Node) and isinstance(after, Node) and before is not after:
            before.replace_all_uses_with(after, delete_user_cb=lambda user: user not in copies or user in own)
            replaced[before] = after
    for node in sorted(own, reverse=True):
        if not node.users and not node._erased:
            graph.erase_node(node)
    anchor = match.nodes_map[match.anchors[0]]
    return ReplacedPatterns(anchor, match.nodes_map, copies)


def _filled(value: Any, values: dict[Node, Any]) -> Any:
    return map_aggregate(value, lambda x: values[x] if isinstance(x, Node) else x)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in _flat(item)]
    if isinstance(value, dict):
        return [x for item in value.values() for x in _flat(item)]
    return [value]


def _adopt(gm: GraphModule, replacement: Graph, target: str) -> None:
    """Give the module what a replacement refers to, unless it has something there."""
    owner: Any = gm
    for atom in target.split("."):
        owner = getattr(owner, atom, None)
        if owner is None:
            break
    else:
        return
    value: Any = replacement.owning_module
    for atom in target.split("."):
        value = getattr(value, atom)
    _assign_attr(value, gm, target)
