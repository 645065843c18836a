"""Steps and kernels over threads beside PyTorch's best mode, in one interleaved run: see benchmarks/threads.py.

Each workload has a process of each library and mode, all started at once, so that both libraries compile on all cores before
anything is timed. Then the processes are asked in turn, and the others sleep meanwhile. Compiled steps of PyTorch have the number of
threads that they were compiled for, which is the largest; its eager mode counts at its best number.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = ("flambeau", "torch")
SETTLED = 0.03  # seconds after which threads that spin have gone to sleep


class Plan(NamedTuple):
    threads: list[int]
    rounds: int  # after the first, which goes through all numbers of threads
    seconds: float  # of one measurement
    compiling: float  # seconds after which workloads that are not compiled are left out
    end: float  # of the whole, by time.monotonic()


class Process:
    """One library with the workloads it was asked for: answers one line of JSON to each."""

    def __init__(self, library: str, cache: str) -> None:
        environment = {
            **os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch", "FLAMBEAU_CACHE_DIR": f"{cache}/flambeau",
            "TORCHINDUCTOR_COMPILE_THREADS": "2", "TORCHINDUCTOR_VEC_ISA_OK": "1", "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        command = [sys.executable, str(HERE / "threads.py"), "serve", library]
        self.library = library
        self.errors = pathlib.Path(f"{cache}/{library}.{id(self)}.errors")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, bufsize=0
            )

    def ask(self, **request: Any) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says why

    def answer(self, until: float) -> dict[str, Any]:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            self.close()
            return {"error": "took too long"}
        text = self.process.stdout.readline()
        if text:
            reply: dict[str, Any] = json.loads(text)
            return reply
        return {"error": (self.errors.read_text().strip().splitlines() or ["no output"])[-1][:300]}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


Row = dict[tuple[str, str, int], float]  # microseconds, by library, mode and threads


class Comparison:
    def __init__(self, plan: Plan, lines: TextIO) -> None:
        self.plan, self.lines = plan, lines
        self.rows: dict[str, Row] = {}

    def measure(self, process: Process, name: str, mode: str, threads: int) -> None:
        if process.process.poll() is not None or time.monotonic() > self.plan.end:
            return
        time.sleep(SETTLED)
        process.ask(name=name, mode=mode, threads=threads, seconds=self.plan.seconds)
        reply = process.answer(min(self.plan.end, time.monotonic() + 60))
        self.write(library=process.library, name=name, mode=mode, threads=threads, **reply)
        if "us" in reply:
            row, key = self.rows.setdefault(name, {}), (process.library, mode, threads)
            row[key] = min(reply["us"], row.get(key, math.inf))

    def write(self, **line: Any) -> None:
        self.lines.write(json.dumps(line) + "\n")
        self.lines.flush()

    def compare(self, name: str, ways: list[tuple[Process, str]]) -> None:
        """All numbers of threads once; then the largest, and the best of the others, in turns."""
        most = max(self.plan.threads)

        def counts(process: Process, mode: str) -> list[int]:
            return [most] if (process.library, mode) == ("torch", "compile") else self.plan.threads

        for threads in sorted(self.plan.threads, reverse=True):
            for process, mode in ways:
                if threads in counts(process, mode):
                    self.measure(process, name, mode, threads)
        row = self.rows.get(name, {})
        for _ in range(self.plan.rounds):
            for process, mode in ways:
                self.measure(process, name, mode, most)
            for process, mode in ways:
                fewer = {n: row.get((process.library, mode, n), math.inf) for n in counts(process, mode) if n < most}
                if fewer and min(fewer.values()) < math.inf:
                    self.measure(process, name, mode, min(fewer, key=lambda n: fewer[n]))


def best(row: Row, library: str, mode: str | None = None, threads: range = range(1, 1 << 20)) -> float | None:
    times = [us for (who, how, n), us in row.items() if who == library and mode in (how, None) and n in threads]
    return min(times, default=None)


def mean(ratios: list[float]) -> str:
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, worst {max(ratios):.2f}" if ratios else "-"


def summary(rows: dict[str, Row], most: int) -> Iterator[str]:
    """What issue-sized tables need: microseconds, the ratio to PyTorch's best mode, and what the most threads do."""
    compiled, eager, fewer = [], [], []
    yield (
        f"{'us, ' + str(most) + ' threads':24} {'compiled':>9} {'eager':>9} | torch {'compiled':>9} {'eager':>9} | "
        + ("compiled  eager | most threads / best of fewer")
    )
    for name, row in rows.items():
        ours = {mode: row.get(("flambeau", mode, most)) for mode in ("compile", "eager", "kernel")}
        theirs = {mode: best(row, "torch", mode) for mode in ("compile", "eager", "kernel")}
        rival = best(row, "torch")
        smaller = {mode: best(row, "flambeau", mode, range(1, most)) for mode in ours}

        def shown(value: float | None, form: str) -> str:
            return format(value, form) if value is not None else "-".rjust(int(form.split(".")[0]))

        def ratio(a: float | None, b: float | None) -> float | None:
            return a / b if a and b else None

        ratios = [ratio(ours["compile"], rival), ratio(ours["eager"] or ours["kernel"], theirs["eager"] or rival)]
        growth = [ratio(ours[mode], smaller[mode]) for mode in ("compile", "eager", "kernel")]
        for value, into in ((ratios[0], compiled), (ratios[1], eager)):
            if value:
                into.append(value)
        fewer += [value for value in growth if value]
        yield (
            f"{name[:24]:24} {shown(ours['compile'], '9.1f')} {shown(ours['eager'] or ours['kernel'], '9.1f')} |       "
            f"{shown(theirs['compile'], '9.1f')} {shown(theirs['eager'] or theirs['kernel'], '9.1f')} | "
            f"{shown(ratios[0], '8.2f')} {shown(ratios[1], '6.2f')} | "
            + " ".join(f"{value:.2f}" for value in growth if value)
        )
    yield f"compiled against PyTorch's best mode: geometric mean {mean(compiled)} ({len(compiled)} workloads)"
    yield f"eager against eager: geometric mean {mean(eager)}; most threads against the best of fewer: {mean(fewer)}"


