"""Eager operators on a GPU beside PyTorch, one by one, as ratios: below 1 flambeau is faster.

    python benchmarks/cuda_operators.py [REGEX]      needs a CUDA device and PyTorch

Both libraries run in this process, one after the other for each case. Times are the best of three loops that end when the
device is done, so that whatever is slower counts, the host or the device. Cases in which PyTorch is faster are listed
last, the worst first.
"""

from __future__ import annotations

import functools
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch as pytorch

import flambeau

Call = Callable[[], Any]
Cases = Iterator[tuple[str, Call]]


def microseconds(lib: Any, call: Call) -> float:
    call()
    lib.cuda.synchronize()
    start = time.perf_counter()
    call()
    lib.cuda.synchronize()
    count = max(2, min(40, int(0.02 / max(time.perf_counter() - start, 1e-6))))
    best = math.inf
    for _ in range(3):
        lib.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        lib.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / count)
    return best * 1e6


def with_gradients(lib: Any, call: Call, *leaves: Any) -> Call:
    """A call that also finds the gradients of some tensors."""
    for leaf in leaves:
        leaf.requires_grad_()

    def run() -> Any:
        output = call()
        return lib.autograd.grad(output, leaves, lib.ones_like(output))

    return run


def many(lib: Any, names: str, module: Any, *args: Any) -> Cases:
    for name in names.split():
        yield name, lambda name=name: getattr(module, name)(*args)


def pointwise(lib: Any) -> Cases:
    x = lib.randn(4096, 4096, device="cuda")
    y = lib.rand(4096, 4096, device="cuda") + 0.5
    functions = (
        "exp sin tanh erf sigmoid sqrt rsqrt log1p abs neg floor sign reciprocal square digamma lgamma erfinv isnan"
    )
    yield from many(lib, functions, lib, x)
    yield from many(lib, "atan2 fmod remainder pow maximum logaddexp hypot", lib, y, y)
    brain = x.to(lib.bfloat16)
    for name in "gelu silu mish hardswish elu selu softplus logsigmoid leaky_relu dropout".split():
        yield f"{name} and back", with_gradients(lib, lambda name=name: getattr(lib.nn.functional, name)(brain), brain)
    z = lib.randn(2048, 2048, device="cuda", dtype=lib.complex64)
    mask, row, column = x > 0, y[0].clone(), y[:, :1].clone()
    yield "where", lambda: lib.where(mask, x, 0.0)
    yield "masked_fill", lambda: x.masked_fill(mask, 0.0)
    yield "x + row", lambda: x + row
    yield "x * column", lambda: x * column
    yield "x.t() + x", lambda: x.t() + x
    yield "complex product", lambda: z * z
    yield "clamp", lambda: x.clamp(-1, 1)
    yield "lerp", lambda: x.lerp(y, 0.5)
    yield "addcmul", lambda: lib.addcmul(x, y, y)
    yield "to bfloat16", lambda: x.to(lib.bfloat16)
    yield "to int64", lambda: x.to(lib.int64)
    yield "allclose", lambda: lib.allclose(x, x)


def reductions(lib: Any) -> Cases:
    x = lib.randn(4096, 4096, device="cuda")
    for dim in (0, 1):
        for name, call in many(lib, "sum mean amax argmax max var logsumexp prod softmax log_softmax", lib, x, dim):
            yield f"{name} of dim {dim}", call
        yield f"all of dim {dim}", lambda dim=dim: (x > 0).all(dim)
        brain = x.to(lib.bfloat16)
        back = with_gradients(lib, lambda dim=dim, brain=brain: brain.softmax(dim), brain)
        yield f"softmax of dim {dim}, bfloat16, and back", back
    yield from many(lib, "sum norm std", lib, x)
    images, rows = lib.randn(64, 128, 56, 56, device="cuda"), lib.randn(1 << 20, 16, device="cuda").to(lib.bfloat16)
    cube, lines = lib.randn(64, 256, 1024, device="cuda"), lib.randn(8, 1 << 22, device="cuda")
    yield "sum of channels", lambda: images.sum((0, 2, 3))
    yield "sum of rows of 16", lambda: rows.sum(1)
    yield "sum in the middle", lambda: cube.sum(1)
    yield "sum of long rows", lambda: lines.sum(1)
    yield "any NaN", lambda: lib.isnan(x).any()


