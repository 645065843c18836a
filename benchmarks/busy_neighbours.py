"""The compiled perceptron's step with other busy processes on the machine, against the quiet machine.

    python benchmarks/busy_neighbours.py [--seconds 3] [--neighbours 2] [--model mlp] [--torch]

Threads that spin at barriers while others have the processor make such steps slower by orders of magnitude.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import models  # noqa: E402


def step_of(torch: Any, model_name: str) -> Any:
    task = models.make(torch, model_name)
    model, optimizer = torch.compile(task.model), torch.optim.Adam(task.model.parameters())
    x, y = task.batch(0)

    def step() -> None:
        loss = task.loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def mean_time(step: Any, seconds: float) -> float:
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        step()
        count += 1
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--neighbours", type=int, default=2)
    parser.add_argument("--model", default="mlp", help="a model of benchmarks/models.py")
    parser.add_argument("--torch", action="store_true", help="measure PyTorch instead")
    options = parser.parse_args()
    step = step_of(importlib.import_module("torch" if options.torch else "flambeau"), options.model)
    for _ in range(20):
        step()
    quiet = mean_time(step, options.seconds)
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.neighbours)]
    try:
        time.sleep(0.5)
        busy = mean_time(step, options.seconds)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    print(f"quiet {quiet * 1e6:.0f} us   busy {busy * 1e6:.0f} us   x {busy / quiet:.1f}   (at most 3)")


if __name__ == "__main__":
    main()
