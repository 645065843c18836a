"""Compiled functions on a GPU beside PyTorch and JAX: bandwidth of fused kernels, training and inference steps, compile times.

    python benchmarks/cuda_compile.py [--only REGEX] [--libraries flambeau,torch,jax] [--json FILE]

Each library runs all cases in a process of its own, one after the other on the same GPU, with empty caches of kernels, so
that the first call's time is that of a cold compile. Times are medians of device time, taken with events; JAX, which has none,
starts ten steps and waits for the last. Bandwidth is the
least that a case must read and write over its time, beside that of a copy measured in the same process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = ("eager", "default", "reduce-overhead")


def median(torch: Any, call: Any, seconds: float = 0.4, least: int = 12) -> float:
    """Milliseconds of device time of one call."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start, times = time.perf_counter(), []
    while len(times) < least or time.perf_counter() - start < seconds:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times)


def compiled(torch: Any, function: Any, mode: str) -> Any:
    if mode == "eager":
        return function
    return torch.compile(function, mode=None if mode == "default" else mode)


# ---------------------------------------------------------------- cases: (step, bytes that must be moved or None)


def pointwise_chain(torch: Any, mode: str) -> Any:
    x, y = torch.randn(8192, 8192, device="cuda"), torch.randn(8192, 8192, device="cuda")

    def chain(x: Any, y: Any) -> Any:
        z = torch.relu((x + 1) * 2) - torch.sigmoid(y) * torch.tanh(x)
        return (z * z + 0.5).sqrt() * torch.exp(-y.abs())

    run = compiled(torch, chain, mode)
    return lambda: run(x, y), 3 * 4 * 8192 * 8192


def layer_norm_gelu(torch: Any, mode: str) -> Any:
    F = torch.nn.functional
    x = torch.randn(16384, 4096, device="cuda").to(torch.bfloat16)
    w, b = torch.randn(4096, device="cuda").to(torch.bfloat16), torch.randn(4096, device="cuda").to(torch.bfloat16)
    run = compiled(torch, lambda x, w, b: F.gelu(F.layer_norm(x, (4096,), w, b)) + x, mode)
    return lambda: run(x, w, b), 2 * 2 * 16384 * 4096


def softmax(torch: Any, mode: str) -> Any:
    x = torch.randn(16384, 8192, device="cuda").to(torch.bfloat16)
    run = compiled(torch, lambda x: torch.softmax(x, -1), mode)
    return lambda: run(x), 2 * 2 * 16384 * 8192


def tiny(torch: Any, mode: str) -> Any:
    x = torch.randn(8, device="cuda")
    run = compiled(torch, lambda x: torch.relu(x + 1) * 2, mode)
    return lambda: run(x), None


def attention(torch: Any, mode: str) -> Any:
    F = torch.nn.functional
    q, k, v = (torch.randn(8, 12, 1024, 64, device="cuda").to(torch.bfloat16).requires_grad_() for _ in range(3))
    g = torch.randn(8, 12, 1024, 64, device="cuda").to(torch.bfloat16)
    run = compiled(torch, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), mode)

    def step() -> None:
        for t in (q, k, v):
            t.grad = None
        run(q, k, v).backward(g)

    return step, None


