"""Forward and backward passes beside PyTorch: time as ratios in one interleaved run, peak memory a process each.

    python benchmarks/training.py [--seconds 2] [--memory]

The models are written as functions over parameters, so that only the engine and autograd are measured: the two-layer
perceptron, a chain of tiny additions, a small convolutional net, a transformer block, ResNet-18 on 32x32 images and a
four-layer GPT.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Parameters:
    """Leaves that require grad, made on demand and cleared before each backward."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.all = torch, []

    def __call__(self, *shape: int) -> Any:
        scale = 1 / math.sqrt(math.prod(shape[1:]) or 1)
        self.all.append((self.torch.randn(*shape) * scale).requires_grad_())
        return self.all[-1]

    def backward(self, loss: Any) -> None:
        for p in self.all:
            p.grad = None
        loss.backward()


def perceptron(torch: Any) -> Callable[[], None]:
    F, new = torch.nn.functional, Parameters(torch)
    w1, b1, w2, b2, x = new(50, 100), new(50), new(10, 50), new(10), torch.randn(32, 100)
    return lambda: new.backward(F.linear(torch.relu(F.linear(x, w1, b1)), w2, b2).pow(2).mean())


def tiny_adds(torch: Any) -> Callable[[], None]:
    new = Parameters(torch)
    a, one = new(1), torch.ones(1)

    def step() -> None:
        y = a
        for _ in range(1000):
            y = y + one
        new.backward(y)

    return step


def batch_norm(torch: Any, new: Parameters, channels: int) -> Callable[[Any], Any]:
    mean, var, w, b = torch.zeros(channels), torch.ones(channels), new(channels), new(channels)
    return lambda x: torch.nn.functional.batch_norm(x, mean, var, w, b, training=True)


def conv_net(torch: Any) -> Callable[[], None]:
    F, new = torch.nn.functional, Parameters(torch)
    w1, w2, w3, fc = new(32, 3, 3, 3), new(64, 32, 3, 3), new(64, 64, 3, 3), new(10, 64)
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))

    def step() -> None:
        h = F.max_pool2d(torch.relu(F.conv2d(x, w1, padding=1)), 2)
        h = F.max_pool2d(torch.relu(F.conv2d(h, w2, padding=1)), 2)
        h = torch.relu(F.conv2d(h, w3, padding=1)).mean((2, 3))
        new.backward(F.cross_entropy(F.linear(h, fc), y))

    return step


def resnet18(torch: Any) -> Callable[[], None]:
    F, new = torch.nn.functional, Parameters(torch)
    stem, stem_norm = new(64, 3, 3, 3), batch_norm(torch, new, 64)
    blocks, width = [], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for s in (stride, 1):
            short = (new(out, width, 1, 1), batch_norm(torch, new, out)) if s != 1 or width != out else None
            convs = new(out, width, 3, 3), batch_norm(torch, new, out), new(out, out, 3, 3), batch_norm(torch, new, out)
            blocks.append((*convs, short, s))
            width = out
    fc = new(10, 512)
    x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))

    def step() -> None:
        h = torch.relu(stem_norm(F.conv2d(x, stem, padding=1)))
        for w1, n1, w2, n2, short, s in blocks:
            z = n2(F.conv2d(torch.relu(n1(F.conv2d(h, w1, stride=s, padding=1))), w2, padding=1))
            h = torch.relu(z + (short[1](F.conv2d(h, short[0], stride=s)) if short else h))
        new.backward(F.cross_entropy(F.linear(F.adaptive_avg_pool2d(h, 1).flatten(1), fc), y))

    return step


def transformer(
    torch: Any, layers: int, vocabulary: int = 256, d: int = 256, heads: int = 4, t: int = 128
) -> Callable[[], None]:
    F, new = torch.nn.functional, Parameters(torch)
    embed, position = new(vocabulary, d), new(t, d)
    blocks = [
        (
            new(d),
            new(d),
            new(3 * d, d),
            new(3 * d),
            new(d, d),
            new(d),
            new(d),
            new(d),
            new(4 * d, d),
            new(4 * d),
            new(d, 4 * d),
            new(d),
        )
        for _ in range(layers)
    ]
    tokens, target = torch.randint(0, vocabulary, (8, t)), torch.randint(0, vocabulary, (8 * t,))

    def step() -> None:
        x = F.embedding(tokens, embed) + position
        for g1, c1, wqkv, bqkv, wo, bo, g2, c2, w1, b1, w2, b2 in blocks:
            q, k, v = F.linear(F.layer_norm(x, (d,), g1, c1), wqkv, bqkv).split(d, 2)
            q, k, v = (z.view(8, t, heads, d // heads).transpose(1, 2) for z in (q, k, v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(8, t, d)
            x = x + F.linear(a, wo, bo)
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (d,), g2, c2), w1, b1)), w2, b2)
        new.backward(F.cross_entropy(F.linear(x, embed).view(-1, vocabulary), target))

    return step


# name -> (model, time ratio at most)
MODELS: dict[str, tuple[Callable[[Any], Callable[[], None]], float]] = {
    "perceptron, batch 32": (perceptron, 0.5),
    "chain of 1000 additions": (tiny_adds, 0.5),
    "convolutional net": (conv_net, 1.0),
    "transformer block": (lambda torch: transformer(torch, 1), 1.0),
    "ResNet-18": (resnet18, 1.0),
    "GPT, 4 layers": (lambda torch: transformer(torch, 4), 1.0),
}


def peak_memory(library: str, name: str) -> float:
    """Megabytes that training steps add at their peak to the memory before the first one."""
    import resource

    torch = importlib.import_module(library)
    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count())
    step = MODELS[name][0](torch)
    with open("/proc/self/status") as f:
        before = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    for _ in range(5):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each model")
    parser.add_argument("--memory", action="store_true", help="measure peak memory instead of time")
    parser.add_argument("--peak", nargs=2, metavar=("LIBRARY", "MODEL"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        print(json.dumps(peak_memory(*args.peak)))
        return
    if args.memory:
        for name in ("ResNet-18", "GPT, 4 layers"):
            peaks = []
            for library in ("flambeau", "torch"):
                command = [sys.executable, __file__, "--peak", library, name]
                environment = dict(os.environ, PYTHONPATH=str(ROOT))
                out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                peaks.append(json.loads(out.stdout))
            print(
                f"{name:26} peak {peaks[0]:7.1f} MB  torch {peaks[1]:7.1f} MB   x {peaks[0] / peaks[1]:.2f}   (at most 1.0)"
            )
        return
    import torch

    import flambeau

    for lib in (flambeau, torch):
        lib.manual_seed(0)
        lib.set_num_threads(os.cpu_count())
    for name, (make, bound) in MODELS.items():
        steps = make(flambeau), make(torch)
        best = [math.inf, math.inf]
        end = time.perf_counter() + args.seconds
        while time.perf_counter() < end:
            for i, step in enumerate(steps):
                start = time.perf_counter()
                step()
                best[i] = min(best[i], time.perf_counter() - start)
        a, b = best
        print(f"{name:26} {a * 1e6:10.0f} us  torch {b * 1e6:10.0f} us   x {a / b:.2f}   (at most {bound})", flush=True)


if __name__ == "__main__":
    main()
