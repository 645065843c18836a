"""Eager flambeau beside PyTorch, as ratios: below 1 flambeau is faster.

    python benchmarks/run.py [--only REGEX] [--seconds 0.3] [--json FILE]

Both libraries run in this process and take turns, call by call, so that noise falls on both; the best time of each
counts. Import time and memory are measured in processes of their own. Groups carry the ratio they are meant to stay
under as a geometric mean, and where it matters a bound for the worst of them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
Cases = dict[str, Callable[[], Any]]


def tiny(torch: Any) -> Cases:
    a, b = torch.ones(1), torch.ones(1)
    return {"a + b": lambda: a + b, "a.view(-1)": lambda: a.view(-1), "a[0]": lambda: a[0]}


def million(torch: Any) -> Cases:
    F = torch.nn.functional
    torch.manual_seed(0)
    x, y = torch.randn(1000, 1000), torch.randn(1000, 1000)
    mask, w, target = x > 0, torch.randn(1000), torch.arange(1000)
    cases: Cases = {
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "exp": lambda: torch.exp(x),
        "tanh": lambda: torch.tanh(x),
        "gelu": lambda: F.gelu(x),
        "where": lambda: torch.where(mask, x, y),
        "softmax dim 0": lambda: torch.softmax(x, 0),
        "softmax dim 1": lambda: torch.softmax(x, 1),
        "layer_norm": lambda: F.layer_norm(x, (1000,), w, w),
        "cross_entropy": lambda: F.cross_entropy(x, target),
    }
    for name in ("sum", "max", "mean"):
        for dim in (None, 0, 1):
            fn = getattr(torch, name)
            cases[f"{name} dim {dim}"] = (lambda fn=fn: fn(x)) if dim is None else (lambda fn=fn, dim=dim: fn(x, dim))
    return cases


def strided(torch: Any) -> Cases:
    torch.manual_seed(0)
    x, y, row = torch.randn(1000, 1000), torch.randn(1000, 1000), torch.randn(1000)
    images = torch.randn(16, 64, 32, 32)
    last = images.contiguous(memory_format=torch.channels_last)
    bias = torch.randn(64)
    return {
        "transposed + plain": lambda: x.t() + y,
        "exp of transposed": lambda: torch.exp(x.t()),
        "copy of transposed": lambda: x.t().contiguous(),
        "expanded row": lambda: x + row,
        "expanded column": lambda: x * row.unsqueeze(1),
        "every second": lambda: x[:, ::2] * y[:, ::2],
        "channels-last add": lambda: last + last,
        "channels-last + channel bias": lambda: last + bias.view(1, -1, 1, 1),
        "channels-last relu": lambda: torch.relu(last),
        "channels-last to plain": lambda: last.contiguous(),
        "sum of transposed": lambda: x.t().sum(0),
    }


def matrices(torch: Any) -> Cases:
    F = torch.nn.functional
    torch.manual_seed(0)
    cases: Cases = {}
    for m, k, n in ((32, 100, 50), (32, 784, 256), (1024, 256, 1024), (1000, 1000, 1000)):
        a, b = torch.randn(m, k), torch.randn(k, n)
        cases[f"matmul {m}x{k}x{n}"] = lambda a=a, b=b: a @ b
    a, b = torch.randn(32, 128, 64), torch.randn(32, 64, 128)
    cases["bmm 32x128x64x128"] = lambda: torch.bmm(a, b)
    for channels, size in ((64, 32), (128, 16), (256, 8), (512, 4)):
        x, w = torch.randn(16, channels, size, size), torch.randn(channels, channels, 3, 3)
        cases[f"conv2d 3x3 {channels} channels"] = lambda x=x, w=w: F.conv2d(x, w, padding=1)
    return cases


def optimizers(torch: Any) -> Cases:
    torch.manual_seed(0)

    def parameters(count: int, *shape: int) -> list[Any]:
        drawn = [torch.randn(*shape).requires_grad_() for _ in range(count)]
        for p in drawn:
            p.grad = torch.randn(*shape)
        return drawn

    small, large = parameters(200, 32, 32), parameters(4, 1000, 1000)
    grads = [p.grad for p in small]
    optim = torch.optim
    return {
        "Adam, 200 of 1024": optim.Adam(small).step,
        "AdamW, 200 of 1024": optim.AdamW(small).step,
        "SGD, 200 of 1024": optim.SGD(small, lr=1e-3, momentum=0.9).step,
        "RMSprop, 200 of 1024": optim.RMSprop(small).step,
        "Adam, 4 million": optim.Adam(large).step,
        "SGD, 4 million": optim.SGD(large, lr=1e-3, momentum=0.9).step,
        "norms, 200 of 1024": lambda: torch._foreach_norm(grads),
        "scaling, 200 of 1024": lambda: torch._foreach_mul_(grads, 1.0),
    }


# name -> (cases, geometric mean at most, worst at most)
GROUPS: dict[str, tuple[Callable[[Any], Cases], float, float]] = {
    "tiny tensors": (tiny, 0.35, 0.35),
    "one million elements": (million, 0.95, 1.15),
    "strided and broadcast": (strided, 1.0, math.inf),
    "matrices and convolutions": (matrices, 1.0, math.inf),
    "optimizers": (optimizers, 0.3, 1.0),
}


def best_times(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Best seconds a call of each, taking turns."""
    for _ in range(3):
        ours(), theirs()
    start = time.perf_counter()
    ours(), theirs()
    repeat = max(1, int(200e-6 / max(time.perf_counter() - start, 1e-7)))  # so that reading the clock does not count
    best = [math.inf, math.inf]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, fn in enumerate((ours, theirs)):
            t = time.perf_counter()
            for _ in range(repeat):
                fn()
            best[i] = min(best[i], (time.perf_counter() - t) / repeat)
    return best[0], best[1]


