"""Compiled training follows eager mode: the largest difference of the losses over the steps, for each model.

    python benchmarks/loss_curves.py [--steps 200] [--small] [--double] [MODEL ...]

Both runs start from the same weights and see the same batches. With batch norm and piecewise linear activations a difference
of one bit grows: in single precision an eager ResNet-18 strays from itself by 1e-2 after a hundred steps when one weight
changes by 2e-7. Compiled code follows it because it computes the same bits; where a machine's kernels differ, --double shows
that the mathematics is the same.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import models  # noqa: E402


def curve(torch: Any, name: str, steps: int, small: bool, compiled: bool, double: bool = False) -> list[float]:
    """The losses of a run."""
    task = models.make(torch, name, small)
    dtype = torch.float64 if double else None
    task.model.to(dtype)
    model = torch.compile(task.model) if compiled else task.model
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = task.batch(step)
        loss = task.loss(model(x.to(dtype) if double and x.is_floating_point() else x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def largest_difference(
    torch: Any, name: str, steps: int, small: bool, double: bool = False
) -> tuple[float, list[float]]:
    eager, compiled = (curve(torch, name, steps, small, on, double) for on in (False, True))
    return max(abs(a - b) for a, b in zip(eager, compiled)), eager


def main() -> None:
    import flambeau

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["classifier", "lstm", "resnet18", "gpt"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--double", action="store_true")
    options = parser.parse_args()
    for name in options.models:
        difference, losses = largest_difference(flambeau, name, options.steps, options.small, options.double)
        print(
            f"{name:10} loss {losses[0]:.4f} -> {losses[-1]:.4f}   differs by at most {difference:.1e}   (at most 1e-4)",
            flush=True,
        )


if __name__ == "__main__":
    main()