def orders(lib: Any) -> Cases:
    square, long = lib.randn(1024, 1024, device="cuda"), lib.randn(10_000_000, device="cuda")
    few, classes = lib.randint(0, 1000, (1_000_000,), device="cuda"), lib.randn(32, 50257, device="cuda")
    large, grid = lib.randn(4096, 4096, device="cuda"), lib.randn(2048, 1024, device="cuda")
    for dim in (0, 1):
        yield f"sort of dim {dim}", lambda dim=dim: grid.sort(dim)
        yield f"cumsum of dim {dim}", lambda dim=dim: large.cumsum(dim)
    yield from many(lib, "median mode cummax logcumsumexp", lib, square, 1)
    yield "kthvalue", lambda: square.kthvalue(5, 1)
    yield "quantile", lambda: lib.quantile(square, 0.3, dim=1)
    yield "topk 50 of 50257", lambda: classes.topk(50)
    yield "sort of 10 million", lambda: long.sort()
    yield "cumsum of 10 million", lambda: long.cumsum(0)
    yield from many(lib, "argsort unique bincount", lib, few)
    yield "histc", lambda: long.histc(100)
    likely, edges, mask = classes.softmax(1), lib.arange(100000.0, device="cuda"), large > 0
    yield "multinomial", lambda: lib.multinomial(likely, 1)
    yield "searchsorted", lambda: lib.searchsorted(edges, long)
    yield "nonzero", lambda: mask.nonzero()
    yield "masked_select", lambda: large[mask]
    yield "isin", lambda: lib.isin(few, few[:100])


def places(lib: Any) -> Cases:
    x, table = lib.randn(4096, 4096, device="cuda"), lib.randn(100000, 256, device="cuda")
    rows, near = lib.randint(0, 100000, (50000,), device="cuda"), lib.randint(0, 4096, (4096, 1024), device="cuda")
    values, source = lib.rand(50000, 256, device="cuda"), lib.rand(4096, 1024, device="cuda")
    heads, images = lib.randn(16, 1024, 16, 64, device="cuda"), lib.randn(32, 128, 56, 56, device="cuda")
    yield "x.t().contiguous()", lambda: x.t().contiguous()
    yield "heads first", lambda: heads.permute(0, 2, 1, 3).contiguous()
    yield "channels last", lambda: images.contiguous(memory_format=lib.channels_last)
    yield "every second column", lambda: x[:, ::2].contiguous()
    yield "cat", lambda: lib.cat([x, x, x], 1)
    yield "stack", lambda: lib.stack([x, x])
    yield from many(lib, "clone tril diff zeros_like rand_like randn_like", lib, x)
    yield "roll", lambda: x.roll(5, 1)
    yield "flip", lambda: x.flip(1)
    yield "repeat", lambda: x.repeat(1, 2)
    yield "repeat_interleave", lambda: x.repeat_interleave(2, 1)
    yield "x[rows]", lambda: table[rows]
    yield "gather", lambda: x.gather(1, near)
    yield "scatter_add", lambda: x.scatter_add(1, near, source)
    yield "scatter_reduce", lambda: x.scatter_reduce(1, near, source, "amax")
    yield "index_add", lambda: table.index_add(0, rows, values)
    yield "index_put, adding", lambda: table.index_put((rows,), values, accumulate=True)
    yield "randperm", lambda: lib.randperm(1_000_000, device="cuda")
    yield "arange", lambda: lib.arange(1_000_000, device="cuda")
    yield "linspace", lambda: lib.linspace(0, 1, 1_000_000, device="cuda")
    yield "item", lambda: x[0, 0].item()


