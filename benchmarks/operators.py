"""Single operators of eager flambeau beside PyTorch's, forward and backward, worst ratios first.

    python benchmarks/operators.py [--only REGEX] [--seconds 0.05] [--above 1.15]

Sizes are those of models: a million elements, and 16 thousand. Both libraries run in this process on one thread and
take turns; what counts is the best processor time of a call, which other programs on the machine disturb least.
"""

from __future__ import annotations

import argparse
import re
import time
import warnings
from collections.abc import Callable
from typing import Any

Made = Callable[[Any], Callable[[], Any]]  # of a library: the call to measure

UNARY = "exp tanh sigmoid relu sqrt abs log sin erf floor neg reciprocal rsqrt tril nan_to_num isnan".split()
ACTIVATIONS = "silu gelu elu softplus leaky_relu hardswish mish".split()
FOLDS = "var std cumsum argmax amax prod logsumexp sum".split()
WITHOUT_GRADIENT = ("argmax", "isnan", "sort", "gt", "in place", "integers", "random")
IMAGE = (16, 64, 32, 32)


class Cases:
    """Calls by name, each with a backward of its own where it has one."""

    def __init__(self) -> None:
        self.found: dict[str, Made] = {}

    def add(
        self, name: str, call: Callable[..., Any], *shapes: tuple[int, ...], dtypes: str = "float32 bfloat16"
    ) -> None:
        for dtype in dtypes.split():
            title = name if dtype == "float32" else f"{name} {dtype}"
            self.found[title] = lambda torch, dtype=dtype: _forward(torch, call, shapes, dtype)
            if not name.startswith(WITHOUT_GRADIENT) and dtype in ("float32", "bfloat16"):
                self.found[f"{title} backward"] = lambda torch, dtype=dtype: _backward(torch, call, shapes, dtype)


def _tensors(torch: Any, shapes: tuple[tuple[int, ...], ...], dtype: str) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(*shape).to(getattr(torch, dtype)) for shape in shapes]


def _forward(
    torch: Any, call: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], dtype: str
) -> Callable[[], Any]:
    tensors = _tensors(torch, shapes, dtype)
    return lambda: call(torch, *tensors)


def _backward(
    torch: Any, call: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], dtype: str
) -> Callable[[], Any]:
    tensors = [t.requires_grad_() for t in _tensors(torch, shapes, dtype)]
    out = call(torch, *tensors)
    grad = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, tensors, grad, retain_graph=True)


