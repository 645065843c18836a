"""Pictures of the graph: as DOT text for Graphviz, and as SVG without any other program."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from flambeau import _C
from flambeau._C import Tensor

__all__ = ["to_dot", "to_svg", "draw"]


def _roots(outputs: Any) -> list[Any]:
    listed: Iterable[Any] = (outputs,) if isinstance(outputs, (Tensor, _C.Node)) else outputs
    return [_C._gradient_edge(t)[0] if isinstance(t, Tensor) else t for t in listed]


def _walk(outputs: Any) -> tuple[list[Any], list[tuple[int, int]]]:
    """All nodes reachable from the outputs, and the edges between them as pairs of indices."""
    order: list[Any] = []
    index: dict[Any, int] = {}
    edges: list[tuple[int, int]] = []
    stack = list(reversed(_roots(outputs)))
    while stack:
        node = stack.pop()
        if node in index:
            continue
        index[node] = len(order)
        order.append(node)
        stack.extend(n for n, _ in reversed(node.next_functions) if n is not None)
    for node in order:
        edges.extend((index[node], index[n]) for n, _ in node.next_functions if n is not None)
    return order, edges


def _label(node: Any, names: dict[int, str]) -> str:
    if node.name() == "AccumulateGrad":
        variable = node.variable
        name = names.get(id(variable), "")
        return f"{name} {tuple(variable.shape)}".strip()
    return str(node.name())


def _names(params: Any) -> dict[int, str]:
    return {id(t): name for name, t in dict(params or {}).items()}


def to_dot(outputs: Any, params: Any = None) -> str:
    """The graph of one or several tensors as DOT text. `params` maps names to leaves."""
    nodes, edges = _walk(outputs)
    names = _names(params)
    lines = ["digraph {", '  node [shape=box, fontname="monospace", fontsize=10];']
    for i, node in enumerate(nodes):
        style = ', style=filled, fillcolor="lightblue"' if node.name() == "AccumulateGrad" else ""
        text = _label(node, names).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  n{i} [label="{text}"{style}];')
    lines.extend(f"  n{b} -> n{a};" for a, b in edges)
    lines.append("}")
    return "\n".join(lines) + "\n"


def _levels(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """How far each node is from the outputs, along the longest path."""
    following: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for a, b in edges:
        following[a].append(b)
        waiting[b] += 1
    level = [0] * count
    ready = [i for i in range(count) if waiting[i] == 0]
    while ready:
        i = ready.pop()
        for j in following[i]:
            level[j] = max(level[j], level[i] + 1)
            waiting[j] -= 1
            if waiting[j] == 0:
                ready.append(j)
    return level


def to_svg(outputs: Any, params: Any = None) -> str:
    """The graph of one or several tensors as an SVG picture: leaves at the top, outputs at the bottom."""
    nodes, edges = _walk(outputs)
    names = _names(params)
    level = _levels(len(nodes), edges)
    depth = max(level, default=0)
    labels = [_label(node, names) for node in nodes]
    rows: dict[int, list[int]] = {}
    for i, at in enumerate(level):
        rows.setdefault(at, []).append(i)
    height, gap, char = 24, 26, 7
    place: dict[int, tuple[float, float, float]] = {}  # centre, top, width
    total = 0.0
    for at, row in rows.items():
        x = 10.0
        for i in row:
            width = len(labels[i]) * char + 16.0
            place[i] = (x + width / 2, 10.0 + (depth - at) * (height + gap), width)
            x += width + 14
        total = max(total, x)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total + 10:.0f}" '
        f'height="{(depth + 1) * (height + gap) + 10}" '
        'font-family="monospace" font-size="11">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for a, b in edges:
        (x1, y1, _), (x2, y2, _) = place[b], place[a]
        parts.append(
            f'<line x1="{x1:.0f}" y1="{y1 + height:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="black" '
            'marker-end="url(#a)"/>'
        )
    for i, label in enumerate(labels):
        x, y, width = place[i]
        fill = "#cfe8ff" if nodes[i].name() == "AccumulateGrad" else "white"
        parts.append(
            f'<rect x="{x - width / 2:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" fill="{fill}" '
            'stroke="black" rx="3"/>'
            f'<text x="{x:.0f}" y="{y + 16:.0f}" text-anchor="middle">{html.escape(label)}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def draw(outputs: Any, path: str, params: Any = None) -> None:
    """Writes the graph to a file: SVG, or DOT when the name ends in .dot or .gv."""
    text = to_dot(outputs, params) if path.endswith((".dot", ".gv")) else to_svg(outputs, params)
    with open(path, "w") as file:
        file.write(text)
