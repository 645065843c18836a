"""Draws measurements beside PyTorch as bar charts, and writes the five numbers of the README from the same files.

    python tools/chart.py

Reads benchmarks/results/compiled.json, which `compare.py --json` writes in one run on one machine, and the programs measured on
a GPU, and writes docs/images/comparison.svg and the table between the two marks in README.md. Bars are flambeau's time as a share
of PyTorch's: shorter is better, the line is PyTorch.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
from collections.abc import Iterable
from html import escape
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TARGET = ROOT / "docs" / "images" / "comparison.svg"
README = ROOT / "README.md"
MARKS = "<!-- numbers -->", "<!-- end of numbers -->"

# How the chart names the workloads of compare.py.
WORDS = {"mlp": "MLP", "gpt": "GPT", "resnet18": "ResNet-18", "lstm": "LSTM", "classifier": "text classifier"}
LEFT, WIDTH, ROW, HEAD = 210, 250, 20, 44
PANEL = LEFT + WIDTH + 60

Rows = dict[str, float]


def mean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def panel(title: str, rows: Rows, x: int, y: int) -> list[str]:
    """Bars below a title; the scale ends at the worst ratio, or a little after PyTorch's line."""
    unit = WIDTH / max(1.1, *rows.values())
    shown = [*sorted(rows.items(), key=lambda item: item[1]), ("geometric mean", mean(rows.values()))]
    parts = [f'<text x="{x + LEFT}" y="{y + 16}" fill="#223" font-weight="600">{escape(title)}</text>']
    for i, (name, ratio) in enumerate(shown):
        top = y + HEAD - 14 + ROW * i
        colour = "#3f8f55" if i == len(shown) - 1 else "#5b83c9" if ratio <= 1 else "#d08a2e"
        width = max(unit * ratio, 1)
        parts.append(f'<text x="{x + LEFT - 8}" y="{top + 11}" text-anchor="end" fill="#334">{escape(name)}</text>')
        parts.append(f'<rect x="{x + LEFT}" y="{top}" width="{width:.1f}" height="14" rx="3" fill="{colour}"/>')
        parts.append(
            f'<text x="{x + LEFT + width + 5:.1f}" y="{top + 11}" fill="#334">{f"{ratio:.2f}" if ratio > 0.095 else f"{ratio:.2g}"}</text>'
        )
    line = x + LEFT + unit
    parts.append(
        f'<path d="M{line:.1f} {y + HEAD - 20} v{ROW * len(shown) + 4}" stroke="#a33" stroke-dasharray="4 3"/>'
    )
    return parts


def chart(panels: dict[str, Rows]) -> str:
    """Two panels beside each other, in as many rows as it takes."""
    parts, y = [], 34
    titles = list(panels.items())
    for start in range(0, len(titles), 2):
        pair = titles[start : start + 2]
        for column, (title, rows) in enumerate(pair):
            parts += panel(title, rows, column * PANEL, y)
        y += HEAD + ROW * (max(len(rows) for _, rows in pair) + 1) + 12
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * PANEL} {y}" font-family="system-ui, sans-serif" font-size="12">',
        "<title>Times against PyTorch's; lower is better</title>",
        f'<rect width="{2 * PANEL}" height="{y}" fill="#fff" rx="10"/>',
        f'<text x="{PANEL}" y="22" text-anchor="middle" fill="#223" font-size="14" font-weight="600">'
        "Time as a share of PyTorch's (the dashed line): lower is better</text>",
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def gpu_rows(runs: list[dict[str, Any]]) -> Rows:
    """The best mode of flambeau against the best of the peers, for each program."""
    best: dict[str, dict[bool, float]] = {}
    for run in runs:
        if run.get("ms"):
            times = best.setdefault(run["program"], {})
            ours = run["library"] == "flambeau"
            times[ours] = min(times.get(ours, math.inf), run["ms"])
    return {name: times[True] / times[False] for name, times in best.items() if len(times) == 2}


def titled(name: str) -> str:
    """`gpt training` as "GPT, training"."""
    model, _, kind = name.partition(" ")
    return f"{WORDS[model]}, {kind}" if model in WORDS else name


def panels(cpu: dict[str, Any], gpu: list[dict[str, Any]]) -> dict[str, Rows]:
    named = {titled(name): row for name, row in cpu.items()}
    ours, theirs = imports(cpu)
    return {
        "Compiled step, two cores": {
            name: row["compile ratio"] for name, row in named.items() if row.get("compile ratio")
        },
        "First call of compile, empty caches": {
            name: row["first-call ratio"] for name, row in named.items() if row.get("first-call ratio")
        },
        "Eager step, two cores": {name: row["eager ratio"] for name, row in named.items() if row.get("eager ratio")},
        "One H200, against PyTorch and JAX": gpu_rows(gpu),
        "import": {
            "time": ours["import_s"] / theirs["import_s"],
            "memory": ours["import_mb"] / theirs["import_mb"],
        },
    }


def imports(cpu: dict[str, Any]) -> list[dict[str, float]]:
    """What an import costs at best in flambeau and in PyTorch: seconds, and megabytes of memory."""
    libraries = []
    for library in ("flambeau", "torch"):
        runs = [row[way] for row in cpu.values() for way in row if way.startswith(library)]
        libraries.append({what: min(run[what] for run in runs if what in run) for what in ("import_s", "import_mb")})
    return libraries


def numbers(measured: dict[str, Any], drawn: dict[str, Rows]) -> str:
    ours, theirs = imports(measured["workloads"])
    steps, first, eager, gpu, _ = drawn.values()
    return "\n".join(
        [
            "| lower is better | flambeau / PyTorch 2.13 |",
            "|---|---|",
            f"| step time, compiled, geometric mean of {len(steps)} workloads | **{mean(steps.values()):.2f}** |",
            f"| step time, eager | **{mean(eager.values()):.2f}** |",
            f"| first call of `compile`, nothing cached | **{mean(first.values()):.3f}** |",
            f"| `import` | **{ours['import_s']:.2f} s** / {theirs['import_s']:.1f} s |",
            f"| step time on an H200, best modes, {len(gpu)} programs, against the better of PyTorch and JAX | **{mean(gpu.values()):.2f}** |",
            "",
            "Measured in one run on {processor} ({date}); the last row on one NVIDIA H200.".format(
                **measured["machine"]
            ),
        ]
    )


def main() -> None:
    measured = json.loads((RESULTS / "compiled.json").read_text())
    drawn = panels(measured["workloads"], json.loads((RESULTS / "cuda_programs_h200.json").read_text()))
    TARGET.write_text(chart(drawn))
    text = README.read_text()
    between = f"{MARKS[0]}\n{numbers(measured, drawn)}\n{MARKS[1]}"
    README.write_text(re.sub(f"{MARKS[0]}.*?{MARKS[1]}", lambda match: between, text, flags=re.S))
    print(f"wrote {TARGET.relative_to(ROOT)} and the numbers of README.md")


if __name__ == "__main__":
    main()
