"""Draws the results of the comparison with PyTorch as a bar chart: docs/images/comparison.svg.

    python tools/chart.py [benchmarks/results/compiled.json]

Reads what `compare.py --json` wrote: for each workload the time of a step by flambeau's compiled function over the faster
of PyTorch's eager and compiled ones. Bars grow with the ratio, so shorter is better; the line is PyTorch.
"""

from __future__ import annotations

import json
import math
import pathlib
import sys
from html import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "compiled.json"
TARGET = ROOT / "docs" / "images" / "comparison.svg"
LEFT, WIDTH, ROW, TOP = 150, 520, 24, 46


def chart(ratios: dict[str, float]) -> str:
    """The picture; the scale ends at the worst ratio, or a little after PyTorch's line."""
    most = max(1.15, *ratios.values())
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    height = TOP + ROW * (len(ratios) + 1) + 24
    unit = WIDTH / most
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 80} {height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>Time of a compiled step against PyTorch's faster mode</title>",
        f'<rect width="{LEFT + WIDTH + 80}" height="{height}" fill="#fff" rx="10"/>',
        f'<text x="{LEFT}" y="24" fill="#223" font-weight="600">Step time, PyTorch 2.13 (the faster of eager and compiled) = 1'
        "</text>",
    ]
    rows = [*sorted(ratios.items(), key=lambda item: item[1]), ("geometric mean", mean)]
    for i, (name, ratio) in enumerate(rows):
        y = TOP + ROW * i
        colour = "#3f8f55" if name == "geometric mean" else "#5b83c9" if ratio <= 1 else "#d08a2e"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end" fill="#334">{escape(name)}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{unit * ratio:.1f}" height="17" rx="3" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + unit * ratio + 6:.1f}" y="{y + 13}" fill="#334">{ratio:.2f}</text>')
    line = f"{LEFT + unit:.1f}"
    parts.append(f'<path d="M{line} {TOP - 8} V{TOP + ROW * len(rows)}" stroke="#a33" stroke-dasharray="4 3"/></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    rows = json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else RESULTS).read_text())
    TARGET.write_text(chart({name: row["compile ratio"] for name, row in rows.items() if row.get("compile ratio")}))
    print(f"wrote {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
