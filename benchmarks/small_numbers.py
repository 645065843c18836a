"""Products and models in bfloat16, 8-bit and 4-bit integers, beside PyTorch and llama.cpp.

    python benchmarks/small_numbers.py [--threads 2] [--rounds 5] [--only REGEX] [--json FILE]

Each line is the best time of every library, taken in turns in one process; `ratio` is ours to the best of the others (or to
our own float32 where it says so). llama.cpp's line needs PyPI's `llama-cpp-python` and runs its Q4_0 product through ggml.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import integer_models  # noqa: E402
import models  # noqa: E402

import flambeau  # noqa: E402

Runs = dict[str, Callable[[], Any]]


class Line(NamedTuple):
    name: str
    work: float  # operations, for a rate; 0: none
    runs: Runs  # by library; the first is the one that the others are compared with


def libraries() -> dict[str, Any]:
    by_name = {"flambeau": flambeau}
    try:
        by_name["torch"] = importlib.import_module("torch")
    except ImportError:
        print("PyTorch is not installed: no column for it", file=sys.stderr)
    return by_name


# ---------------------------------------------------------------------------------------------- products


def products() -> Iterator[Line]:
    for m, n, k in ((1024, 1024, 1024), (2048, 2048, 2048), (256, 3072, 768), (8, 4096, 4096)):
        runs: Runs = {}
        for name, lib in libraries().items():
            x, w = lib.randn(m, k).bfloat16(), lib.randn(n, k).bfloat16()
            runs[name] = lambda lib=lib, x=x, w=w: lib.nn.functional.linear(x, w)
        yield Line(f"bfloat16 product {m}x{n}x{k}", 2.0 * m * n * k, runs)
        runs = {}
        for name, lib in libraries().items():
            a, b = (lib.randint(-127, 128, size).to(lib.int8) for size in ((m, k), (k, n)))
            runs[name] = lambda lib=lib, a=a, b=b: lib._int_mm(a, b)
        yield Line(f"int8 product {m}x{n}x{k}", 2.0 * m * n * k, runs)


def decoding() -> Iterator[Line]:
    """Matrix-vector products with the weights of a decoder layer."""
    n, k, group = 4096, 4096, 32
    for dtype in ("bfloat16", "float32"):
        four: Runs = {}
        eight: Runs = {}
        for name, lib in libraries().items():
            if name == "torch" and dtype == "float32":
                continue  # its kernels take a hundred times as long there
            x, kind = lib.randn(1, k).to(getattr(lib, dtype)), getattr(lib, dtype)
            packed = lib.ops.aten._convert_weight_to_int4pack_for_cpu(lib.randint(0, 16, (n, k)).to(lib.int32), 2)
            grids = lib.rand(k // group, n, 2).to(kind)
            weight, scales = lib.randint(-127, 128, (n, k)).to(lib.int8), lib.rand(n).to(kind)
            four[name] = lambda lib=lib, x=x, packed=packed, grids=grids: lib.ops.aten._weight_int4pack_mm_for_cpu(
                x, packed, group, grids
            )
            eight[name] = lambda lib=lib, x=x, weight=weight, scales=scales: lib.ops.aten._weight_int8pack_mm(
                x, weight, scales
            )
        if dtype == "float32" and (run := llama_product(n, k)) is not None:
            four["llama.cpp"] = run
        yield Line(f"int4 decoding {n}x{k} {dtype}", 2.0 * n * k, four)
        yield Line(f"int8 decoding {n}x{k} {dtype}", 2.0 * n * k, eight)


def decoder() -> Iterator[Line]:
    """The products of a token in a decoder of 1.07 billion weights: 16 layers of width 2,048, 8,192 in between."""
    layers, sizes = 16, [*[(2048, 2048)] * 4, *[(8192, 2048)] * 2, (2048, 8192)]
    runs: Runs = {}
    for group, grids, name in ((32, 1, "symmetric groups of 32"), (32, 2, "asymmetric"), (64, 2, "asymmetric of 64")):
        weights = [
            (
                flambeau.randn(1, k).bfloat16(),
                flambeau.randint(0, 256, (n, k // 2)).to(flambeau.uint8),
                group,
                flambeau.rand(k // group, n, grids).bfloat16(),
            )
            for _ in range(layers)
            for n, k in sizes
        ]
        product = flambeau.ops.aten._weight_int4pack_mm_for_cpu
        runs[name] = lambda weights=weights, product=product: [product(*arguments) for arguments in weights]
    yield Line("int4 decoder, a token", 2.0 * layers * sum(n * k for n, k in sizes), runs)


def llama_product(n: int, k: int) -> Callable[[], Any] | None:
    """One row times a Q4_0 matrix, by ggml's functions for a row."""
    try:
        import ctypes

        import llama_cpp
        import numpy as np
    except ImportError:
        return None
    library = next(pathlib.Path(llama_cpp.__file__).parent.glob("lib/libggml-cpu*.so"), None)
    if library is None:
        return None
    ggml = ctypes.CDLL(str(library))
    blocks = k // 32
    weight = np.random.default_rng(0).integers(0, 256, (n, blocks * 18), dtype=np.uint8)
    row, out = np.zeros(blocks * 34, np.uint8), np.zeros(n, np.float32)
    dot, quantize = ggml.ggml_vec_dot_q4_0_q8_0, ggml.quantize_row_q8_0
    x = np.random.default_rng(0).standard_normal(k).astype(np.float32)
    pointer, place = ctypes.c_void_p, ctypes.c_size_t
    dot.argtypes = [ctypes.c_int, pointer, place, pointer, place, pointer, place, ctypes.c_int]
    quantize.argtypes = [pointer, pointer, ctypes.c_int64]

    def run() -> None:
        quantize(x.ctypes.data, row.ctypes.data, k)
        for j in range(n):  # the cost of the calls is counted, some 0.3 us for each row
            dot(k, out.ctypes.data + 4 * j, 0, weight.ctypes.data + j * blocks * 18, 0, row.ctypes.data, 0, 1)

    return run


