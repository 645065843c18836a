"""Time over the number of threads: parallel regions, kernels and whole steps, beside PyTorch.

    python benchmarks/threads.py measure LIBRARY [--threads 1,2,4,8,16] [--only REGEX] [--modes eager,compile] > lines.json
    python benchmarks/threads.py table FILE...
    python benchmarks/threads.py compare --out LINES [--only REGEX] [--modes step,kernel] [--limit SECONDS]

`measure` prints one JSON object a line: library, name, mode, threads, best microseconds. `table` puts files of several
libraries side by side. Each library runs in a process of its own; files of several rounds may be given, the best counts.
`compare` compiles for both libraries on all cores first, then measures them in turns (thread_compare.py).
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
sys.path.append(str(HERE.parent))  # where no other build is asked for

import thread_compare  # noqa: E402
import thread_workloads  # noqa: E402


def best_time(run: Callable[[], Any], seconds: float) -> float:
    """The shortest mean of some ten groups of calls."""
    run()
    start = time.perf_counter()
    run()
    one = max(time.perf_counter() - start, 1e-7)
    count = max(1, int(seconds / 12 / one))
    best, end = one if one > seconds / 12 else math.inf, time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        for _ in range(count):
            run()
        now = time.perf_counter()
        best = min(best, (now - start) / count)
        if now > end:
            return best


def shared_steps(torch: Any, wrap: Any) -> dict[str, Callable[..., Any]]:
    """The training and inference steps of benchmarks/compare.py."""
    compare = importlib.import_module("compare")
    return {name: lambda *_, make=make: make() for name, make in compare.workloads(torch, wrap).items()}


def measure(library: str, threads: list[int], only: str, modes: list[str], seconds: float, label: str) -> None:
    torch = importlib.import_module(library)
    if library != "torch":
        sys.modules["torch"] = torch
    wanted = re.compile(only)

    def report(name: str, mode: str, run: Callable[[], Any]) -> None:
        for count in threads:
            torch.set_num_threads(count)
            before = torch._C._thread_counters() if hasattr(torch._C, "_thread_counters") else {}
            taken = best_time(run, seconds)
            line = {
                "library": label or library,
                "name": name,
                "mode": mode,
                "threads": count,
                "us": round(taken * 1e6, 2),
            }
            if before:
                after = torch._C._thread_counters()
                line["counters"] = {key: after[key] - before[key] for key in after}
            print(json.dumps(line), flush=True)

    def attempt(name: str, mode: str, make: Callable[[], Callable[[], Any]]) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(max(threads))
        try:
            report(name, mode, make())
        except Exception as error:  # a measurement that fails is a line of the result
            print(
                json.dumps({"library": label or library, "name": name, "mode": mode, "error": repr(error)[:300]}),
                flush=True,
            )

    if "kernel" in modes:
        for name, make in thread_workloads.KERNELS(torch).items():
            if wanted.search(name):
                attempt(name, "kernel", make)
    for mode in ("eager", "compile"):
        if mode not in modes:
            continue
        wrap = torch.compile if mode == "compile" else lambda f: f
        steps = {**thread_workloads.STEPS, **shared_steps(torch, wrap)}
        for name, make_step in steps.items():
            if wanted.search(name):
                attempt(name, mode, lambda make_step=make_step, wrap=wrap: make_step(torch, wrap))


def timed(torch: Any, run: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Microseconds of a call, and the share of all calls' time that they waited for other threads."""
    counters = getattr(torch._C, "_thread_counters", dict)
    before, start = counters(), time.perf_counter()
    best = best_time(run, seconds)
    taken, after = time.perf_counter() - start, counters()
    waited = {"waited": round((after["wait_ns"] - before["wait_ns"]) * 1e-9 / taken, 3)} if before else {}
    return {"us": round(best * 1e6, 2), **waited}


