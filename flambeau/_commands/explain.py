"""`flambeau explain script.py`: run a program and tell what became of each of its compile() calls."""

from __future__ import annotations

import argparse
import os
import sys


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau explain",
        description="Run a program, with `import torch` meaning flambeau, and tell for each function it compiles how many "
        "graphs were captured, where they broke and what to do about it. The graphs run operator by operator; no kernels "
        "are built, and fullgraph=True raises nothing.",
        epilog="examples: flambeau explain train.py --epochs 1\n          flambeau explain --code model.py     (with the "
        "captured graphs)\n\ndocs/graph-breaks.md explains every kind of break.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--code", action="store_true", help="print the captured graphs as Python, too")
    parser.add_argument("script", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    if not os.path.exists(options.script):
        print(f"flambeau explain: there is no file {options.script!r}", file=sys.stderr)
        return 2
    from flambeau._commands.running import run_program
    from flambeau._dynamo.explanation import explaining

    with explaining() as explained:
        status = run_program(options.script, options.arguments)
    print(f"\n{options.script} compiled {len(explained)} function{'' if len(explained) == 1 else 's'}")
    for name, told in explained:
        print(f"\n{name}\n{told}" if told.graph_count or told.skipped else f"\n{name}: was never called")
        if options.code:
            for i, graph in enumerate(told.graphs):
                print(f"\ngraph {i + 1}:\n{graph.code.strip()}")
    return status