# ---------------------------------------------------------------------------------------------- models


def convolutions() -> Iterator[Line]:
    for b, c, h, o, k in ((8, 64, 56, 64, 3), (8, 256, 14, 256, 3), (8, 64, 56, 256, 1)):
        runs: Runs = {}
        for name, lib in libraries().items():
            x = lib.randn(b, c, h, h).bfloat16().to(memory_format=lib.channels_last)
            w = lib.randn(o, c, k, k).bfloat16()
            runs[name] = lambda lib=lib, x=x, w=w, k=k: lib.nn.functional.conv2d(x, w, None, 1, k // 2)
        yield Line(f"bfloat16 convolution {k}x{k} {c}->{o} {h}x{h}", 2.0 * b * h * h * c * o * k * k, runs)


def bfloat16_networks() -> Iterator[Line]:
    """Inference of ResNets in bfloat16, channels-last, compiled with frozen weights."""
    for depth, batch in ((18, 1), (18, 8), (50, 1)):
        runs: Runs = {}
        for name, lib in libraries().items():
            importlib.import_module(f"{lib.__name__}._inductor.config").freezing = True  # type: ignore[attr-defined]
            lib.manual_seed(0)
            model = models.residual_network(lib, depth).eval().bfloat16().to(memory_format=lib.channels_last)
            x = lib.randn(batch, 3, 224, 224).bfloat16().to(memory_format=lib.channels_last)
            runs[name] = integer_models.evaluation(lib, lib.compile(model), x)
        yield Line(f"ResNet-{depth} in bfloat16, {batch} images", 0, runs)


def autocast() -> Iterator[Line]:
    runs: Runs = {}
    for name, lib in libraries().items():
        for mode in ("eager", "compiled") if name == "flambeau" else ("eager",):
            task = models.make(lib, "gpt")
            optimizer = lib.optim.AdamW(task.model.parameters(), 1e-3)
            model = lib.compile(task.model) if mode == "compiled" else task.model
            inputs, targets = task.batch(0)

            def step(lib=lib, model=model, task=task, optimizer=optimizer, x=inputs, y=targets) -> None:  # type: ignore[no-untyped-def]
                with lib.autocast("cpu", dtype=lib.bfloat16):
                    loss = task.loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

            runs[name if mode == "eager" else f"{name} {mode}"] = step
    yield Line(
        "transformer training step, autocast", 0, dict(sorted(runs.items(), key=lambda r: "compiled" not in r[0]))
    )


def whole_models() -> Iterator[Line]:
    """Static int8 beside our own float32, PyTorch's int8 and onnxruntime's, all compiled with frozen weights."""
    threads = flambeau.get_num_threads()
    for name in integer_models.MODELS:
        yield Line(f"{name}, int8", 0, integer_models.runs_of(name, libraries(), threads))


# ---------------------------------------------------------------------------------------------- measuring

SECTIONS = (products, decoding, decoder, convolutions, autocast, bfloat16_networks, whole_models)


def best_times(runs: Runs, rounds: int) -> dict[str, float]:
    """The shortest call of each, taken in turns."""
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run(), run()
    for _ in range(rounds):
        for name, run in runs.items():
            end = time.perf_counter() + 0.15
            while True:
                start = time.perf_counter()
                run()
                now = time.perf_counter()
                best[name] = min(best[name], now - start)
                if now > end:
                    break
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    for lib in libraries().values():
        lib.set_num_threads(options.threads)
    print(f"instruction set {flambeau._C._cpu_capability()}, {options.threads} threads")
    results = []
    for section in SECTIONS:
        if not re.search(options.only, section.__name__):
            continue
        for line in section():
            times = best_times(line.runs, options.rounds)
            first, *others = times
            ratio = times[first] / min(times[name] for name in others) if others else float("nan")
            cells = [f"{name} {time * 1e3:.3f} ms" for name, time in times.items()]
            if line.work:
                cells.append(f"{line.work / times[first] / 1e9:.0f} GOP/s")
            print(f"{line.name}: {', '.join(cells)}; ratio {ratio:.2f}", flush=True)
            results.append({"name": line.name, "seconds": times, "ratio": ratio})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
