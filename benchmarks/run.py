"""Time eager operators of flambeau beside PyTorch's, interleaved in one process per library.

    python benchmarks/run.py [--only REGEX] [--rounds 3] [--json FILE]

Each library runs in its own process, round after round, so that noise falls on both alike; the best round counts.
A ratio below 1 means flambeau is faster. Without PyTorch only flambeau's times are printed.
"""

import argparse
import importlib
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases(torch):
    """Name -> (function, arguments), for whichever library stands for `torch`."""
    one, small = torch.ones(1), torch.rand(64, 64)
    vector, other = torch.rand(1_000_000), torch.rand(1_000_000)
    matrix = torch.rand(1024, 1024)
    square = torch.rand(512, 512)
    index = torch.arange(0, 1024, 2)
    return {
        "add 1": (torch.add, one, one),
        "add 64x64": (torch.add, small, small),
        "add 1M": (torch.add, vector, other),
        "mul scalar 1M": (torch.mul, vector, 3.0),
        "exp 1M": (torch.exp, vector),
        "sigmoid 1M": (torch.sigmoid, vector),
        "where 1M": (torch.where, vector > 0.5, vector, other),
        "add transposed 1024": (torch.add, matrix, matrix.t()),
        "sum 1M": (torch.sum, vector),
        "sum rows 1024": (lambda: torch.sum(matrix, 1),),
        "sum columns 1024": (lambda: torch.sum(matrix, 0),),
        "max rows 1024": (lambda: torch.max(matrix, 1),),
        "softmax 1024": (lambda: torch.softmax(matrix, -1),),
        "sort 1M": (torch.sort, vector),
        "index rows 1024": (lambda: matrix[index],),
        "cat 1024": (lambda: torch.cat([matrix, matrix]),),
        "matmul 64": (torch.matmul, small, small),
        "matmul 512": (torch.matmul, square, square),
        "transpose copy 1024": (lambda: matrix.t().contiguous(),),
    }


def measure(library, pattern, seconds=0.15):
    """Best microseconds of one call, for each case that matches."""
    torch = importlib.import_module(library)
    times = {}
    for name, (function, *arguments) in cases(torch).items():
        if not re.search(pattern, name):
            continue
        best, deadline = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            start = time.perf_counter()
            function(*arguments)
            best = min(best, time.perf_counter() - start)
        times[name] = best * 1e6
    return times


def measure_in_process(library, pattern):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, __file__, "--library", library, "--only", pattern]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path))
    if done.returncode:
        sys.exit(f"[bench] {library} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".", help="regular expression over case names")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write the best times to this file")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.library:
        print(json.dumps(measure(arguments.library, arguments.only)))
        return

    libraries = ["flambeau"] + (["torch"] if importlib.util.find_spec("torch") else [])
    best = {library: {} for library in libraries}
    for _ in range(arguments.rounds):
        for library in libraries:
            for name, value in measure_in_process(library, arguments.only).items():
                best[library][name] = min(value, best[library].get(name, math.inf))

    print(f"{'microseconds':24}" + "".join(f"{library:>12}" for library in libraries) + f"{'ratio':>8}")
    ratios = []
    for name, ours in best["flambeau"].items():
        row = [best[library][name] for library in libraries]
        ratio = ours / row[1] if len(row) > 1 else math.nan
        ratios.append(ratio)
        print(f"{name:24}" + "".join(f"{value:12.2f}" for value in row) + f"{ratio:8.2f}")
    if ratios:
        print(f"geometric mean of ratios {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()
