"""Ways out of Python: time to script, trace, export and write ONNX, and scripted and traced models beside compiled ones.

    python benchmarks/scripts.py [--save]

Times of the first kind are CPU milliseconds of the first call in the process, with the modules that it loads, and the best of three with fresh models; those of the second kind are the
fastest of several runs of an inference, on one thread. `--save` writes benchmarks/results/scripts.txt.
"""

from __future__ import annotations

import io
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau as fl
from flambeau import nn

LIMITS = {
    ("script", "resnet18"): 60, ("script", "gpt"): 40, ("trace", "resnet18"): 150, ("trace", "gpt"): 100,
    ("export", "resnet18"): 40, ("export", "gpt"): 40, ("onnx", "resnet18"): 400, ("onnx", "gpt"): 300,
}  # fmt: skip


class Gate(nn.Module):
    """A model that branches on what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(64, 64), nn.Linear(64, 64), nn.LayerNorm(64)

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        for _ in range(4):
            h = self.norm(self.first(x)).relu()
            if bool(h.sum() > 0):
                x = x + self.second(h).tanh() * 2
            else:
                x = x - self.second(h).sigmoid() * 3
        return x


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        batch, length, width = x.size(0), x.size(1), x.size(2)
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def task(name: str) -> tuple[Any, Any]:
    """A model with an input."""
    if name == "resnet18":
        return fl.vision.models.resnet18().eval(), fl.randn(1, 3, 64, 64)
    blocks = [Block(128, 4) for _ in range(4)]
    return nn.Sequential(nn.Embedding(256, 128), *blocks, nn.LayerNorm(128), nn.Linear(128, 256)).eval(), fl.randint(
        0, 256, (2, 32)
    )


def cpu_ms(call: Callable[[Any, Any], Any], model: Any, example: Any) -> float:
    begin = time.process_time()
    call(model, example)
    return (time.process_time() - begin) * 1e3


def leaving(name: str) -> dict[str, tuple[float, float]]:
    """CPU milliseconds of each way out of Python: of the first model in the process, and the best of three."""
    fresh = [task(name) for _ in range(3)]
    ways: dict[str, Callable[[Any, Any], Any]] = {
        "script": lambda m, x: fl.jit.script(m),
        "trace": lambda m, x: fl.jit.trace(m, x, check_trace=False),
        "export": lambda m, x: fl.export.export(m, (x,)),
        "onnx": lambda m, x: fl.onnx.export(m, (x,)).save(io.BytesIO()),
    }
    times = {}
    for way, leave in ways.items():
        each = [cpu_ms(leave, model, example) for model, example in fresh]
        times[way] = (each[0], min(each))
    return times


def microseconds(call: Callable[[Any], Any], x: Any) -> float:
    for _ in range(12):
        call(x)
    best = float("inf")
    for _ in range(7):
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 0.1:
            call(x)
            count += 1
        best = min(best, (time.perf_counter() - begin) / count)
    return best * 1e6


def steady(model: Any, x: Any) -> tuple[float, float | None, float | None]:
    """Compiled, scripted and traced, in microseconds of a call."""
    fl.set_num_threads(1)
    compiled = fl.compile(model)
    with fl.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = None if isinstance(model, Gate) else fl.jit.trace(model, x)
        forms = (compiled, fl.jit.script(model), traced)
        return tuple(None if form is None else microseconds(form, x) for form in forms)  # type: ignore[return-value]


def main(arguments: list[str]) -> None:
    lines = ["way       model      first ms    best ms   at most"]
    for name in ("resnet18", "gpt"):
        for way, (first, best) in leaving(name).items():
            lines.append(f"{way:9} {name:10} {first:8.1f} {best:10.1f} {LIMITS[way, name]:9}")
    lines += ["", "one thread   compiled us   scripted     traced   scripted / compiled   traced / compiled"]
    mlp = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh())
    cases = {
        "tiny mlp": (mlp.eval(), fl.randn(4, 16)),
        "branches": (Gate().eval(), fl.randn(16, 64)),
        "resnet18": task("resnet18"),
        "gpt": task("gpt"),
    }
    for name, (model, x) in cases.items():
        compiled, scripted, traced = steady(model, x)
        ratios = [f"{form / compiled:8.2f}" if form else "       -" for form in (scripted, traced)]
        lines.append(
            f"{name:10} {compiled:13.1f} {scripted:10.1f} {traced or 0:10.1f}              {ratios[0]}            {ratios[1]}"
        )
    print("\n".join(lines))
    if "--save" in arguments:
        (Path(__file__).parent / "results" / "scripts.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
