"""`flambeau bench`: how fast a few operators are here, eager and compiled, beside PyTorch's where that is installed."""

from __future__ import annotations

import argparse
import functools
import importlib
import time
from collections.abc import Callable
from typing import Any


def cases(torch: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions and their arguments, of one of the libraries."""
    one, vector, matrix = torch.ones(1), torch.rand(1_000_000), torch.rand(512, 512)
    image, kernel = torch.rand(1, 32, 56, 56), torch.rand(64, 32, 3, 3)
    return {
        "a + b, one element": (lambda a: a + a, (one,)),
        "a + b, a million": (lambda a: a + a, (vector,)),
        "exp, a million": (lambda a: a.exp(), (vector,)),
        "sigmoid(a) * a + 1, a million": (lambda a: a.sigmoid() * a + 1, (vector,)),
        "sum, a million": (lambda a: a.sum(), (vector,)),
        "softmax, 512 x 512": (lambda a: a.softmax(1), (matrix,)),
        "matmul, 512 x 512": (lambda a: a @ a, (matrix,)),
        "convolution 3 x 3, 56 x 56": (torch.conv2d, (image, kernel)),
    }


def best_times(functions: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The best time of each; they take turns, so that what else the machine does falls on all."""
    for function in functions:
        function()
    best = [float("inf")] * len(functions)
    deadline = time.perf_counter() + seconds * len(functions)
    while best[0] == float("inf") or time.perf_counter() < deadline:
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau bench",
        description="Time a few operators, eager and compiled, and PyTorch's where it is installed. `make bench` has many more.",
        epilog="examples: flambeau bench\n          flambeau bench --only softmax --seconds 1 --threads 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each time that is taken (default 0.1)")
    parser.add_argument("--threads", type=int, help="how many threads operators use")
    options = parser.parse_args(arguments)
    import flambeau

    if options.threads:
        flambeau.set_num_threads(options.threads)
    print(f"flambeau {flambeau.__version__}, {flambeau.get_num_threads()} threads, best times in microseconds\n")
    theirs = _pytorch(flambeau.get_num_threads())
    table, their_table = cases(flambeau), cases(theirs) if theirs else {}
    names = [name for name in table if options.only in name]
    if not names:
        parser.error(f"no case has {options.only!r} in its name: {', '.join(table)}")
    print(f"{'':32}{'eager':>12}{'compiled':>12}" + (f"{'PyTorch':>12}{'ratio':>8}" if theirs else ""))
    for name in names:
        function, arguments_of_case = table[name]
        eager, compiled = (
            functools.partial(function, *arguments_of_case),
            functools.partial(flambeau.compile(function), *arguments_of_case),
        )
        others = [functools.partial(their_table[name][0], *their_table[name][1])] if theirs else []
        times = best_times([eager, compiled, *others], options.seconds)
        ratio = f"{min(times[:2]) / times[2]:8.2f}" if theirs else ""
        print(f"{name:32}" + "".join(f"{seconds * 1e6:12.1f}" for seconds in times) + ratio, flush=True)
    return 0


def _pytorch(threads: int) -> Any:
    """PyTorch with as many threads, or None where there is none or `torch` means flambeau."""
    try:
        torch = importlib.import_module("torch")  # the rival of this table; nothing else in the package imports it
    except ImportError:
        return None
    if hasattr(torch.version, "flambeau"):
        return None
    torch.set_num_threads(threads)
    return torch
