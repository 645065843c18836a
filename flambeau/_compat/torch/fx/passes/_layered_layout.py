"""Placing a directed graph on a page in layers, and writing it as SVG; no outside program needed.

Boxes go to layers so that edges point down; long edges get invisible stops on the layers they cross; within a layer,
order follows the neighbours' positions to avoid crossings; then boxes move towards their neighbours as far as there is
room. In goes boxes with labels and the edges between them, out comes text.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from html import escape

FONT = "Helvetica, Arial, sans-serif"
LINE = 15.0
CHARACTER = 6.6
GAP_X = 22.0
GAP_Y = 34.0
MARGIN = 28.0


@dataclass(eq=False)
class Box:
    """A box to be drawn; the first line is its heading. A stop of an edge has no lines."""

    lines: list[str]
    fill: str = "#ffffff"
    stroke: str = "#555555"
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    room: float = 0.0  # height of the layer, which edges cross straight
    above: list[Box] = field(default_factory=list)
    below: list[Box] = field(default_factory=list)

    @property
    def width(self) -> float:
        if not self.lines:
            return 10.0
        return max(len(line) * (CHARACTER + (0.6 if i == 0 else 0.0)) for i, line in enumerate(self.lines)) + 22.0

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 12.0 if self.lines else 0.0


def draw(title: str, boxes: list[Box], edges: list[tuple[Box, Box]], legend: list[tuple[str, str]]) -> str:
    """An SVG of boxes, given in an order in which edges point forward."""
    _assign_layers(boxes, edges)
    layers, routes = _with_stops(boxes, edges)
    _order(layers)
    _place(layers)
    return _svg(title, boxes, routes, legend)


def _assign_layers(boxes: list[Box], edges: list[tuple[Box, Box]]) -> None:
    into: dict[Box, list[Box]] = {b: [] for b in boxes}
    out: dict[Box, list[Box]] = {b: [] for b in boxes}
    for a, b in edges:
        into[b].append(a)
        out[a].append(b)
    for box in boxes:
        box.layer = 1 + max((a.layer for a in into[box]), default=-1)
    # What needs nothing (weights, late inputs) goes just above where it is used.
    for box in boxes:
        if not into[box] and out[box]:
            box.layer = max(0, min(b.layer for b in out[box]) - 1)


def _with_stops(boxes: list[Box], edges: list[tuple[Box, Box]]) -> tuple[list[list[Box]], list[list[Box]]]:
    layers: list[list[Box]] = [[] for _ in range(1 + max((b.layer for b in boxes), default=0))]
    for box in boxes:
        layers[box.layer].append(box)
    routes: list[list[Box]] = []
    for a, b in edges:
        route = [a]
        for layer in range(a.layer + 1, b.layer):
            stop = Box([], layer=layer)
            layers[layer].append(stop)
            route.append(stop)
        route.append(b)
        for upper, lower in itertools.pairwise(route):
            upper.below.append(lower)
            lower.above.append(upper)
        routes.append(route)
    return layers, routes


def _order(layers: list[list[Box]]) -> None:
    for sweep in range(6):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            position = {box: i for row in layers for i, box in enumerate(row)}
            keys = {}
            for i, box in enumerate(layer):
                near = box.above if down else box.below
                keys[box] = sum(position[n] for n in near) / len(near) if near else float(i)
            layer.sort(key=keys.__getitem__)


def _place(layers: list[list[Box]]) -> None:
    y = MARGIN + 40.0
    for layer in layers:
        height = max((box.height for box in layer), default=0.0)
        x = MARGIN
        for box in layer:
            box.x = x + box.width / 2
            box.y = y + height / 2
            box.room = height
            x += box.width + GAP_X
        y += height + GAP_Y
    for sweep in range(24):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            _settle(layer, down)
    left = min((box.x - box.width / 2 for layer in layers for box in layer), default=0.0)
    for layer in layers:
        for box in layer:
            box.x += MARGIN - left


def _settle(layer: list[Box], down: bool) -> None:
    """Move boxes towards the middle of their neighbours, keeping order and distances: blocks of boxes that push each
    other move together."""
    blocks: list[list[float]] = []  # sum of wished left ends, number of boxes, width, first index
    for i, box in enumerate(layer):
        near = box.above if down else box.below
        wish = sum(n.x for n in near) / len(near) if near else box.x
        blocks.append([wish - box.width / 2, 1.0, box.width, float(i)])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] + blocks[-2][2] + GAP_X > blocks[-1][0] / blocks[-1][1]:
            total, count, width, _ = blocks.pop()
            shift = blocks[-1][2] + GAP_X
            blocks[-1][0] += total - count * shift
            blocks[-1][1] += count
            blocks[-1][2] = shift + width
    for n, block in enumerate(blocks):
        last = int(blocks[n + 1][3]) if n + 1 < len(blocks) else len(layer)
        x = block[0] / block[1]
        for box in layer[int(block[3]) : last]:
            box.x = x + box.width / 2
            x += box.width + GAP_X


def _path(route: list[Box]) -> str:
    """A line from box to box that bends between layers and crosses them straight."""
    first, last = route[0], route[-1]
    x, y = first.x, first.y + first.height / 2
    text = f"M{x:.1f},{y:.1f}"
    for box in route[1:]:
        top = box.y - (box.room / 2 if box is not last else box.height / 2 + 5)
        middle = (y + top) / 2
        text += f" C{x:.1f},{middle:.1f} {box.x:.1f},{middle:.1f} {box.x:.1f},{top:.1f}"
        x, y = box.x, top
        if box is not last:
            y = box.y + box.room / 2
            text += f" L{x:.1f},{y:.1f}"
    return text


def _svg(title: str, boxes: list[Box], routes: list[list[Box]], legend: list[tuple[str, str]]) -> str:
    everything = boxes + [stop for route in routes for stop in route[1:-1]]
    width = max([b.x + b.width / 2 for b in everything] + [len(title) * 9.0, 110.0 * len(legend)]) + MARGIN
    height = max((b.y + b.height / 2 for b in boxes), default=60.0) + MARGIN + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" font-size="11.5">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0.8 L7,4 L0,7.2 Z" fill="#8a8f98"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fbfbfd"/>',
        f'<text x="{MARGIN:.0f}" y="30" font-size="17" font-weight="600" fill="#22262e">{escape(title)}</text>',
    ]
    parts += [
        f'<path d="{_path(route)}" fill="none" stroke="#8a8f98" stroke-width="1.2" marker-end="url(#tip)"/>'
        for route in routes
    ]
    for box in boxes:
        left, top = box.x - box.width / 2, box.y - box.height / 2
        tip = escape(" | ".join(box.lines))
        parts.append(
            f'<g><title>{tip}</title><rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
            f'rx="7" fill="{box.fill}" stroke="{box.stroke}" stroke-width="1.1"/>'
        )
        for i, line in enumerate(box.lines):
            style = 'font-weight="600" fill="#1d2129"' if i == 0 else 'fill="#4a505c"'
            y = top + 6 + LINE * (i + 0.75)
            parts.append(f'<text x="{box.x:.1f}" y="{y:.1f}" text-anchor="middle" {style}>{escape(line)}</text>')
        parts.append("</g>")
    for i, (label, fill) in enumerate(legend):
        x, y = MARGIN + 110 * i, height - 22
        parts.append(
            f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="12" height="12" rx="3" fill="{fill}" stroke="#777"/>'
            f'<text x="{x + 18:.0f}" y="{y + 1:.0f}" fill="#4a505c">{escape(label)}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts)
