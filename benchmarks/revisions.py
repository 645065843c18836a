"""Two builds of this project beside each other: overheads, compile times and step times, in one interleaved run.

    python benchmarks/revisions.py ../old-checkout . --json benchmarks/results/revisions.json

Each checkout is built in its tree (`make dev`). Every figure is measured in a fresh process of each checkout in turn, the
smallest of the rounds counts, and the last column is new / old. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

FIGURES = {
    "import, ms": """
import time; start = time.perf_counter(); import flambeau; print((time.perf_counter() - start) * 1e3)
""",
    "a + b of one element, us": """
import time, flambeau as fl
a, b = fl.ones(1), fl.ones(1)
def loop(n):
    start = time.perf_counter()
    for _ in range(n): a + b
    return (time.perf_counter() - start) / n * 1e6
loop(1000); print(min(loop(20000) for _ in range(15)))
""",
    "linear with its backward, us": """
import time, flambeau as fl
layer, x = fl.nn.Linear(16, 16), fl.randn(4, 16)
def loop(n):
    start = time.perf_counter()
    for _ in range(n): layer(x).sum().backward()
    return (time.perf_counter() - start) / n * 1e6
loop(100); print(min(loop(2000) for _ in range(15)))
""",
    "sin of a million elements, us": """
import time, flambeau as fl
x = fl.randn(1 << 20)
def loop(n):
    start = time.perf_counter()
    for _ in range(n): x.sin()
    return (time.perf_counter() - start) / n * 1e6
loop(10); print(min(loop(50) for _ in range(10)))
""",
    "tiny compiled call, us": """
import time, flambeau as fl
f, x = fl.compile(lambda x: (x * 2).sin() + 1), fl.randn(16)
def loop(n):
    start = time.perf_counter()
    for _ in range(n): f(x)
    return (time.perf_counter() - start) / n * 1e6
loop(1000); print(min(loop(20000) for _ in range(15)))
""",
    "cold compile of an MLP step, s": """
import time, flambeau as fl
from flambeau import nn
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
x = fl.randn(32, 64)
step = fl.compile(lambda x: model(x).square().mean())
start = time.perf_counter(); step(x).backward(); print(time.perf_counter() - start)
""",
    "new batch size of 20 blocks with backward, ms": """
import time, flambeau as fl
from flambeau import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__(); self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)
    def forward(self, x): return x + self.down(fl.nn.functional.gelu(self.up(self.norm(x))))
model = fl.compile(nn.Sequential(*[Block() for _ in range(20)]))
def step(n):
    start = time.perf_counter(); model(fl.randn(n, 64)).sum().backward(); return (time.perf_counter() - start) * 1e3
for n in (8, 128, 16, 96, 48, 120): step(n)
print(min(step(n) for n in (24, 40, 56, 64, 72, 88)))
""",
}
# A step of one of the workloads of compare.py, in milliseconds.
STEP = """
import sys; sys.path.insert(0, {folder!r})
import compare, flambeau
wrap = flambeau.compile if {mode!r} == "compiled" else lambda f: f
print(compare.timed(compare.workloads(flambeau, wrap)[{name!r}](), 2.0)[1] * 1e3)
"""
STEPS = (
    "mlp training", "classifier training", "gpt inference", "gpt training", "gpt whole step", "resnet18 inference",
    "lstm training", "pointwise", "layer norm and gelu", "attention by hand",
)  # fmt: skip


def programs() -> dict[str, str]:
    """The program of each figure."""
    folder = os.path.dirname(os.path.abspath(__file__))
    steps = {
        f"{name}, {mode}, ms": STEP.format(folder=folder, name=name, mode=mode)
        for name in STEPS
        for mode in ("eager", "compiled")
    }
    return FIGURES | steps


def measured(checkout: str, program: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, PYTHONPATH=os.path.abspath(checkout), FLAMBEAU_CACHE_DIR=cache)
        # In the checkout's folder: `-c` looks for modules in the current one before anywhere else.
        result = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=checkout, capture_output=True, text=True
        )
    if result.returncode:
        raise SystemExit(f"{checkout}: {result.stderr[-2000:]}")
    return float(result.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = {}
    for name, program in programs().items():
        if options.only not in name:
            continue
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.rounds):
            for checkout, row in zip((options.old, options.new), times):
                row.append(measured(checkout, program))
        old, new = min(times[0]), min(times[1])
        rows[name] = {"old": old, "new": new, "ratio": new / old}
        print(f"{name:50} {old:10.3f} {new:10.3f} {new / old:6.2f}", flush=True)
    print(f"geometric mean {math.exp(sum(math.log(r['ratio']) for r in rows.values()) / len(rows)):.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