def models(torch: Any) -> Any:
    """GPT and ResNet18 built from one library's modules."""
    nn, F = torch.nn, torch.nn.functional

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
        def __init__(self, words: int = 50257, width: int = 768, heads: int = 12, layers: int = 12) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
            self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    class Basic(nn.Module):
        def __init__(self, channels: int, out_channels: int, stride: int) -> None:
            super().__init__()
            self.one = nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False)
            self.two = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
            self.norm_one, self.norm_two = nn.BatchNorm2d(out_channels), nn.BatchNorm2d(out_channels)
            self.side = None
            if stride != 1 or channels != out_channels:
                self.side = nn.Sequential(
                    nn.Conv2d(channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
                )

        def forward(self, x: Any) -> Any:
            y = self.norm_two(self.two(F.relu(self.norm_one(self.one(x)))))
            return F.relu(y + (x if self.side is None else self.side(x)))

    class ResNet18(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
            before = 64
            for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                layers += [Basic(before, width, stride), Basic(width, width, 1)]
                before = width
            self.layers, self.head = nn.Sequential(*layers), nn.Linear(512, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(x).mean((2, 3)))

    return GPT, ResNet18


def gpt2_train(torch: Any, mode: str) -> Any:
    F = torch.nn.functional
    torch.manual_seed(0)
    model = models(torch)[0]().to("cuda").to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 50257, (8, 1025)).to("cuda")

    def loss_of(ids: Any) -> Any:
        return F.cross_entropy(model(ids[:, :-1]).view(-1, 50257).float(), ids[:, 1:].reshape(-1))

    run = compiled(torch, loss_of, mode)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        run(ids).backward()
        optimizer.step()

    return step, None


def gpt2_infer(torch: Any, mode: str) -> Any:
    torch.manual_seed(0)
    model = models(torch)[0]().to("cuda").to(torch.bfloat16).eval()
    ids = torch.randint(0, 50257, (1, 128)).to("cuda")
    run = compiled(torch, model, mode)

    def step() -> None:
        with torch.no_grad():
            run(ids)

    return step, None


def resnet18_train(torch: Any, mode: str) -> Any:
    F = torch.nn.functional
    torch.manual_seed(0)
    model = models(torch)[1]().to("cuda").to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(256, 3, 32, 32, device="cuda").to(torch.bfloat16)
    y = torch.randint(0, 10, (256,)).to("cuda")
    run = compiled(torch, lambda x, y: F.cross_entropy(model(x).float(), y), mode)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        run(x, y).backward()
        optimizer.step()

    return step, None


CASES = {
    "pointwise chain 8192x8192": pointwise_chain,
    "layer norm + gelu 16384x4096 bf16": layer_norm_gelu,
    "softmax 16384x8192 bf16": softmax,
    "tiny": tiny,
    "attention 8x12x1024x64 bf16, forward and backward": attention,
    "GPT-2 small inference 1x128": gpt2_infer,
    "GPT-2 small train step 8x1024 bf16": gpt2_train,
    "ResNet-18 train step 256x3x32x32 bf16": resnet18_train,
}


def copy_rate(torch: Any) -> float:
    """Terabytes read and written each second by a long copy."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty(1 << 28, device="cuda")
    return 2 * 4 * (1 << 28) / median(torch, lambda: target.copy_(source)) / 1e9


def measure(library: str, only: str, modes: list[str]) -> None:
    """Runs all cases with one library; a line of JSON for each."""
    torch = importlib.import_module(library)
    copy = copy_rate(torch)
    print(json.dumps({"case": "copy", "library": library, "TB/s": copy}), flush=True)
    for name, case in CASES.items():
        if not re.search(only, name):
            continue
        for mode in modes:
            figures: dict[str, Any] = {"case": name, "library": library, "mode": mode}
            try:
                step, moved = case(torch, mode)
                start = time.perf_counter()
                step()
                torch.cuda.synchronize()
                figures["first call, s"] = time.perf_counter() - start
                figures["ms"] = median(torch, step)
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(20):
                    step()
                figures["host ms"] = (time.perf_counter() - start) / 20 * 1e3
                torch.cuda.synchronize()
                if moved is not None:
                    figures["of copy"] = moved / figures["ms"] / 1e9 / copy
            except Exception as error:
                figures["error"] = f"{type(error).__name__}: {error}"[:2000]
            print(json.dumps(figures), flush=True)


def jax_median(step: Any, seconds: float = 0.4, least: int = 5) -> float:
    """Milliseconds of one step among ten that are started one after the other."""
    import jax

    start, times = time.perf_counter(), []
    while len(times) < least or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        for _ in range(9):
            step()
        jax.block_until_ready(step())
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e2


def measure_jax(only: str) -> None:
    """The same for JAX's functions, which have one mode."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import jax
    from programs.cases_in_jax import CASES as IN_JAX

    for name, case in IN_JAX.items():
        if not re.search(only, name):
            continue
        figures: dict[str, Any] = {"case": name, "library": "jax", "mode": "default"}
        try:
            step, moved = case()
            start = time.perf_counter()
            jax.block_until_ready(step())
            figures["first call, s"] = time.perf_counter() - start
            jax.block_until_ready(step())
            figures["ms"] = jax_median(step)
            if moved is not None:
                figures["TB/s moved"] = moved / figures["ms"] / 1e9
        except Exception as error:
            figures["error"] = f"{type(error).__name__}: {error}"[:2000]
        print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--libraries", default="flambeau,torch,jax")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=500, help="for one library")
    parser.add_argument("--json")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    modes = options.modes.split(",")
    if options.measure:
        measure_jax(options.only) if options.measure == "jax" else measure(options.measure, options.only, modes)
        return
    results = []
    for library in options.libraries.split(","):
        with tempfile.TemporaryDirectory() as cache:
            env = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "FLAMBEAU_CACHE_DIR": cache,
                "TORCHINDUCTOR_CACHE_DIR": cache,
                "TRITON_CACHE_DIR": cache,
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            }
            command = [
                sys.executable, __file__, "--measure", library, "--only", options.only, "--modes", options.modes
            ]  # fmt: skip
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
            timeout = time.monotonic() + options.seconds
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    results.append(json.loads(line))
                    print(line.rstrip(), flush=True)
                if time.monotonic() > timeout:
                    process.kill()
            process.wait()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    table(results)


def table(results: list[dict[str, Any]]) -> None:
    by = {(r["case"], r.get("mode"), r["library"]): r for r in results}
    libraries = list(dict.fromkeys(r["library"] for r in results))
    print(f"\n{'case':52} {'mode':16}" + "".join(f"{name:>24}" for name in libraries))
    for case, mode in dict.fromkeys((r["case"], r.get("mode")) for r in results):
        cells = []
        for library in libraries:
            r = by.get((case, mode, library), {})
            if "ms" in r:
                share = f" {r['of copy']:.0%}" if "of copy" in r else ""
                cells.append(f"{r['ms']:.3f} ms{share} ({r['first call, s']:.1f} s)")
            else:
                cells.append("failed" if "error" in r else f"{r['TB/s']:.2f} TB/s" if "TB/s" in r else "-")
        print(f"{case:52} {mode or '':16}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
