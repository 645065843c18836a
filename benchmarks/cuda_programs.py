"""Sixteen programs that nobody tuned on a GPU: flambeau, PyTorch and JAX, milliseconds of a step and peak memory.

    python benchmarks/cuda_programs.py [--only REGEX] [--libraries flambeau,torch,jax] [--modes eager,default,...] [--json FILE]
    python benchmarks/cuda_programs.py --profile FOLDER [--only REGEX]       kernels of flambeau's steps by their time

Each program of each library is a process of its own. A library's processes compile side by side; then each in turn, alone on
the GPU, measures its steps. Times are medians of device time between events. Memory is the most that the tensors of one mode
held at once. The programs are in `benchmarks/programs`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from programs import NAMES, make, step_of  # noqa: E402

MODES = ("eager", "default", "reduce-overhead")
Step = Callable[[], Any]


# ---------------------------------------------------------------- one program of one library, in a process of its own


def median(torch: Any, step: Step, seconds: float = 0.5, least: int = 12, most: int = 200) -> float:
    """Milliseconds of device time of a step."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    start, times = time.perf_counter(), []
    while len(times) < least or (time.perf_counter() - start < seconds and len(times) < most):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        step()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times)


def wall_median(step: Step, seconds: float = 0.5, least: int = 12) -> float:
    """Milliseconds between the ends of a step and of the next, for a library without events; a step ends when it has run."""
    for _ in range(3):
        step()
    start, times = time.perf_counter(), []
    while len(times) < least or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e3


def prepared(torch: Any, name: str, mode: str) -> tuple[Step, dict[str, Any]]:
    """A step that has run, and what its first calls took."""
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    step = step_of(torch, make(torch, name), mode)
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    memory = torch.cuda.max_memory_allocated() - held
    torch.cuda.empty_cache()  # for the processes beside this one
    return step, {"first call, s": first, "GB": memory / 1e9}


def run_program(library: str, name: str, modes: list[str]) -> None:
    """Compiles all modes, says so, waits for its turn, measures, and prints a line of JSON for each mode."""
    ready: list[tuple[dict[str, Any], Step | None]] = []
    module = importlib.import_module("programs.in_jax" if library == "jax" else library)
    for mode in ["jit"] if library == "jax" else modes:
        result: dict[str, Any] = {"program": name, "library": library, "mode": mode}
        step = None
        try:
            step, facts = module.prepared(name) if library == "jax" else prepared(module, name, mode)
            result |= facts
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {error}"[:2000]
        ready.append((result, step))
    print("ready", flush=True)
    sys.stdin.readline()
    for result, step in ready:
        if step is not None:
            try:
                result["ms"] = wall_median(step) if library == "jax" else median(module, step)
            except Exception as error:
                result["error"] = f"{type(error).__name__}: {error}"[:2000]
        print(json.dumps(result), flush=True)


def profile(folder: str, only: str, mode: str) -> None:
    """The kernels of flambeau's steps, longest first, with PyTorch's profiler where it is installed."""
    import flambeau

    try:
        torch = importlib.import_module("torch")
    except ImportError:
        sys.exit("--profile expects PyTorch, whose profiler lists the kernels")
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        if not re.search(only, name):
            continue
        step = step_of(flambeau, make(flambeau, name), mode)
        for _ in range(3):
            step()
        flambeau.cuda.synchronize()
        torch.cuda.init()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
            for _ in range(3):
                step()
            flambeau.cuda.synchronize()
        times: dict[str, list[float]] = {}
        for event in recorded.events():
            entry = times.setdefault(event.name, [0, 0.0])
            entry[0] += 1
            entry[1] += event.device_time
        lines = [f"{sum(t for _, t in times.values()) / 3e3:9.3f} ms a step"]
        for kernel, (count, total) in sorted(times.items(), key=lambda item: -item[1][1]):
            lines.append(f"{total / 3e3:9.3f} ms {count / 3:7.1f} x  {kernel[:160]}")
        pathlib.Path(folder, name.replace(" ", "_") + ".txt").write_text("\n".join(lines) + "\n")
        print(name, lines[0], flush=True)


