"""`flambeau explain script.py`: run a program and tell what became of each of its compile() calls."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback


def _print_error(error: Exception, script: str) -> None:
    """As Python would, less the frames that lead to the program; what cannot even be compiled has no others."""
    told = traceback.TracebackException.from_exception(error)
    start = next((i for i, frame in enumerate(told.stack) if frame.filename == script), None)
    told.stack = None if start is None else traceback.StackSummary.from_list(told.stack[start:])
    print(*told.format(), sep="", end="", file=sys.stderr)


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
    from flambeau._compat.alias import install
    from flambeau._dynamo.explanation import explaining

    install()
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    status = 0
    with explaining() as explained:
        try:
            runpy.run_path(options.script, run_name="__main__")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        except Exception as error:
            _print_error(error, options.script)
            status = 1
    print(f"\n{options.script} compiled {len(explained)} function{'' if len(explained) == 1 else 's'}")
    for name, told in explained:
        print(f"\n{name}\n{told}" if told.graph_count or told.skipped else f"\n{name}: was never called")
        if options.code:
            for i, graph in enumerate(told.graphs):
                print(f"\ngraph {i + 1}:\n{graph.code.strip()}")
    return status