def elementwise(cases: Cases, size: str, shape: tuple[int, int]) -> None:
    for op in UNARY:
        cases.add(f"{op} {size}", lambda t, x, op=op: getattr(t, op)(x), shape)
    for op in ACTIVATIONS:
        cases.add(f"{op} {size}", lambda t, x, op=op: getattr(t.nn.functional, op)(x), shape)
    cases.add(f"log_softmax {size}", lambda t, x: t.log_softmax(x, -1), shape)
    cases.add(f"clamp {size}", lambda t, x: x.clamp(-1, 1), shape)
    for power in (2, 3, 2.5):
        cases.add(f"pow {power} {size}", lambda t, x, p=power: x.abs() ** p, shape)
    cases.add(f"div {size}", lambda t, x, y: x / y, shape, shape)
    cases.add(f"maximum {size}", lambda t, x, y: t.maximum(x, y), shape, shape)
    cases.add(f"gt {size}", lambda t, x, y: x > y, shape, shape)
    cases.add(f"addcmul {size}", lambda t, x, y, z: t.addcmul(x, y, z, value=0.5), shape, shape, shape)
    cases.add(f"in place add {size}", lambda t, x, y: x.add_(y, alpha=1e-9), shape, shape)
    cases.add(f"where {size}", lambda t, x: t.where(x > 0, x, 0.0), shape)
    cases.add(f"masked_fill {size}", lambda t, x: x.masked_fill(x > 0, 0.0), shape)
    cases.add(f"dropout {size}", lambda t, x: t.nn.functional.dropout(x, 0.1, True), shape)
    cases.add(f"random uniform {size}", lambda t, x: t.rand_like(x), shape)
    cases.add(f"random normal {size}", lambda t, x: t.randn_like(x), shape)
    for dtype in ("int64", "int32", "uint8"):
        cases.add(f"integers add {size}", lambda t, x, y: x + y, shape, shape, dtypes=dtype)
        cases.add(f"integers sum {size}", lambda t, x: x.sum(1), shape, dtypes=dtype)
        cases.add(f"integers divided {size}", lambda t, x: x // 3, shape, dtypes=dtype)


def folds_and_copies(cases: Cases, size: str, shape: tuple[int, int]) -> None:
    for dim in (0, 1):
        for op in FOLDS:
            cases.add(f"{op} dim {dim} {size}", lambda t, x, op=op, dim=dim: getattr(t, op)(x, dim), shape)
        cases.add(f"norm dim {dim} {size}", lambda t, x, dim=dim: x.norm(dim=dim), shape)
        cases.add(f"cat dim {dim} {size}", lambda t, x, y, dim=dim: t.cat((x, y), dim), shape, shape)
        cases.add(f"stack dim {dim} {size}", lambda t, x, y, dim=dim: t.stack((x, y), dim), shape, shape)
    cases.add(f"sort {size}", lambda t, x: x.sort(-1)[0], shape)
    cases.add(f"topk {size}", lambda t, x: x.topk(10, -1)[0], shape)
    cases.add(f"flip {size}", lambda t, x: x.flip(1), shape)
    cases.add(f"roll {size}", lambda t, x: x.roll(3, 1), shape)
    cases.add(f"repeat {size}", lambda t, x: x.repeat(2, 2), shape)
    cases.add(f"every second {size}", lambda t, x, y: x[:, ::2] * y[:, ::2], shape, shape)
    cases.add(f"copy of transposed {size}", lambda t, x: x.t().contiguous(), shape)
    cases.add(f"cosine_similarity {size}", lambda t, x, y: t.nn.functional.cosine_similarity(x, y), shape, shape)
    cases.add(f"normalize {size}", lambda t, x: t.nn.functional.normalize(x), shape)


def indexed(cases: Cases) -> None:
    square = (1000, 1000)

    def rows(t: Any) -> Any:
        return (t.arange(1000) * 7919) % 1000

    cases.add("index rows", lambda t, x: x[rows(t)], square)
    cases.add("index_select columns", lambda t, x: x.index_select(1, rows(t)), square)
    for dim in (0, 1):
        cases.add(
            f"gather dim {dim}",
            lambda t, x, dim=dim: x.gather(dim, rows(t).unsqueeze(1 - dim).expand(1000, 1000)),
            square,
        )
    cases.add("embedding", lambda t, w: t.nn.functional.embedding(rows(t), w), (1000, 256))
    cases.add("index_add", lambda t, x: t.zeros_like(x).index_add(0, rows(t), x), (1000, 256))
    cases.add(
        "searchsorted", lambda t, x: t.searchsorted(t.arange(1000.0), x.detach()) + 0 * x, square, dtypes="float32"
    )


def networks(cases: Cases) -> None:
    for mode in ("reflect", "replicate", "circular", "constant"):
        cases.add(f"pad {mode}", lambda t, x, mode=mode: t.nn.functional.pad(x, (1, 1, 1, 1), mode), IMAGE)
    for op, options in (
        ("max_pool2d", (2,)), ("max_pool2d", (3, 2, 1)), ("avg_pool2d", (2,)), ("adaptive_avg_pool2d", (1,)),
        ("adaptive_avg_pool2d", (7,)), ("pixel_shuffle", (2,)), ("group_norm", (8,)), ("instance_norm", ()),
    ):  # fmt: skip
        cases.add(
            f"{op} {options}", lambda t, x, op=op, options=options: getattr(t.nn.functional, op)(x, *options), IMAGE
        )
    for mode in ("nearest", "bilinear", "bicubic"):
        cases.add(
            f"interpolate {mode}",
            lambda t, x, mode=mode: t.nn.functional.interpolate(x, scale_factor=2, mode=mode),
            (4, 32, 32, 32),
        )
    cases.add(
        "batch_norm", lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True), IMAGE, (64,), (64,)
    )
    cases.add("layer_norm", lambda t, x, w: t.nn.functional.layer_norm(x, (768,), w), (1024, 768), (768,))
    cases.add("conv1d", lambda t, x, w: t.nn.functional.conv1d(x, w, padding=1), (8, 64, 512), (64, 64, 3))
    cases.add("conv2d 1x1", lambda t, x, w: t.nn.functional.conv2d(x, w), (4, 64, 32, 32), (128, 64, 1, 1))
    cases.add(
        "conv2d depthwise",
        lambda t, x, w: t.nn.functional.conv2d(x, w, padding=1, groups=64),
        (4, 64, 32, 32),
        (64, 1, 3, 3),
    )
    cases.add(
        "conv_transpose2d",
        lambda t, x, w: t.nn.functional.conv_transpose2d(x, w, stride=2, padding=1),
        (4, 64, 16, 16),
        (64, 32, 4, 4),
    )
    cases.add("bmm of 8x8", lambda t, x, y: t.bmm(x, y), (512, 8, 8), (512, 8, 8))
    cases.add("bmm of 16x64", lambda t, x, y: t.bmm(x, y), (64, 16, 64), (64, 64, 16))
    cases.add("mm of 128", lambda t, x, y: x @ y, (128, 128), (128, 128))
    cases.add("mm of 512", lambda t, x, y: x @ y, (512, 512), (512, 512))
    cases.add("einsum", lambda t, x, y: t.einsum("bhqd,bhkd->bhqk", x, y), (4, 4, 64, 32), (4, 4, 64, 32))


