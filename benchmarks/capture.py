"""Capture and guards, beside PyTorch's Dynamo: ratios below 1 are ours being faster.

    python benchmarks/capture.py

Both libraries run in this process, alternating, with the backend "eager"; each number is the best of several, in processor
time. The GPT is that of `models.py`, with four layers.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import models

TURNS = 7
CALLS = 20000


def once(function: Callable[[], Any]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin


def capture(lib: Any) -> Callable[[], Any]:
    """Forgets all captures, and makes the one of the GPT again."""
    task = models.make(lib, "gpt")
    inputs = task.batch(0)[0][:1, :8]  # running it takes no time

    def run() -> None:
        compiled = lib.compile(task.model, backend="eager", fullgraph=True)
        compiled(inputs)

    return run


def guards(lib: Any) -> Callable[[], float]:
    """What a call costs beyond its graph, of a function of three tensors that returns them."""
    compiled = lib.compile(lambda a, b, c: (a, b, c) if a.ndim and b.ndim and c.ndim else None, backend="eager")
    inputs = [lib.ones(3), lib.ones(4, 2), lib.ones(5)]
    compiled(*inputs)

    def run() -> float:
        begin = time.process_time()
        for _ in range(CALLS):
            compiled(*inputs)
        return (time.process_time() - begin) / CALLS

    return run


def main() -> None:
    libraries = {name: importlib.import_module(name) for name in ("flambeau", "torch")}
    for lib in libraries.values():
        lib.set_num_threads(1)
    captures = {name: capture(lib) for name, lib in libraries.items()}
    best: dict[str, float] = {}
    for turn in range(TURNS):
        for name, run in captures.items():
            libraries[name]._dynamo.reset()
            spent = once(run)
            if turn:  # the first one imports
                best[name] = min(best.get(name, spent), spent)
    ours, theirs = best["flambeau"], best["torch"]
    print(f"capture of a GPT of four layers  {ours * 1e3:7.1f} ms  {theirs * 1e3:7.1f} ms  {ours / theirs:5.2f}")
    calls = {name: guards(lib) for name, lib in libraries.items()}
    cost = {name: min(run() for _ in range(TURNS)) for name, run in calls.items()}
    ours, theirs = cost["flambeau"], cost["torch"]
    print(f"call with three tensors          {ours * 1e6:7.2f} µs  {theirs * 1e6:7.2f} µs  {ours / theirs:5.2f}")


if __name__ == "__main__":
    main()
