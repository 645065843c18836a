"""Training steps of GPT-2 medium on a GPU with products of 8-bit floats, beside bfloat16 alone, and their losses.

    python benchmarks/cuda_float8.py [--recipes tensorwise,delayed,...] [--parts] [--seconds 60] [--json FILE]

The program is that of `cuda_programs.py`, compiled; its losses on one batch say whether it learns as in bfloat16. The head is not
converted, as its vocabulary is no multiple of sixteen. `--parts` measures the products and casts of a layer alone, first.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

from cuda_programs import median  # noqa: E402
from programs import make, step_of  # noqa: E402

import flambeau as fl  # noqa: E402
import flambeau.nn.functional as F  # noqa: E402
from flambeau.ao.torchao import float8  # noqa: E402

LENGTH = 1024


def training(recipe: str, device: str) -> Callable[[], Any]:
    """A step of the program "gpt2 medium", compiled."""
    program = make(fl, "gpt2 medium", device, small=device == "cpu")
    if recipe != "bfloat16":
        config = float8.Float8LinearConfig.from_recipe_name(recipe)
        float8.convert_to_float8_training(program.model, config=config, module_filter_fn=lambda _, name: name != "head")
        if config.delayed:
            update = program.optimizer.step

            def update_scales_too() -> None:
                float8.sync_float8_amax_and_scale_history(program.model)
                update()

            program.optimizer.step = update_scales_too
    return step_of(fl, program, "default", device)


def measure(recipe: str, options: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    step = training(recipe, options.device)
    losses = [step().item()]
    first = time.perf_counter() - start
    losses += [step().item() for _ in range(options.steps - 1)]
    ms = median(fl, step, 0.4, 8) if options.device == "cuda" else math.nan
    memory = fl.cuda.max_memory_allocated() / 1e9 if options.device == "cuda" else math.nan
    return {"recipe": recipe, "ms": ms, "first, s": first, "GB": memory, "losses": losses}


def parts(batch: int) -> dict[str, float]:
    """Milliseconds of products and of casts with the sizes of a layer of GPT-2 medium, each compiled alone."""
    measured: dict[str, float] = {}
    rows = batch * LENGTH
    for n, k in ((3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096)):
        x, w = (fl.randn(size, device="cuda").bfloat16() for size in ((rows, k), (n, k)))
        one = fl.ones((), device="cuda")
        small, weight = (t.to(fl.float8_e4m3fn) for t in (x, w))
        name = f"{rows} x {n} x {k}"
        runs = {f"{name} bfloat16": lambda x=x, w=w: F.linear(x, w)}
        for fast in (False, True):
            runs[f"{name} float8{', fast sums' * fast}"] = lambda a=small, b=weight, s=one, fast=fast: fl._scaled_mm(
                a, b.t(), s, s, out_dtype=fl.bfloat16, use_fast_accum=fast
            )
        measured |= {name: median(fl, run, 0.05, 5) for name, run in runs.items()}
    x, scale = fl.randn(rows, 4096, device="cuda").bfloat16(), fl.ones((), device="cuda")
    casts: dict[str, Callable[..., Any]] = {
        "largest": lambda x, s: x.abs().amax(),
        "cast": lambda x, s: (x.float() * s).clamp(-448.0, 448.0).to(fl.float8_e4m3fn),
        "cast, largest": lambda x, s: ((x.float() * s).clamp(-448.0, 448.0).to(fl.float8_e4m3fn), x.abs().amax()),
        "cast, turned": lambda x, s: (
            (q := (x.float() * s).clamp(-448.0, 448.0).to(fl.float8_e4m3fn)),
            q.t().contiguous(),
        ),
        "turned from bfloat16": lambda x, s: (x.t().float() * s).clamp(-448.0, 448.0).contiguous().to(fl.float8_e4m3fn),
    }
    for name, function in casts.items():
        compiled = fl.compile(function)
        measured[f"{rows} x 4096 {name}"] = median(fl, lambda run=compiled: run(x, scale), 0.05, 5)
    small = x.to(fl.float8_e4m3fn)
    turn = fl.compile(lambda q: q.t().contiguous())
    measured[f"{rows} x 4096 turned from float8"] = median(fl, lambda: turn(small), 0.05, 5)
    measured[f"{rows} x 4096 turned from float8, eager"] = median(fl, lambda: small.t().contiguous(), 0.05, 5)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--recipes", default="bfloat16,delayed,tensorwise,rowwise")
    parser.add_argument("--seconds", type=float, default=1e9, help="no recipe is begun later")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    begun, results = time.perf_counter(), []

    def write() -> None:
        if options.json:
            text = json.dumps({"parts": measured_parts, "recipes": results}, indent=1)
            pathlib.Path(options.json).write_text(text + "\n")

    measured_parts = parts(options.batch) if options.parts else {}
    for name, ms in measured_parts.items():
        print(f"{name}: {ms:.4f} ms", flush=True)
    write()
    for recipe in options.recipes.split(",") if options.recipes else ():
        if time.perf_counter() - begun > options.seconds:
            print(f"{recipe}: left out, for want of time")
            continue
        measured = measure(recipe, options)
        results.append(measured)
        ratio = measured["ms"] / results[0]["ms"]
        print(
            f"{recipe}: {measured['ms']:.2f} ms a step ({ratio:.3f} of {results[0]['recipe']}), first {measured['first, s']:.1f} s, "
            f"{measured['GB']:.1f} GB, losses {measured['losses'][0]:.3f} ... {measured['losses'][-1]:.3f}",
            flush=True,
        )
        write()


if __name__ == "__main__":
    main()
