"""Packages on a GPU beside `compile`: time to make them, to load and of a run, and bytes.

    python benchmarks/cuda_packages.py [names] [--record benchmarks/results/cuda_packages.txt]

The models are those of `packages.py`; packages take the batches that are named. Runs are timed from Python, with the GPU waited for
at the end of each hundred.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packages import BATCHES, models

import flambeau as fl
from flambeau._inductor import aoti_compile_and_package, aoti_load_package
from flambeau.export import Dim, export


def of_run(function: Callable[[], Any]) -> float:
    """Milliseconds of a call: the median of five times a hundred."""
    for _ in range(10):
        function()
    times = []
    for _ in range(5):
        fl.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(100):
            function()
        fl.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 10)
    return statistics.median(times)


@fl.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["mlp", "gpt", "resnet18"])
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    lines = [f"Packages on {fl.cuda.get_device_name()}"]
    for name in arguments.names:
        model, example = models(fl)[name]()
        fl.manual_seed(0)
        model, small, large = model.eval().to("cuda"), *BATCHES[name]
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pt2"
            sizes = ({0: Dim("batch", min=1, max=large)},)
            aoti_compile_and_package(
                export(model, (example(large).to("cuda"),), dynamic_shapes=sizes), package_path=path
            )
            seconds = time.perf_counter() - begin
            begin = time.perf_counter()
            package = aoti_load_package(path)
            load = (time.perf_counter() - begin) * 1e3
            weights = sum(t.numel() * t.element_size() for t in model.state_dict().values())
            over = (path.stat().st_size - weights) / 1024
        lines.append(f"{name}: made in {seconds:.1f} s, loaded in {load:.1f} ms, {over:.0f} KB beside the weights")
        for batch in (small, large):
            x = example(batch).to("cuda")
            compiled = fl.compile(model)
            error = float((package(x).float() - model(x).float()).abs().max())
            times = [of_run(lambda f=f, x=x: f(x)) for f in (model, compiled, package)]
            lines.append(
                f"  batch {batch:2}: eager {times[0]:.3f} ms, compile {times[1]:.3f}, package {times[2]:.3f}; "
                f"difference to eager {error:.1e}"
            )
            print("\n".join(lines[-2:]), flush=True)
    if arguments.record:
        arguments.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
