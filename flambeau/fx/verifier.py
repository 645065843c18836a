"""What every graph promises, as rules with names.

A rule is a generator over a graph that yields a sentence for each breach. `verify` runs them all and raises one
GraphError that lists what was found; passes run it on their results in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau.fx.node import Node, _legal_ops, map_arg

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph

Rule = Callable[["Graph"], Iterator[str]]
RULES: dict[str, Rule] = {}


class GraphError(RuntimeError):
    """A graph that breaks rules; `breaches` holds (rule, sentence) pairs."""

    def __init__(self, breaches: list[tuple[str, str]]) -> None:
        self.breaches = breaches
        text = "\n".join(f"  {rule}: {sentence}" for rule, sentence in breaches)
        super().__init__(f"[lint] expected a graph that keeps all rules, got {len(breaches)} breaches:\n{text}")


def rule(function: Rule) -> Rule:
    RULES[function.__name__] = function
    return function


def verify(graph: Graph, rules: Iterable[str] | None = None) -> None:
    """Raise GraphError unless the graph keeps the named rules (all by default)."""
    names = RULES if rules is None else rules
    breaches = [(name, sentence) for name in names for sentence in RULES[name](graph)]
    if breaches:
        raise GraphError(breaches)


@rule
def list_is_linked(graph: Graph) -> Iterator[str]:
    """Following `next` and `prev` visits the same nodes, as many as the graph counts."""
    seen: set[Node] = set()
    node = graph._root
    while True:
        if node._next._prev is not node:
            yield f"{node.name or 'the root'} is followed by {node._next.name}, which does not come after it"
            return
        node = node._next
        if node is graph._root:
            break
        if node in seen:
            yield f"{node.name} is reached twice"
            return
        if node._erased:
            yield f"{node.name} was erased and is still linked"
        seen.add(node)
    if len(seen) != len(graph.nodes):
        yield f"the graph counts {len(graph.nodes)} nodes and links {len(seen)}"


@rule
def nodes_belong_to_graph(graph: Graph) -> Iterator[str]:
    """Nodes and the nodes among their arguments are of this graph."""
    for node in graph.nodes:
        if node.graph is not graph:
            yield f"{node.name} belongs to another graph"
        for used in node._input_nodes:
            if used.graph is not graph:
                yield f"{node.name} uses {used.name} of another graph"


@rule
def kinds_are_known(graph: Graph) -> Iterator[str]:
    """Every node is of one of the six kinds."""
    for node in graph.nodes:
        if node.op not in _legal_ops:
            yield f"{node.name} is a {node.op!r}"


@rule
def names_are_unique(graph: Graph) -> Iterator[str]:
    """No two nodes share a name, and names can be written in Python."""
    seen: set[str] = set()
    for node in graph.nodes:
        if node.name in seen:
            yield f"{node.name} names two nodes"
        if not node.name.isidentifier():
            yield f"{node.name!r} is no identifier"
        seen.add(node.name)


@rule
def values_are_defined_before_use(graph: Graph) -> Iterator[str]:
    """A node uses only nodes that come before it and are still in the graph."""
    seen: set[Node] = set()
    for node in graph.nodes:
        for used in node._input_nodes:
            if used not in seen:
                state = (
                    "which was erased" if used._erased else "which comes later: it was used before it has been defined"
                )
                yield f"{node.name} uses {used.name}, {state}"
        seen.add(node)


@rule
def users_are_recorded(graph: Graph) -> Iterator[str]:
    """`users` and the arguments tell the same story."""
    uses: dict[Node, set[Node]] = {node: set() for node in graph.nodes}
    for node in graph.nodes:
        recorded: set[Node] = set()
        map_arg((node.args, dict(node.kwargs)), recorded.add)  # type: ignore[arg-type, unused-ignore]
        if recorded != set(node._input_nodes):
            yield f"{node.name} holds {_names(recorded)} and records {_names(node._input_nodes)}"
        for used in recorded:
            uses.setdefault(used, set()).add(node)
    for node, users in uses.items():
        if users != set(node.users):
            yield f"{node.name} is used by {_names(users)} and records {_names(node.users)}"


@rule
def output_is_last(graph: Graph) -> Iterator[str]:
    """A graph has at most one output, and nothing comes after it."""
    seen: Node | None = None
    for node in graph.nodes:
        if seen is not None:
            yield f"{node.name} comes after the output {seen.name}"
        if node.op == "output":
            seen = node
            if len(node.args) != 1:
                yield f"{node.name} has {len(node.args)} arguments instead of one"
            if node.users:
                yield f"{node.name} is used by {_names(node.users)}"


@rule
def placeholders_come_first(graph: Graph) -> Iterator[str]:
    """Parameters with a default come after those without."""
    default: Node | None = None
    for node in graph.nodes:
        if node.op != "placeholder" or str(node.target).startswith("*"):
            continue
        if node.args:
            default = node
        elif default is not None:
            yield f"{node.name} has no default and follows {default.name}, which has one"


@rule
def targets_fit_kinds(graph: Graph) -> Iterator[str]:
    """call_function has something to call; the other kinds have a name."""
    for node in graph.nodes:
        if node.op == "call_function":
            if not callable(node.target):
                yield f"{node.name} calls {node.target!r}, which is not callable"
        elif not isinstance(node.target, str):
            yield f"{node.name} is a {node.op} of {node.target!r} instead of a name"
        if node.op == "call_method" and not node.args:
            yield f"{node.name} calls the method {node.target!r} of nothing"


@rule
def paths_lead_somewhere(graph: Graph) -> Iterator[str]:
    """Modules and attributes that are named exist in the module that owns the graph."""
    owner = graph.owning_module
    if owner is None:
        return
    for node in graph.nodes:
        if node.op not in ("get_attr", "call_module"):
            continue
        value: Any = owner
        walked: list[str] = []
        for atom in str(node.target).split("."):
            walked.append(atom)
            value = getattr(value, atom, _MISSING)
            if value is _MISSING:
                yield f"{node.name} refers to {node.target!r}, and there is no {'.'.join(walked)!r}"
                break
        else:
            if node.op == "call_module" and not callable(value):
                yield f"{node.name} calls {node.target!r}, which is a {type(value).__name__}"


_MISSING = object()


def _names(nodes: Iterable[Node]) -> str:
    return "{" + ", ".join(sorted(n.name for n in nodes)) + "}"