def compare_steps(names: list[str], plan: Plan, eager: str, cache: str, lines: TextIO) -> dict[str, Row]:
    """Whole steps: eager and compiled, in processes that were prepared all at once."""
    begun, most = time.monotonic(), max(plan.threads)

    def ways(name: str) -> list[tuple[str, str]]:
        all_ways = [(library, mode) for mode in ("compile", "eager") for library in LIBRARIES]
        return [way for way in all_ways if way != ("torch", "compile") or not re.search(eager, name)]

    ready = {(name, *way): Process(way[0], cache) for name in names for way in ways(name)}
    for (name, _, mode), process in ready.items():
        process.ask(name=name, mode=mode, threads=most, seconds=0)
    comparison = Comparison(plan, lines)
    for (name, library, mode), process in ready.items():
        reply = process.answer(begun + plan.compiling)
        taken = round(time.monotonic() - begun, 1)
        comparison.write(library=library, name=name, mode=mode, prepared=taken, **reply)
        if "error" in reply:
            print(f"{library} {name} {mode}: {reply['error']}", flush=True)
    print(f"compiled after {time.monotonic() - begun:.0f} s", flush=True)
    for name in names:
        processes = [(ready[name, *way], way[1]) for way in ways(name)]
        comparison.compare(name, processes)
        for process, _ in processes:
            process.close()
    return comparison.rows


def compare_kernels(names: list[str], plan: Plan, cache: str, lines: TextIO) -> dict[str, Row]:
    processes = [Process(library, cache) for library in LIBRARIES]
    comparison = Comparison(plan, lines)
    for name in names:
        comparison.compare(name, [(process, "kernel") for process in processes])
    for process in processes:
        process.close()
    return comparison.rows


def efficiencies(rows: dict[str, Row], most: int) -> Iterator[str]:
    """Of products: the time of one thread over that of all of them, for each."""
    for name, row in rows.items():
        for library in LIBRARIES:
            one, all_ = row.get((library, "kernel", 1)), row.get((library, "kernel", most))
            if re.match(r"product \d+$", name) and one and all_:
                rate = 2e-6 * int(name.split()[1]) ** 3 / all_
                yield f"{name} {library}: {one / all_ / most:.0%} of {most} x one thread, {rate:.2f} TFLOP/s"


def run(asked: Any, steps: list[str], kernels: list[str], cache: str) -> None:
    threads = [int(count) for count in asked.threads.split(",")]
    plan = Plan(threads, asked.rounds, asked.seconds, asked.compiling, time.monotonic() + asked.limit)
    with open(asked.out, "a") as lines:
        if kernels:
            rows = compare_kernels(kernels, plan, cache, lines)
            print(*summary(rows, max(threads)), *efficiencies(rows, max(threads)), sep="\n", flush=True)
        if steps:
            print(*summary(compare_steps(steps, plan, asked.eager, cache, lines), max(threads)), sep="\n", flush=True)