# ---------------------------------------------------------------- all programs


def run_library(library: str, names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Starts a process for each program, lets all compile, and then measure one after the other."""
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), str(FOLDER), os.environ.get("PYTHONPATH", "")]),
            "FLAMBEAU_CACHE_DIR": cache,
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "TORCHINDUCTOR_COMPILE_THREADS": "2",
            "TRITON_CACHE_DIR": cache,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "OMP_NUM_THREADS": "2",
        }
        command = [sys.executable, __file__, "--modes", options.modes, "--program"]
        children = [
            subprocess.Popen([*command, f"{library}:{name}"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for name in names
        ]  # fmt: skip
        limit = threading.Timer(options.seconds, lambda: [child.kill() for child in children])
        limit.start()
        waiting = [child for child in children if any(line.strip() == "ready" for line in child.stdout or ())]
        for child in waiting:
            output, _ = child.communicate("go\n")
            for line in output.splitlines():
                if line.startswith("{"):
                    results.append(json.loads(line))
                    print(line, flush=True)
        limit.cancel()
        for child in children:
            child.kill()
    return results


def best(results: list[dict[str, Any]], name: str, libraries: tuple[str, ...]) -> float:
    times = [r["ms"] for r in results if r["program"] == name and r["library"] in libraries and "ms" in r]
    return min(times, default=math.nan)


def table(results: list[dict[str, Any]]) -> str:
    """Times and memory as a table in Markdown, the ratio of the best modes, and its geometric mean."""
    by_case = {(r["program"], r["library"], r["mode"]): r for r in results}

    def cells(name: str, library: str, key: str, form: str) -> str:
        values = (by_case.get((name, library, mode), {}).get(key) for mode in MODES)
        return " / ".join("-" if v is None else format(v, form) for v in values)

    lines = [
        "| ms a step | flambeau eager / default / reduce-overhead | PyTorch eager / default / reduce-overhead | JAX | best / best peer "
        "| GB flambeau | GB PyTorch |",
        "|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name in dict.fromkeys(r["program"] for r in results):
        ratio = best(results, name, ("flambeau",)) / best(results, name, ("torch", "jax"))
        ratios += [] if math.isnan(ratio) else [ratio]
        jax = by_case.get((name, "jax", "jit"), {}).get("ms")
        lines.append(
            f"| {name} | {cells(name, 'flambeau', 'ms', '.3f')} | {cells(name, 'torch', 'ms', '.3f')} | "
            f"{'' if jax is None else format(jax, '.3f')} | {ratio:.2f} | {cells(name, 'flambeau', 'GB', '.2f')} | "
            f"{cells(name, 'torch', 'GB', '.2f')} |"
        )
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"\ngeometric mean {mean:.3f}, worst {max(ratios):.2f}, of {len(ratios)} programs")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--libraries", default="flambeau,torch,jax")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=500, help="for one library")
    parser.add_argument("--together", type=int, default=8, help="programs that compile side by side")
    parser.add_argument("--json")
    parser.add_argument("--beside", help="results of an earlier run, for the libraries that do not run now")
    parser.add_argument("--profile", metavar="FOLDER")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        library, name = options.program.split(":")
        run_program(library, name, options.modes.split(","))
        return
    if options.profile:
        profile(options.profile, options.only, options.modes.split(",")[0])
        return
    results: list[dict[str, Any]] = []
    libraries = options.libraries.split(",")
    if options.beside:
        earlier = json.loads(pathlib.Path(options.beside).read_text())
        results += [r for r in earlier if r["library"] not in libraries]
    for library in libraries:
        names = [n for n in NAMES if re.search(options.only, n)]
        if library == "jax":
            from programs.in_jax import NAMES as IN_JAX

            names = [n for n in names if n in IN_JAX]
        for at in range(0, len(names), options.together):
            results += run_library(library, names[at : at + options.together], options)
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print(table(results))


if __name__ == "__main__":
    main()