def losses(lib: Any) -> Cases:
    F = lib.nn.functional
    scores, words = (
        lib.randn(8192, 50257, device="cuda").to(lib.bfloat16),
        lib.randint(0, 50257, (8192,), device="cuda"),
    )
    yield "cross_entropy and back", with_gradients(lib, lambda: F.cross_entropy(scores, words), scores)
    x, y = lib.randn(4096, 4096, device="cuda"), lib.rand(4096, 4096, device="cuda")
    for name in "mse_loss smooth_l1_loss binary_cross_entropy_with_logits kl_div".split():
        yield f"{name} and back", with_gradients(lib, lambda name=name: getattr(F, name)(x, y), x)
    speech = lib.randn(200, 16, 64, device="cuda").log_softmax(2)
    labels = lib.randint(1, 64, (16, 30), device="cuda")
    lengths = (200,) * 16, (30,) * 16
    yield "ctc_loss and back", with_gradients(lib, lambda: F.ctc_loss(speech, labels, *lengths), speech)
    table, ids = lib.randn(50257, 768, device="cuda"), lib.randint(0, 50257, (8, 1024), device="cuda")
    yield "embedding and back", with_gradients(lib, lambda: F.embedding(ids, table), table)
    yield "embedding_bag and back", with_gradients(lib, lambda: F.embedding_bag(ids, table), table)


def layers(lib: Any) -> Cases:
    F = lib.nn.functional
    x = lib.randn(16, 64, 64, 64, device="cuda")
    grid = lib.rand(16, 64, 64, 2, device="cuda") * 2 - 1
    for mode in ("nearest", "bilinear", "bicubic"):
        yield (
            f"interpolate, {mode}, and back",
            with_gradients(lib, lambda mode=mode: F.interpolate(x, scale_factor=2, mode=mode), x),
        )
    yield "grid_sample and back", with_gradients(lib, lambda: F.grid_sample(x, grid, align_corners=False), x, grid)
    yield "avg_pool2d and back", with_gradients(lib, lambda: F.avg_pool2d(x, 2), x)
    yield "adaptive_avg_pool2d and back", with_gradients(lib, lambda: F.adaptive_avg_pool2d(x, 7), x)
    yield "instance_norm and back", with_gradients(lib, lambda: F.instance_norm(x), x)
    yield "pixel_shuffle and back", with_gradients(lib, lambda: F.pixel_shuffle(x, 2), x)
    yield "unfold and back", with_gradients(lib, lambda: F.unfold(x, 3), x)
    yield "reflected edges and back", with_gradients(lib, lambda: F.pad(x, (3, 3, 3, 3), mode="reflect"), x)
    odd, wide = lib.randn(4096, 1000, device="cuda"), lib.randn(8192, 4096, device="cuda").to(lib.bfloat16)
    yield "layer_norm of 1000 and back", with_gradients(lib, lambda: F.layer_norm(odd, (1000,)), odd)
    yield "rms_norm and back", with_gradients(lib, lambda: F.rms_norm(wide, (4096,)), wide)
    for dtype in (lib.bfloat16, lib.float32):
        for name, function, size, kernel, options in CONVOLUTIONS:
            a, w = lib.randn(size, device="cuda").to(dtype), lib.randn(kernel, device="cuda").to(dtype)
            call = functools.partial(getattr(F, function), a, w, **options)
            yield f"{name}, {str(dtype).split('.')[-1]}, and back", with_gradients(lib, call, a, w)
    for kind in ("LSTM", "GRU", "RNN"):
        module, steps = getattr(lib.nn, kind)(256, 256).cuda(), lib.randn(64, 32, 256, device="cuda")
        yield f"{kind} and back", with_gradients(lib, lambda m=module, s=steps: m(s)[0], *module.parameters())


