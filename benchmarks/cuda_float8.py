"""Training steps of GPT-2 medium on a GPU with products of 8-bit floats, beside bfloat16 alone, and their losses.

    python benchmarks/cuda_float8.py [--batch 16] [--recipes tensorwise,delayed,...] [--parts] [--seconds 60] [--json FILE]

Each is compiled and trains on the same few batches of random words: the losses say whether it learns them as bfloat16 does. The head is not
converted, as its vocabulary is no multiple of sixteen. `--parts` measures the products and casts of a layer alone.
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

import flambeau as fl  # noqa: E402
import flambeau.nn.functional as F  # noqa: E402
from flambeau import nn  # noqa: E402
from flambeau.ao.torchao import float8  # noqa: E402

WORDS, LENGTH = 50257, 1024


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.attend(self.first(x)).split(width, 2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def training(recipe: str, options: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A step, and what goes on to the next batch."""
    fl.manual_seed(0)
    model = GPT(options.layers, options.width, options.width // 64, WORDS, LENGTH).to(options.device)
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=0.02)
    config = None
    if recipe != "bfloat16":
        config = float8.Float8LinearConfig.from_recipe_name(recipe)
        float8.convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name != "head")
    optimizer = fl.optim.AdamW(model.parameters(), 3e-4, fused=True)
    fl.manual_seed(1)
    batches = [fl.randint(0, WORDS, (options.batch, LENGTH + 1)).to(options.device) for _ in range(4)]
    place = [0]

    def loss_of(ids: Any) -> Any:
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    compiled = fl.compile(loss_of)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with fl.autocast(options.device, fl.bfloat16):
            loss = compiled(batches[place[0]])
        loss.backward()
        if config is not None and config.delayed:
            float8.sync_float8_amax_and_scale_history(model)
        optimizer.step()
        return loss

    def advance() -> None:
        place[0] = (place[0] + 1) % len(batches)

    return step, advance


def measure(recipe: str, options: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    step, advance = training(recipe, options)
    losses = [step().item()]
    first = time.perf_counter() - start
    for _ in range(options.steps - 1):
        advance()
        losses.append(step().item())
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
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--recipes", default="bfloat16,delayed,tensorwise,rowwise")
    parser.add_argument("--seconds", type=float, default=1e9, help="no recipe is begun later")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    begun, results = time.perf_counter(), []

    def write(**more: Any) -> None:
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({"recipes": results, **more}, indent=1) + "\n")

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
    if options.parts:
        measured = parts(options.batch)
        for name, ms in measured.items():
            print(f"{name}: {ms:.4f} ms", flush=True)
        write(parts=measured)


if __name__ == "__main__":
    main()
