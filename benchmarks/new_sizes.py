"""A compiled model called with batch sizes that are new: recorded at first, then made from the plans that are known.

    python benchmarks/new_sizes.py [--blocks 80] [--record benchmarks/results/new_sizes.txt]

Residual blocks with a loss that is a mean, and backward, on one thread. The first four sizes are recorded, with their kernels built or
found; sizes between them take what is printed as `new`, the same sizes again what is printed as `known`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import _C, nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.first, self.second = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        return x + self.second(F.gelu(self.first(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=80)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    fl.set_num_threads(1)
    fl.manual_seed(0)
    model = nn.Sequential(*(Block(16) for _ in range(arguments.blocks)), nn.Linear(16, 10))
    step = fl.compile(lambda x, y: F.mse_loss(model(x), y))

    def run(x: fl.Tensor, y: fl.Tensor) -> float:
        begin = time.perf_counter()
        step(x, y).backward()
        return (time.perf_counter() - begin) * 1e3

    lines = [f"{arguments.blocks} residual blocks of width 16, forward and backward"]
    for rows in (4, 33, 12, 7, 20, 5, 9, 31, 17, 26):
        x, y = fl.randn(rows, 16), fl.randn(rows, 10)
        before = _C._instantiated_graphs()
        new = run(x, y)
        how = "made from known plans" if _C._instantiated_graphs() > before else "recorded"
        known = min(run(x, y) for _ in range(5))
        lines.append(
            f"batch {rows:3}: new {new:9.2f} ms, known {known:6.2f} ms, the difference {new - known:9.2f} ms, {how}"
        )
        print(lines[-1], flush=True)
    if arguments.record:
        arguments.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
