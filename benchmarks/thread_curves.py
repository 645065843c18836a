"""Draws time over the number of threads, from the lines that benchmarks/threads.py measured, as one SVG file.

    python benchmarks/thread_curves.py LINES.jsonl OUT.svg

Each panel is one kernel or step: the speed relative to PyTorch on one thread, over the number of threads, both on
logarithmic axes; compiled steps of this library, its eager mode, and PyTorch's eager mode.
"""

from __future__ import annotations

import json
import math
import pathlib
import sys

WIDTH, HEIGHT, MARGIN, COLUMNS = 190, 150, 26, 5
COLORS = {"flambeau compile": "#d9480f", "flambeau": "#1971c2", "torch": "#868e96"}
Curves = dict[str, dict[int, float]]


def curves_of(file: str) -> dict[str, Curves]:
    """By kernel or step: by way to run it, the best time for each number of threads."""
    panels: dict[str, Curves] = {}
    for text in pathlib.Path(file).read_text().splitlines():
        line = json.loads(text)
        if "us" not in line:
            continue
        library = "torch" if line["library"] == "torch" else "flambeau"
        if (way := f"{library} compile" if line["mode"] == "compile" else library) not in COLORS:
            continue
        curve = panels.setdefault(line["name"], {}).setdefault(way, {})
        curve[line["threads"]] = min(line["us"], curve.get(line["threads"], math.inf))
    return {name: curves for name, curves in panels.items() if len(curves.get("torch", {})) > 1}


def panel(name: str, curves: Curves, left: float, top: float) -> list[str]:
    base = curves["torch"][min(curves["torch"])]
    speeds = {way: {n: base / us for n, us in curve.items()} for way, curve in curves.items()}
    values = [speed for curve in speeds.values() for speed in curve.values()]
    low, high = min(values) * 0.85, max(values) * 1.15
    most = max(n for curve in speeds.values() for n in curve)

    def x(threads: float) -> float:
        return left + MARGIN + (WIDTH - MARGIN - 12) * math.log(threads) / math.log(most)

    def y(speed: float) -> float:
        return top + HEIGHT - 22 - (HEIGHT - 48) * math.log(speed / low) / math.log(high / low)

    parts = [f'<text x="{left + MARGIN}" y="{top + 16}" font-weight="bold">{name}</text>']
    for threads in (1, 2, 4, 8, 16):
        if threads <= most:
            parts.append(f'<text x="{x(threads)}" y="{top + HEIGHT - 6}" text-anchor="middle">{threads}</text>')
    for power in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1):
        if low <= 2.0**power <= high and power % (2 if high / low > 20 else 1) == 0:
            at = y(2.0**power)
            parts.append(f'<line x1="{left + MARGIN}" x2="{left + WIDTH - 10}" y1="{at}" y2="{at}" stroke="#dee2e6"/>')
            parts.append(f'<text x="{left + MARGIN - 4}" y="{at + 3}" text-anchor="end">{2.0**power:g}</text>')
    for way, curve in speeds.items():
        points = " ".join(f"{x(n):.1f},{y(speed):.1f}" for n, speed in sorted(curve.items()))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[way]}" stroke-width="1.6"/>')
        for n, speed in curve.items():
            parts.append(f'<circle cx="{x(n):.1f}" cy="{y(speed):.1f}" r="2" fill="{COLORS[way]}"/>')
    return parts


def main() -> None:
    source, target = sys.argv[1:]
    panels = curves_of(source)
    rows = (len(panels) + COLUMNS - 1) // COLUMNS
    body = []
    for at, (name, curves) in enumerate(panels.items()):
        body += panel(name, curves, at % COLUMNS * WIDTH, 24 + at // COLUMNS * HEIGHT)
    for at, (way, color) in enumerate(COLORS.items()):
        body.append(f'<text x="{26 + 150 * at}" y="16" fill="{color}" font-weight="bold">{way}</text>')
    size = f'width="{COLUMNS * WIDTH}" height="{24 + rows * HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="9">'
    white = '<rect width="100%" height="100%" fill="white"/>'
    pathlib.Path(target).write_text("\n".join([head, white, *body, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
