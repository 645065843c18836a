"""How near fused kernels come to the speed of the GPU's memory: bytes that must be read and written over the time of a copy.

    python benchmarks/cuda_bandwidth.py [--mode MODE] [--json FILE]

Each function is compiled, forward and backward, on bfloat16 matrices that are several times as large as the cache. Bytes are
counted once for each tensor that a pass has to read or write, whatever the kernels do. The yardstick is a device-to-device copy
of the same process.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import flambeau as fl
import flambeau.nn.functional as F

ROWS, WIDTH = 131072, 4096


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (WIDTH,), w, b)


def softmax(x: Any) -> Any:
    return F.softmax(x, -1)


def norm_and_rotation(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    wide = x.float()
    y = (wide * fl.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * w
    first, second = y.chunk(2, -1)
    return y * cos + fl.cat((-second, first), -1) * sin


def dropout_add_norm(x: Any, rest: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(rest + F.dropout(x, 0.1, True), (WIDTH,), w, b)


def cross_entropy(x: Any, target: Any) -> Any:
    return F.cross_entropy(x.float(), target)


def matrix() -> Any:
    return fl.randn(ROWS, WIDTH, device="cuda").bfloat16().requires_grad_()


def vector() -> Any:
    return fl.randn(WIDTH, device="cuda").bfloat16().requires_grad_()


def constant() -> Any:
    """A row of a table, as those of rotary embeddings are, without a gradient."""
    return fl.randn(WIDTH, device="cuda").bfloat16()


# Function, inputs, and how many tensors as large as a matrix forward and backward read and write. Forward of dropout, sum and
# norm writes the sum and the mask (a byte for each element, half a matrix), which backward reads.
CASES: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]], float, float]] = {
    "layer norm": (layer_norm, lambda: [matrix(), vector(), vector()], 2, 3),
    "softmax": (softmax, lambda: [matrix()], 2, 3),
    "RMS norm and rotary embedding": (
        norm_and_rotation, lambda: [matrix(), vector(), constant(), constant()], 2, 3
    ),
    "dropout, sum and layer norm": (dropout_add_norm, lambda: [matrix(), matrix(), vector(), vector()], 4.5, 4.5),
    "cross entropy": (
        cross_entropy, lambda: [matrix(), fl.randint(0, WIDTH, (ROWS,)).cuda()], 1, 2
    ),
}  # fmt: skip


def milliseconds(step: Callable[[], Any], prepare: Callable[[], Any] | None = None) -> float:
    """The median time of the device."""
    times = []
    for _ in range(12):
        if prepare is not None:
            prepare()
        first, last = fl.cuda.Event(enable_timing=True), fl.cuda.Event(enable_timing=True)
        first.record()
        step()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times[2:])


def measure(name: str, copied: float, mode: str | None = None) -> dict[str, Any]:
    """The shares of the copy's bytes a second, forward and backward."""
    function, make, forward, backward = CASES[name]
    inputs = make()
    compiled = fl.compile(function, mode=mode)
    output = compiled(*inputs)
    gradient = fl.randn_like(output)
    output.backward(gradient)
    held: list[Any] = []

    def prepare() -> None:
        for t in inputs:
            t.grad = None
        held[:] = [compiled(*inputs)]

    times = milliseconds(lambda: compiled(*inputs)), milliseconds(lambda: held[0].backward(gradient), prepare)
    size = ROWS * WIDTH * 2
    shares = [count * size / (ms * 1e-3) / copied for count, ms in zip((forward, backward), times)]
    return {
        "function": name,
        "forward, ms": times[0],
        "backward, ms": times[1],
        "forward": shares[0],
        "backward": shares[1],
    }


def copy_speed() -> float:
    """Bytes a second, read and written, of a copy that is larger than the cache."""
    source = fl.empty(1 << 30, dtype=fl.uint8, device="cuda")
    target = fl.empty_like(source)
    return 2 * source.numel() / (milliseconds(lambda: target.copy_(source)) * 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--mode", help="of compile")
    options = parser.parse_args()
    copied = copy_speed()
    print(f"a copy moves {copied / 1e12:.2f} TB/s")
    results = [measure(name, copied, options.mode) for name in CASES]
    print("| share of it | forward | backward |\n|---|---|---|")
    for r in results:
        print(f"| {r['function']} | {r['forward']:.0%} | {r['backward']:.0%} |")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps([{"copy, B/s": copied}, *results], indent=1) + "\n")


if __name__ == "__main__":
    main()
