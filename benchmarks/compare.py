"""Whole workloads beside PyTorch: eager and compiled, each in a process of its own, in one interleaved run.

    python benchmarks/compare.py [--only REGEX] [--rounds 2] [--seconds 4] [--json FILE] [--cold]

Rounds go through both libraries and both modes in turn, so that noise falls on all alike; the best round counts. Ratios
below 1 mean that flambeau is faster; compiled steps are compared with the faster of PyTorch's two modes. `--cold` empties
both caches of compiled code before each process of the first round, so that its first calls compile. Each process also says
how long its import took and how much memory it held then.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import models  # noqa: E402

WAYS = [(library, mode) for library in ("torch", "flambeau") for mode in ("eager", "compile")]
Step = Callable[[], Any]


# ---------------------------------------------------------------------------------------------- workloads


def inference(torch: Any, name: str, wrap: Callable[[Any], Any]) -> Step:
    task = models.make(torch, name)
    model, inputs = wrap(task.model.eval()), task.batch(0)[0]

    def step() -> Any:
        with torch.no_grad():
            return model(inputs)

    return step


def training(torch: Any, name: str, wrap: Callable[[Any], Any]) -> Step:
    """The model is compiled, the loss and the optimizer are not."""
    task = models.make(torch, name)
    model, (inputs, targets) = wrap(task.model.train()), task.batch(0)
    optimizer = torch.optim.Adam(task.model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        task.loss(model(inputs), targets).backward()
        optimizer.step()

    return step


def whole_step(torch: Any, name: str, wrap: Callable[[Any], Any]) -> Step:
    """Forward, backward and the optimizer in one compiled function."""
    task = models.make(torch, name)
    model, (inputs, targets) = task.model.train(), task.batch(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def body(inputs: Any, targets: Any) -> Any:
        loss = task.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = wrap(body)
    return lambda: compiled(inputs, targets)


def function(torch: Any, body: Callable[..., Any], wrap: Callable[[Any], Any], *shapes: tuple[int, ...]) -> Step:
    torch.manual_seed(0)
    inputs, compiled = [torch.randn(*shape) for shape in shapes], wrap(body)

    def step() -> Any:
        with torch.no_grad():
            return compiled(*inputs)

    return step


def workloads(torch: Any, wrap: Callable[[Any], Any]) -> dict[str, Callable[[], Step]]:
    F = torch.nn.functional

    def pointwise(x: Any, y: Any) -> Any:
        return torch.relu(x * 2 + 1).sqrt() * torch.sigmoid(y) - torch.tanh(x) * torch.exp(-y.abs())

    def norm_gelu(x: Any, weight: Any, bias: Any) -> Any:
        return x + F.gelu(F.layer_norm(x, (x.shape[-1],), weight, bias))

    def attention(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v

    heads = (8, 4, 128, 64)
    cases: dict[str, Callable[[], Step]] = {}
    for name in models.NAMES:
        cases[f"{name} inference"] = lambda name=name: inference(torch, name, wrap)
        cases[f"{name} training"] = lambda name=name: training(torch, name, wrap)
    for name in ("mlp", "gpt"):
        cases[f"{name} whole step"] = lambda name=name: whole_step(torch, name, wrap)
    cases["pointwise"] = lambda: function(torch, pointwise, wrap, (1000, 1000), (1000, 1000))
    cases["tiny pointwise"] = lambda: function(torch, pointwise, wrap, (8,), (8,))
    cases["layer norm and gelu"] = lambda: function(torch, norm_gelu, wrap, (1024, 1024), (1024,), (1024,))
    cases["attention by hand"] = lambda: function(torch, attention, wrap, heads, heads, heads)
    return cases


# ---------------------------------------------------------------------------------------------- measuring


def timed(step: Step, seconds: float) -> tuple[float, float]:
    """Seconds of the first call, and of a later one at its best."""
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    step()
    start = time.perf_counter()
    step()
    calls = max(1, int(0.05 / max(time.perf_counter() - start, 1e-6)))
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            step()
        best = min(best, (time.perf_counter() - start) / calls)
    return first, best


def memory_mb() -> float:
    """The most memory that this process has held so far."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def serve(library: str, mode: str, name: str, seconds: float) -> None:
    """Runs a workload in this process, and prints what `measure` reads."""
    start = time.perf_counter()
    torch = importlib.import_module(library)
    imported = {"import_s": time.perf_counter() - start, "import_mb": memory_mb()}
    step = workloads(torch, torch.compile if mode == "compile" else lambda thing: thing)[name]()
    first, best = timed(step, seconds)
    print(json.dumps({**imported, "first_s": first, "step_us": best * 1e6}))


def measure(library: str, mode: str, name: str, cache: str, seconds: float) -> dict[str, Any]:
    """A workload in a process of its own: times, or what went wrong."""
    environment = {
        **os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch", "FLAMBEAU_CACHE_DIR": f"{cache}/flambeau",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, __file__, "--serve", library, mode, name, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:160]}
    times: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return times


def ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def compare(name: str, options: argparse.Namespace, cache: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for count in range(options.rounds):
        for library, mode in WAYS:
            if options.cold and count == 0:
                shutil.rmtree(cache, ignore_errors=True)
            times, before = measure(library, mode, name, cache, options.seconds), row.get(f"{library} {mode}", {})
            for what in times.keys() & before.keys() - {"first_s"}:
                times[what] = min(times[what], before[what])
            row[f"{library} {mode}"] = times | ({"first_s": before["first_s"]} if "first_s" in before else {})
    steps = {way: row[" ".join(way)].get("step_us") for way in WAYS}
    best = min((steps["torch", mode] for mode in ("eager", "compile") if steps["torch", mode]), default=None)
    row["eager ratio"] = ratio(steps["flambeau", "eager"], steps["torch", "eager"])
    row["compile ratio"] = ratio(steps["flambeau", "compile"], best)
    row["first-call ratio"] = ratio(row["flambeau compile"].get("first_s"), row["torch compile"].get("first_s"))
    return row


def machine() -> dict[str, str]:
    """What the times were taken on."""
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "processor": f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def shown(value: float | None, form: str) -> str:
    return format(value, form) if value is not None else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression: workloads whose names it finds")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4, help="of a process, after the first call")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--cold", action="store_true", help="empty both caches before the first round")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve, options.seconds)
        return
    import flambeau

    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="flambeau-compare-") as cache:
        for name in (name for name in workloads(flambeau, flambeau.compile) if re.search(options.only, name)):
            row = rows[name] = compare(name, options, cache)
            times = [f"{way[0]} {way[1]} {shown(row[' '.join(way)].get('step_us'), '.0f')}" for way in WAYS]
            errors = [row[" ".join(way)]["error"] for way in WAYS if "error" in row[" ".join(way)]]
            print(
                f"{name:20} {', '.join(times)} us; eager x{shown(row['eager ratio'], '.2f')}, compiled "
                f"x{shown(row['compile ratio'], '.2f')}, first call x{shown(row['first-call ratio'], '.2f')}",
                *errors,
                flush=True,
            )
    for what in ("eager ratio", "compile ratio", "first-call ratio"):
        known = [row[what] for row in rows.values() if row[what]]
        mean = math.exp(sum(map(math.log, known)) / len(known)) if known else None
        print(f"geometric mean of the {what}s: {shown(mean, '.2f')} over {len(known)} workloads")
    if options.json:
        text = json.dumps({"machine": machine(), "workloads": rows}, indent=1)
        pathlib.Path(options.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