def serve(library: str) -> None:
    """Answers requests, each a line of JSON: the time of a workload with a number of threads; 0 seconds prepare it."""
    torch = importlib.import_module(library)
    if library != "torch":
        sys.modules["torch"] = torch
    answers = os.fdopen(os.dup(1), "w")
    runs: dict[tuple[str, str], Callable[[], Any]] = {}
    os.dup2(2, 1)  # whatever a library prints is no answer

    def prepared(name: str, mode: str, threads: int) -> Callable[[], Any]:
        if (name, mode) not in runs:
            torch.manual_seed(0)
            torch.set_num_threads(1)  # many processes do this at a time
            if mode == "kernel":
                runs[name, mode] = thread_workloads.KERNELS(torch)[name]()
            else:
                wrap = torch.compile if mode == "compile" else lambda f: f
                runs[name, mode] = {**thread_workloads.STEPS, **shared_steps(torch, wrap)}[name](torch, wrap)
        torch.set_num_threads(threads)
        return runs[name, mode]

    for text in sys.stdin:
        asked = json.loads(text)
        try:
            run, reply = prepared(asked["name"], asked["mode"], asked["threads"]), {}
            if asked["seconds"]:
                reply = timed(torch, run, asked["seconds"])
            elif asked["mode"] == "compile":
                run()
        except Exception as error:  # a measurement that fails is an answer, too
            reply = {"error": repr(error)[:300]}
        print(json.dumps(reply), file=answers, flush=True)


def compare(asked: argparse.Namespace) -> None:
    import flambeau

    wanted, modes = re.compile(asked.only), asked.modes.split(",")
    steps = [*thread_workloads.STEPS, *shared_steps(flambeau, lambda f: f)] if "step" in modes else []
    kernels = [*thread_workloads.KERNELS(flambeau)] if "kernel" in modes else []
    with tempfile.TemporaryDirectory(prefix="flambeau-threads-") as cache:
        thread_compare.run(asked, list(filter(wanted.search, steps)), list(filter(wanted.search, kernels)), cache)


def table(files: list[str]) -> None:
    times: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    libraries: list[str] = []
    for file in files:
        for text in pathlib.Path(file).read_text().splitlines():
            line = json.loads(text)
            if "us" not in line:
                print(f"{line['library']} {line['name']} {line['mode']}: {line['error']}")
                continue
            if line["library"] not in libraries:
                libraries.append(line["library"])
            row = times.setdefault((line["mode"], line["name"]), {}).setdefault(line["library"], {})
            row[line["threads"]] = min(line["us"], row.get(line["threads"], math.inf))
    for (mode, name), row in times.items():
        print(f"{mode:8} {name}")
        for library in libraries:
            if library in row:
                cells = "  ".join(f"{count}: {us:9.1f}" for count, us in sorted(row[library].items()))
                print(f"    {library:12} {cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("measure")
    measured.add_argument("library")
    measured.add_argument("--threads", default="1,2,4,8,16")
    measured.add_argument("--only", default=".")
    measured.add_argument("--modes", default="kernel,eager,compile")
    measured.add_argument("--seconds", type=float, default=0.1)
    measured.add_argument("--label", default="")
    commands.add_parser("table").add_argument("files", nargs="+")
    compared = commands.add_parser("compare")
    compared.add_argument("--out", required=True, help="lines of JSON are added to this file")
    compared.add_argument("--threads", default="1,2,4,8,16")
    compared.add_argument("--only", default=".")
    compared.add_argument("--modes", default="step")
    compared.add_argument("--eager", default="^$", help="workloads that PyTorch does not compile, to spare time")
    compared.add_argument("--rounds", type=int, default=2)
    compared.add_argument("--seconds", type=float, default=0.1, help="of one measurement")
    compared.add_argument("--compiling", type=float, default=200, help="seconds for compiling everything")
    compared.add_argument("--limit", type=float, default=600, help="seconds for everything")
    commands.add_parser("serve").add_argument("library")
    asked = parser.parse_args()
    if asked.command == "table":
        return table(asked.files)
    if asked.command == "compare":
        return compare(asked)
    if asked.command == "serve":
        return serve(asked.library)
    threads = [int(count) for count in asked.threads.split(",")]
    measure(asked.library, threads, asked.only, asked.modes.split(","), asked.seconds, asked.label)


if __name__ == "__main__":
    main()