def process_cost(library: str) -> tuple[float, float]:
    """Seconds to import a library and megabytes resident afterwards."""
    code = (
        f"import time; t = time.perf_counter(); import {library}; t = time.perf_counter() - t\n"
        "kb = [l.split()[1] for l in open('/proc/self/status') if l.startswith('VmRSS')][0]\n"
        "print(t, int(kb) / 1024)"
    )
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    runs = []
    for _ in range(5):
        out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        seconds, megabytes = map(float, out.stdout.split())
        runs.append((seconds, megabytes))
    return min(r[0] for r in runs), min(r[1] for r in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regex over 'group: case'")
    parser.add_argument("--seconds", type=float, default=0.3, help="time spent on each case")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    args = parser.parse_args()
    import torch

    import flambeau

    torch.set_num_threads(os.cpu_count() or 1)
    flambeau.set_num_threads(os.cpu_count() or 1)
    figures: dict[str, dict[str, list[float]]] = {}
    for group, (make, mean_bound, worst_bound) in GROUPS.items():
        ours, theirs = make(flambeau), make(torch)
        rows = {}
        for name in ours:
            if re.search(args.only, f"{group}: {name}"):
                rows[name] = list(best_times(ours[name], theirs[name], args.seconds))
        if not rows:
            continue
        figures[group] = rows
        print(f"\n{group}")
        for name, (a, b) in rows.items():
            print(f"  {name:32} {a * 1e6:10.2f} us  torch {b * 1e6:10.2f} us   x {a / b:.2f}")
        ratios = [a / b for a, b in rows.values()]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        bounds = f"at most {mean_bound}" + (f", worst at most {worst_bound}" if worst_bound < math.inf else "")
        print(f"  geometric mean x {mean:.2f}, worst x {max(ratios):.2f}   ({bounds})")
    if re.search(args.only, "import"):
        (t1, m1), (t2, m2) = process_cost("flambeau"), process_cost("torch")
        figures["process"] = {"import": [t1, t2], "memory": [m1, m2]}
        print(f"\nimport  {t1 * 1e3:.0f} ms, torch {t2 * 1e3:.0f} ms   x {t1 / t2:.2f}   (at most 0.1)")
        print(f"memory  {m1:.0f} MB, torch {m2:.0f} MB   x {m1 / m2:.2f}   (at most 0.5)")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