CONVOLUTIONS: list[tuple[str, str, tuple[int, ...], tuple[int, ...], dict[str, int]]] = [
    ("conv1d", "conv1d", (32, 256, 2048), (256, 256, 3), {"padding": 1}),
    ("conv3d", "conv3d", (4, 32, 16, 56, 56), (64, 32, 3, 3, 3), {"padding": 1}),
    ("first layer of a ResNet", "conv2d", (64, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ("1 x 1", "conv2d", (64, 256, 28, 28), (512, 256, 1, 1), {}),
    ("32 groups", "conv2d", (32, 256, 28, 28), (256, 8, 3, 3), {"padding": 1, "groups": 32}),
    ("depthwise 3 x 3", "conv2d", (64, 144, 56, 56), (144, 1, 3, 3), {"padding": 1, "groups": 144}),
    ("depthwise 7 x 7", "conv2d", (64, 96, 56, 56), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
    ("transposed", "conv_transpose2d", (32, 128, 28, 28), (128, 64, 4, 4), {"padding": 1, "stride": 2}),
]


def products(lib: Any) -> Cases:
    F = lib.nn.functional
    many_, large = lib.randn(64, 256, 256, device="cuda"), lib.randn(4096, 4096, device="cuda")
    vector, points = lib.randn(4096, device="cuda"), lib.randn(2048, 64, device="cuda")
    yield "bmm and back", with_gradients(lib, lambda: many_ @ many_, many_)
    yield "matrix and vector", lambda: large @ vector
    yield "outer", lambda: lib.outer(vector, vector)
    yield "cdist", lambda: lib.cdist(points, points)

    def heads(*size: int) -> list[Any]:
        return [lib.randn(size, device="cuda").to(lib.bfloat16) for _ in range(3)]

    attend, qkv = F.scaled_dot_product_attention, heads(8, 12, 512, 64)
    mask, wide, cache = lib.rand(512, 512, device="cuda") > 0.3, heads(4, 8, 512, 256), heads(8, 32, 4096, 128)[1:]
    query = heads(8, 32, 1, 128)[0]
    yield "attention and back", with_gradients(lib, lambda: attend(*qkv), *qkv)
    yield "attention with a mask and back", with_gradients(lib, lambda: attend(*qkv, attn_mask=mask), *qkv)
    yield "attention with dropout and back", with_gradients(lib, lambda: attend(*qkv, dropout_p=0.1), *qkv)
    yield "attention of 256 numbers and back", with_gradients(lib, lambda: attend(*wide), *wide)
    yield "attention of one query", lambda: attend(query, *cache)
    for size in ((64, 16, 16), (512, 512)):
        a = lib.randn(size, device="cuda") / size[-1] ** 0.5
        definite = a @ a.mT + 3 * lib.eye(size[-1], device="cuda")
        for name, call in many(lib, "inv cholesky qr svd eigh det", lib.linalg, definite):
            yield f"{name} of {size}", call
    signal, pictures = lib.randn(256, 16384, device="cuda"), lib.randn(32, 256, 256, device="cuda")
    yield "rfft", lambda: lib.fft.rfft(signal)
    yield "rfft2", lambda: lib.fft.rfft2(pictures)


def steps(lib: Any) -> Cases:
    parameters = [lib.nn.Parameter(lib.randn(768, 768, device="cuda")) for _ in range(100)]
    for p in parameters:
        p.grad = lib.randn_like(p)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"):
        yield name, getattr(lib.optim, name)(parameters, lr=1e-3).step
    yield "AdamW, fused", lib.optim.AdamW(parameters, lr=1e-3, fused=True).step
    yield "clip_grad_norm_", lambda: lib.nn.utils.clip_grad_norm_(parameters, 1.0)


def main() -> None:
    wanted = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    rows = []
    for group in (pointwise, reductions, orders, places, losses, layers, products, steps):
        ratios = []
        for (name, ours), (_, theirs) in zip(group(flambeau), group(pytorch)):
            if not wanted.search(name):
                continue
            times = microseconds(flambeau, ours), microseconds(pytorch, theirs)
            ratios.append(times[0] / times[1])
            rows.append((ratios[-1], name, *times))
        if ratios:
            print(f"{group.__name__:<12}{len(ratios):4} cases, geometric mean {mean(ratios):.2f}", flush=True)
    print(f"{'all':<12}{len(rows):4} cases, geometric mean {mean([row[0] for row in rows]):.2f}")
    for ratio, name, ours, theirs in sorted(rows, reverse=True):
        if ratio > 1.1:
            print(f"{ratio:8.2f}  {name:<44}{ours:10.1f} us, PyTorch {theirs:10.1f}")


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


if __name__ == "__main__":
    main()
