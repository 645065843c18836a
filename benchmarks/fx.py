"""Tracing, printing and interpreting graphs, beside PyTorch's: ratios below 1 are ours being faster.

    python benchmarks/fx.py

Both libraries run in this process, alternating; each number is the best of many, in processor time.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any


def models(lib: Any) -> dict[str, Any]:
    """A ResNet-18 and a GPT of twelve layers, in either library."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.relu = nn.ReLU(inplace=True)
            self.down = None
            if stride != 1 or i != o:
                self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y += x if self.down is None else self.down(x)
            return self.relu(y)

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
            self.layers = nn.Sequential(*(nn.Sequential(Block(i, o, s), Block(o, o, 1)) for i, o, s in widths))
            self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(512, 10)

        def forward(self, x: Any) -> Any:
            return self.fc(lib.flatten(self.pool(self.layers(self.stem(x))), 1))

    class Layer(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            B, T, C = x.size()
            q, k, v = self.qkv(self.ln1(x)).split(C, dim=2)
            q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(B, T, C))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(100, 64)
            self.layers = nn.Sequential(*(Layer(64, 4) for _ in range(12)))
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 100, bias=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.layers(self.embed(x))))

    return {"ResNet-18": ResNet(), "GPT, 12 layers": GPT()}


class Number:
    """A value whose methods cost nothing, so that what an interpreter adds is all there is to measure."""

    def step(self, n: int) -> Number:
        return self


def chain(x: Any) -> Any:
    for _ in range(200):
        x = x.step(1)
    return x


def once(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(label: str, unit: float, functions: dict[str, Callable[[], Any]], turns: int = 30) -> None:
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(turns):
        for name, function in functions.items():
            best[name] = min(best[name], once(function))
    ours, theirs = best["flambeau"] * unit, best.get("torch", float("nan")) * unit
    print(f"{label:44s} {ours:9.2f} {theirs:9.2f} {ours / theirs:7.2f}")


def traced_and_compiled(trace: Callable[[], Any]) -> Any:
    """A traced module whose forward is ready to run: ours compiles it when it is first asked for."""
    return trace().forward


def symbolic_expressions() -> int:
    """The sizes of a transformer's values, layer after layer; how many expressions were made."""
    from flambeau.ops.symbolic import ShapeEnv

    env = ShapeEnv()
    batch, time_, width = (env.create_symbol(n) for n in (4, 16, 64))
    count = 0
    for _ in range(385):
        heads = 8
        rows = batch * time_
        each = width // heads
        sizes = [
            rows * width,
            rows * 3 * width,
            batch * heads * time_ * each,
            batch * heads * time_ * time_,
            rows * 4 * width,
        ]
        strides = [time_ * width, heads * each, time_ * each, each, time_ * time_]
        total = sum(sizes) + sum(strides)
        count += 26 if total is not rows else 0
    return count


_first_length = itertools.count(1000, 1000)


def distinct_expressions() -> int:
    """The same where no layer's sizes are those of another, and nothing is known from an earlier run."""
    from flambeau.ops.symbolic import ShapeEnv

    env = ShapeEnv()
    batch, time_, width = (env.create_symbol(n) for n in (4, 16, 64))
    count, heads, first = 0, 8, next(_first_length)
    for layer in range(first, first + 385):
        length = time_ + layer
        rows = batch * length
        each = (width + layer) // heads
        inner = width * layer
        sizes = [
            rows * width,
            rows * 3 * inner,
            batch * heads * length * each,
            batch * heads * length * length,
            rows * 4 * inner,
        ]
        strides = [length * width, heads * each, length * each, each, length * time_]
        total = sum(sizes) + sum(strides[:2])
        count += 26 if total is not rows else 0
    return count


def main() -> None:
    libraries: dict[str, Any] = {"flambeau": importlib.import_module("flambeau")}
    try:
        libraries["torch"] = importlib.import_module("torch")
    except ModuleNotFoundError:
        print("PyTorch is not installed: no ratios", file=sys.stderr)
    fx = {name: importlib.import_module(f"{name}.fx") for name in libraries}
    print(f"{'':44s} {'flambeau':>9s} {'torch':>9s} {'ratio':>7s}")
    built = {name: models(lib) for name, lib in libraries.items()}
    for model in built["flambeau"]:
        trace = {n: functools.partial(fx[n].symbolic_trace, built[n][model]) for n in libraries}
        compare(f"symbolic_trace, {model} (ms)", 1e3, trace)
        traced = {n: f() for n, f in trace.items()}
        compare(f"recompile, {model} (ms)", 1e3, {n: g.recompile for n, g in traced.items()})
        both = {n: functools.partial(traced_and_compiled, f) for n, f in trace.items()}
        compare("symbolic_trace and forward compiled (ms)", 1e3, both)
    graphs = {n: fx[n].symbolic_trace(chain) for n in libraries}
    number = Number()
    runs = {n: functools.partial(fx[n].Interpreter(graphs[n]).run, number) for n in libraries}
    compare("Interpreter, a node (us)", 1e6 / 200, runs, 40)
    for label, function in (("recurring", symbolic_expressions), ("all different", distinct_expressions)):
        function()
        best = min(once(function) for _ in range(10))
        print(f"{f'10,000 expressions of sizes, {label} (ms)':44s} {best * 1e3:9.2f}")


if __name__ == "__main__":
    main()
