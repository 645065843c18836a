"""`flambeau profile train.py`: where a program spends its time.

Runs the program under the profiler and prints a table of its operators. `-o NAME` also writes NAME.json, a trace for
chrome://tracing or ui.perfetto.dev, and NAME.html, a flame chart of the program's lines that any browser shows.
"""

from __future__ import annotations

import argparse
import html
import os
import sys
from typing import Any

_PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 13px system-ui, sans-serif; margin: 1em; }}
.row {{ display: flex; }}
.frame {{ min-width: 0; }}
.frame > span {{ display: block; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; border: 1px solid #fff;
  border-radius: 2px; padding: 1px 3px; }}
</style><h1>{title}</h1><p>{note}</p>{chart}
"""


class Frame:
    """A line of the program or an operator, with the time spent below it."""

    def __init__(self, name: str) -> None:
        self.name, self.microseconds = name, 0.0
        self.children: dict[str, Frame] = {}

    def add(self, path: list[str], microseconds: float) -> None:
        self.microseconds += microseconds
        if path:
            child = self.children.setdefault(path[0], Frame(path[0]))
            child.add(path[1:], microseconds)

    def as_html(self, whole: float) -> str:
        """Boxes as wide as their share, those of the callees below; what takes under a thousandth is left out."""
        share = self.microseconds / whole if whole else 0.0
        hue = 40 - 40 * min(share * 2, 1)
        text = html.escape(f"{self.name}  {self.microseconds / 1000:.2f} ms  {share:.1%}")
        box = f'<span style="background: hsl({hue:.0f} 90% 80%)" title="{text}">{text}</span>'
        shown = [child for child in self.children.values() if child.microseconds > whole / 1000]
        rows = "".join(
            f'<div class="frame" style="width: {child.microseconds / self.microseconds:.3%}">{child.as_html(whole)}</div>'
            for child in sorted(shown, key=lambda child: -child.microseconds)
        )
        return box + (f'<div class="row">{rows}</div>' if rows else "")


def flame(events: Any, script: str) -> Frame:
    """Operators under the lines of the program that called them."""
    root = Frame(os.path.basename(script))
    for event in events:
        if event.cpu_parent is None:
            frames = [frame for frame in reversed(event.stack) if "/flambeau/" not in frame and "runpy" not in frame]
            root.add([*frames, event.name], event.cpu_time_total)
    return root


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau profile",
        description="Run a program, with `import torch` meaning flambeau, and tell where it spends its time.",
        epilog="examples: flambeau profile train.py --epochs 1\n          flambeau profile -o step train.py     (trace and flame chart)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=15, help="of the table (default 15)")
    parser.add_argument("--sort", default="self_cpu_time_total", help="column to sort by (default self_cpu_time_total)")
    parser.add_argument("--memory", action="store_true", help="count memory, too")
    parser.add_argument("-o", "--output", metavar="NAME", help="write NAME.json, a trace, and NAME.html, a flame chart")
    parser.add_argument("script", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    if not os.path.exists(options.script):
        print(f"flambeau profile: there is no file {options.script!r}", file=sys.stderr)
        return 2
    from flambeau._commands.running import run_program
    from flambeau.profiler import profile

    with profile(profile_memory=options.memory, with_stack=bool(options.output)) as profiled:
        status = run_program(options.script, options.arguments)
    print(profiled.key_averages().table(sort_by=options.sort, row_limit=options.rows))
    if options.output:
        profiled.export_chrome_trace(f"{options.output}.json")
        root = flame(profiled.events(), options.script)
        note = "Time in operators, below the lines that called them; wider is longer."
        page = _PAGE.format(title=html.escape(options.script), note=note, chart=root.as_html(root.microseconds))
        with open(f"{options.output}.html", "w", encoding="utf-8") as file:
            file.write(page)
        print(f"wrote {options.output}.json for ui.perfetto.dev and {options.output}.html")
    return status