def measured(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The best processor time of each call, in seconds."""
    best, counts = [float("inf")] * len(calls), []
    for call in calls:
        call()
        start = time.thread_time()
        call()
        counts.append(max(1, int(1e-3 / max(time.thread_time() - start, 1e-6))))
    end, rounds = time.process_time() + seconds, 0
    while time.process_time() < end or rounds < 4:
        rounds += 1
        for i, call in enumerate(calls):
            start = time.thread_time()
            for _ in range(counts[i]):
                call()
            best[i] = min(best[i], (time.thread_time() - start) / counts[i])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".", help="regular expression over names")
    parser.add_argument("--seconds", type=float, default=0.05, help="for each case")
    parser.add_argument("--above", type=float, default=0.0, help="list ratios from here on only")
    args = parser.parse_args()

    import torch

    import flambeau

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    flambeau.set_num_threads(1)
    cases = Cases()
    for size, shape in (("1M", (1000, 1000)), ("16k", (64, 256))):
        elementwise(cases, size, shape)
        folds_and_copies(cases, size, shape)
    indexed(cases)
    networks(cases)
    rows = []
    for name, make in cases.found.items():
        if not re.search(args.only, name):
            continue
        theirs, ours = measured([make(torch), make(flambeau)], args.seconds)
        rows.append((ours / theirs, name, ours, theirs))
    for ratio, name, ours, theirs in sorted(rows, reverse=True):
        if ratio >= args.above:
            print(f"{name:44} {ours * 1e6:10.1f} us  torch {theirs * 1e6:10.1f} us   x {ratio:.2f}")
    print(f"{len(rows)} cases, {sum(r[0] > 1.15 for r in rows)} above 1.15, {sum(r[0] > 1 for r in rows)} above 1")


if __name__ == "__main__":
    main()
