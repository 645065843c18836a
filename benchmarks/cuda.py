"""CUDA eager mode against PyTorch, in one process and one run: host time of calls, bandwidth of pointwise ops and
reductions, rates of products, kernels of training steps one by one, and whole training steps.

    python benchmarks/cuda.py [name ...]      needs a CUDA device; PyTorch is compared with where it is installed

Times are medians by events after warming up; host times are per call of a long loop. Ratios are ours over PyTorch's.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import flambeau

try:
    import torch
except ImportError:
    torch = None
LIBRARIES = [("flambeau", flambeau)] + ([("torch", torch)] if torch is not None else [])


def host_microseconds(lib: Any, f: Callable[[], Any], calls: int = 2000) -> float:
    for _ in range(200):
        f()
    best = float("inf")
    for _ in range(5):
        lib.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls // 5):
            f()
        best = min(best, (time.perf_counter() - start) / (calls // 5))
    lib.cuda.synchronize()
    return best * 1e6


def device_milliseconds(lib: Any, f: Callable[[], Any], repeats: int = 20) -> float:
    for _ in range(5):
        f()
    times = []
    for _ in range(repeats):
        start, end = lib.cuda.Event(enable_timing=True), lib.cuda.Event(enable_timing=True)
        start.record()
        f()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def report(name: str, unit: str, values: dict[str, float], better: str = "lower") -> None:
    line = f"{name:<44}" + "".join(f"{lib} {v:>10.3f} " for lib, v in values.items()) + unit
    if len(values) == 2:
        ours, theirs = values.values()
        line += f"   ratio {ours / theirs:.2f} ({better} is better)"
    print(line, flush=True)


def compare(name: str, unit: str, measure: Callable[[Any], float], better: str = "lower") -> None:
    values = {}
    for label, lib in LIBRARIES:
        try:
            values[label] = measure(lib)
        except Exception as error:
            print(f"{name:<44}{label} failed: {type(error).__name__} {str(error)[:120]}", flush=True)
    if values:
        report(name, unit, values, better)


# ---------------------------------------------------------------- parts


def host() -> None:
    def add(lib: Any) -> float:
        a, b = lib.ones(1, device="cuda"), lib.ones(1, device="cuda")
        return host_microseconds(lib, lambda: a + b)

    def allocate(lib: Any) -> float:
        return host_microseconds(lib, lambda: lib.empty(1, device="cuda"))

    def matmul(lib: Any) -> float:
        a = lib.ones(16, 16, device="cuda")
        return host_microseconds(lib, lambda: a @ a)

    def backward(lib: Any) -> float:
        a = lib.ones(16, device="cuda", requires_grad=True)
        return host_microseconds(lib, lambda: (a * a).sum().backward(), 500)

    compare("host: empty(1)", "us", allocate)
    compare("host: a + b, one element", "us", add)
    compare("host: a @ a, 16 x 16", "us", matmul)
    compare("host: (a * a).sum().backward()", "us", backward)


def bandwidth() -> None:
    def rate(bytes_moved: float, f: Callable[[Any], Callable[[], Any]]) -> Callable[[Any], float]:
        return lambda lib: bytes_moved / device_milliseconds(lib, f(lib)) / 1e9

    n = 1 << 28
    for dtype, size in (("float32", 4), ("bfloat16", 2)):

        def make(lib: Any, *shape: int, dtype: str = dtype) -> Any:
            return lib.randn(*shape, device="cuda").to(getattr(lib, dtype))

        def two(f: Callable[[Any, Any], Any]) -> Callable[[Any], Callable[[], Any]]:
            def build(lib: Any) -> Callable[[], Any]:
                a, b = make(lib, n), make(lib, n)
                return lambda: f(a, b)

            return build

        def one(f: Callable[[Any, Any], Any], *shape: int) -> Callable[[Any], Callable[[], Any]]:
            def build(lib: Any) -> Callable[[], Any]:
                a = make(lib, *(shape or (n,)))
                return lambda: f(lib, a)

            return build

        compare(f"copy, {dtype}", "TB/s", rate(2 * size * n, one(lambda lib, a: a.clone())), "higher")
        compare(f"a + b, {dtype}", "TB/s", rate(3 * size * n, two(lambda a, b: a + b)), "higher")
        compare(f"gelu, {dtype}", "TB/s", rate(2 * size * n, one(lambda lib, a: lib.nn.functional.gelu(a))), "higher")
        compare(
            f"a + row, {dtype}", "TB/s", rate(2 * size * n, one(lambda lib, a: a + a[0], 1 << 14, 1 << 14)), "higher"
        )
        compare(
            f"transposed copy, {dtype}",
            "TB/s",
            rate(2 * size * n, one(lambda lib, a: a.t().contiguous(), 1 << 14, 1 << 14)),
            "higher",
        )
        compare(f"sum, all, {dtype}", "TB/s", rate(size * n, one(lambda lib, a: a.sum())), "higher")
        compare(f"sum, rows, {dtype}", "TB/s", rate(size * n, one(lambda lib, a: a.sum(1), 1 << 14, 1 << 14)), "higher")
        compare(
            f"sum, columns, {dtype}", "TB/s", rate(size * n, one(lambda lib, a: a.sum(0), 1 << 14, 1 << 14)), "higher"
        )
        compare(
            f"softmax 16384 x 8192, {dtype}",
            "TB/s",
            rate(2 * size * (1 << 27), one(lambda lib, a: lib.softmax(a, -1), 1 << 14, 1 << 13)),
            "higher",
        )
        compare(
            f"layer_norm 16384 x 4096, {dtype}",
            "TB/s",
            rate(2 * size * (1 << 26), one(lambda lib, a: lib.nn.functional.layer_norm(a, (4096,)), 1 << 14, 1 << 12)),
            "higher",
        )


def products() -> None:
    for dtype, n, tf32 in (
        ("bfloat16", 8192, False),
        ("float16", 8192, False),
        ("float32", 4096, False),
        ("float32", 4096, True),
    ):

        def measure(lib: Any, dtype: str = dtype, n: int = n, tf32: bool = tf32) -> float:
            lib.backends.cuda.matmul.allow_tf32 = tf32
            a, b = (lib.randn(n, n, device="cuda").to(getattr(lib, dtype)) for _ in range(2))
            rate = 2 * n**3 / device_milliseconds(lib, lambda: a @ b) / 1e9
            lib.backends.cuda.matmul.allow_tf32 = False
            return rate

        compare(f"matmul {n}, {dtype}{' tf32' if tf32 else ''}", "TFLOP/s", measure, "higher")


def scaled_products() -> None:
    for n in (4096, 8192):

        def measure(lib: Any, n: int = n) -> float:
            one = lib.ones((), device="cuda")
            a, b = (lib.randn(n, n, device="cuda").to(lib.float8_e4m3fn) for _ in range(2))
            run = device_milliseconds(
                lib, lambda: lib._scaled_mm(a, b.t(), one, one, out_dtype=lib.bfloat16, use_fast_accum=True)
            )
            return 2 * n**3 / run / 1e9

        compare(f"scaled_mm {n}, float8_e4m3fn", "TFLOP/s", measure, "higher")


# Function of a library and an input, the input's shape: the kernels of training steps.
KERNELS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "batch norm": (lambda lib, x: lib.nn.functional.batch_norm(x, None, None, training=True), (256, 64, 32, 32)),
    "group norm": (lambda lib, x: lib.nn.functional.group_norm(x, 32), (16, 320, 64, 64)),
    "layer norm": (lambda lib, x: lib.nn.functional.layer_norm(x, (768,)), (8192, 768)),
    "rms norm": (lambda lib, x: lib.nn.functional.rms_norm(x, (4096,)), (4096, 4096)),
    "gelu, tanh": (lambda lib, x: lib.nn.functional.gelu(x, approximate="tanh"), (8192, 3072)),
    "max pool 3, 2, 1": (lambda lib, x: lib.nn.functional.max_pool2d(x, 3, 2, 1), (64, 64, 112, 112)),
    "average pool 2": (lambda lib, x: lib.nn.functional.avg_pool2d(x, 2), (64, 64, 112, 112)),
    "adaptive pool 1": (lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 1), (64, 64, 112, 112)),
    "odd rows to aligned ones": (lambda lib, x: lib.nn.functional.pad(x, (0, 7)), (8192, 50257)),
    "causal attention": (
        lambda lib, x: lib.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        (8, 12, 1024, 64),
    ),
    "attention, wide heads": (
        lambda lib, x: lib.nn.functional.scaled_dot_product_attention(x, x, x),
        (4, 16, 2048, 128),
    ),
}


def kernels(loops: int = 20) -> None:
    """Microseconds of a call in bfloat16, forward and backward, of a row of them: launches are not waited for."""

    def repeated(lib: Any, f: Callable[[], Any]) -> float:
        return device_milliseconds(lib, lambda: [f() for _ in range(loops)], 10) * 1000 / loops

    for name, (function, shape) in KERNELS.items():

        def forward(lib: Any, function: Any = function, shape: Any = shape) -> float:
            x = lib.randn(shape, device="cuda").to(lib.bfloat16)
            return repeated(lib, lambda: function(lib, x))

        def backward(lib: Any, function: Any = function, shape: Any = shape) -> float:
            x = lib.randn(shape, device="cuda").to(lib.bfloat16).requires_grad_()
            y = function(lib, x)
            g = lib.randn_like(y)
            return repeated(lib, lambda: lib.autograd.grad(y, x, g, retain_graph=True))

        size = " x ".join(map(str, shape))
        compare(f"{name}, {size}", "us", forward)
        compare(f"{name}, backward", "us", backward)


def gpt(lib: Any, layers: int, width: int, heads: int, vocabulary: int, length: int) -> Any:
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, w = x.shape
            q, k, v = (z.reshape(b, t, heads, w // heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(w, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, x: Any) -> Any:
            places = lib.arange(x.shape[1], device=x.device)
            return self.head(self.norm(self.blocks(self.tokens(x) + self.places(places))))

    return GPT()


def models() -> None:
    def gpt_train(lib: Any) -> float:
        model = gpt(lib, 12, 768, 12, 50304, 1024).cuda().bfloat16()
        optimizer = lib.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        x = lib.randint(0, 50304, (8, 1024), device="cuda")

        def step() -> None:
            optimizer.zero_grad()
            logits = model(x)
            loss = lib.nn.functional.cross_entropy(logits.reshape(-1, 50304), x.reshape(-1))
            loss.backward()
            optimizer.step()

        return device_milliseconds(lib, step, 10)

    def gpt_infer(lib: Any) -> float:
        model = gpt(lib, 12, 768, 12, 50304, 1024).cuda().bfloat16()
        x = lib.randint(0, 50304, (1, 128), device="cuda")
        with lib.no_grad():
            return device_milliseconds(lib, lambda: model(x), 20)

    def resnet(lib: Any) -> float:
        nn, F = lib.nn, lib.nn.functional

        class Residual(nn.Module):
            def __init__(self, a: int, b: int, s: int) -> None:
                super().__init__()
                self.c1, self.b1 = nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b)
                self.c2, self.b2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
                self.short = (
                    nn.Sequential(nn.Conv2d(a, b, 1, s, bias=False), nn.BatchNorm2d(b)) if s > 1 or a != b else None
                )

            def forward(self, x: Any) -> Any:
                y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
                return F.relu(y + (x if self.short is None else self.short(x)))

        layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        for a, b, s in (
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
            (256, 512, 2),
            (512, 512, 1),
        ):
            layers.append(Residual(a, b, s))
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).cuda().bfloat16()
        model = model.to(memory_format=lib.channels_last)
        x = lib.randn(256, 3, 32, 32, device="cuda").bfloat16().to(memory_format=lib.channels_last)
        y = lib.randint(0, 10, (256,), device="cuda")
        optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        return device_milliseconds(lib, step, 10)

    compare("GPT-2 small train step 8 x 1024, bf16, eager", "ms", gpt_train)
    compare("GPT-2 small inference 1 x 128, bf16, eager", "ms", gpt_infer)
    compare("ResNet-18 train step 256 x 3 x 32 x 32, bf16", "ms", resnet)


PARTS = {
    "host": host,
    "bandwidth": bandwidth,
    "products": products,
    "scaled": scaled_products,
    "kernels": kernels,
    "models": models,
}

if __name__ == "__main__":
    if not flambeau.cuda.is_available():
        sys.exit("benchmarks/cuda.py needs a CUDA device")
    print(flambeau.cuda.get_device_name(), "PyTorch " + torch.__version__ if torch is not None else "", flush=True)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
