"""Decoding with weights of eight and four bits on a GPU: the share of a copy's bytes a second that products with few rows reach.

    python benchmarks/cuda_weight_only.py [--json FILE]

Each matrix is multiplied by 1, 4 and 16 rows of bfloat16. A graph replays products with so many copies of the weights that no
cache holds them. The bytes are those of weights and scales.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from cuda_bandwidth import copy_speed, milliseconds

import flambeau as fl

SHAPES = [(4096, 4096), (14336, 4096), (4096, 14336), (2048, 2048)]
GROUP = 128
CACHES = 512 << 20  # bytes of weights that are read before any is read again


def products(n: int, k: int, bits: int, rows: int) -> tuple[Callable[[], None], int]:
    """A function that multiplies by each of many matrices, and the bytes of those."""
    x = fl.randn(rows, k, device="cuda").bfloat16()
    count = max(CACHES // (n * k * bits // 8), 2)
    if bits == 8:
        weights = [fl.randint(-127, 128, (n, k), device="cuda").to(fl.int8) for _ in range(count)]
        scales = [fl.rand(n, device="cuda").bfloat16() for _ in range(count)]
    else:
        numbers = [fl.randint(0, 16, (n, k), device="cuda").int() for _ in range(2)]
        packed = [fl.ops.aten._convert_weight_to_int4pack_for_cpu(some, 2) for some in numbers]
        weights = [packed[i % 2].clone() for i in range(count)]
        scales = [fl.rand(k // GROUP, n, 2, device="cuda").bfloat16() for _ in range(count)]

    def run() -> None:
        for weight, scale in zip(weights, scales):
            if bits == 8:
                fl.ops.aten._weight_int8pack_mm(x, weight, scale)
            else:
                fl.ops.aten._weight_int4pack_mm_for_cpu(x, weight, GROUP, scale)

    return run, sum(t.numel() * t.element_size() for t in (*weights, *scales))


def share(n: int, k: int, bits: int, rows: int, copied: float) -> dict[str, Any]:
    run, size = products(n, k, bits, rows)
    run()
    fl.cuda.synchronize()
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        run()
    ms = milliseconds(graph.replay)
    return {"n": n, "k": k, "bits": bits, "rows": rows, "ms": ms, "share": size / (ms * 1e-3) / copied}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    copied = copy_speed()
    print(f"a copy moves {copied / 1e12:.2f} TB/s")
    print("| weights | bits | 1 row | 4 rows | 16 rows |\n|---|---|---|---|---|")
    results: list[dict[str, Any]] = []
    for n, k in SHAPES:
        for bits in (8, 4):
            shares = [share(n, k, bits, rows, copied) for rows in (1, 4, 16)]
            print(f"| {n} x {k} | {bits} | " + " | ".join(f"{s['share']:.0%}" for s in shares) + " |", flush=True)
            results += shares
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps([{"copy, B/s": copied}, *results], indent=1) + "\n")


if __name__ == "__main__":
    main()
