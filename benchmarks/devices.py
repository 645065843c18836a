"""The seven figures of devices: an outside device, OpenCL, lazy tensors and XLA, each beside what it is measured against.

    python benchmarks/devices.py [--steps 200] [--gpt-steps 10] [--only lines,overhead,...] [--json FILE]

Prints a line for each figure: what it is, its value, and the most that it may be. One whose library is not installed is left
out with a message. Times are the best of rounds in which the sides take turns, on one thread; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import models

import flambeau as fl
from flambeau import lazy

F = fl.nn.functional
Step = Callable[[], Any]


class Figure(NamedTuple):
    name: str
    value: float
    most: float
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.value:.2f} (at most {self.most:g}); {self.detail}"


def best(sides: dict[str, Step], rounds: int) -> dict[str, float]:
    """The best time of each side in microseconds."""
    times = dict.fromkeys(sides, float("inf"))
    for step in sides.values():
        for _ in range(4):
            step()
    for _ in range(rounds):
        for name, step in sides.items():
            started = time.perf_counter()
            step()
            times[name] = min(times[name], (time.perf_counter() - started) * 1e6)
    return times


def ratio(name: str, most: float, sides: dict[str, Step], rounds: int) -> Figure:
    """The time of the first side over that of the second; the others are shown."""
    times = best(sides, rounds)
    first, second = list(times.values())[:2]
    return Figure(name, first / second, most, ", ".join(f"{side} {t:.0f} µs" for side, t in times.items()))


def training_step(
    name: str, device: str, compiled: bool = False, finish: Step = lambda: None, small: bool = False
) -> Step:
    """A training step with SGD of a model in `models.py`."""
    task = models.make(fl, name, small)
    model = task.model.to(device)
    optimizer = fl.optim.SGD(model.parameters(), lr=0.01)
    x, y = (t.to(device) for t in task.batch(0))

    def forward(x: Any, y: Any) -> Any:
        return task.loss(model(x), y)

    loss_of = fl.compile(forward) if compiled else forward

    def step() -> None:
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()
        finish()

    return step


# ---------------------------------------------------------------- the figures


def lines(options: Any) -> list[Figure]:
    """Lines of a device that brings memory, a copy and a printer: the one in the tree that uses nothing but the public API."""
    path = Path(fl.__file__).parent / "backends" / "opencl.py"
    count = sum(1 for line in path.read_text().splitlines() if line.strip())
    return [Figure("lines of a device with a printer", count, 500, "flambeau/backends/opencl.py, without empty lines")]


def overhead(options: Any) -> list[Figure]:
    """Host time of one operator: on a device written in Python, and recorded."""
    from flambeau.backends import register_device

    register_device(
        "benchchip", pointwise=lambda expr, operands, out, dtype: None, reduction=lambda plan, source, out: None
    )
    x = fl.empty(4, device="benchchip")
    outside = best({"add": lambda: [x + x for _ in range(100)]}, 50)["add"] / 100
    y = fl.ones(4, device="lazy")
    lazy.mark_step()
    recorded = float("inf")
    for _ in range(50):
        z, started = y, time.perf_counter()
        for _ in range(200):
            z = z + y
        recorded = min(recorded, (time.perf_counter() - started) * 1e6 / 200)
        lazy.mark_step()
    return [
        Figure("host time of an eager operator on an outside device, µs", outside, 10, "x + x, hooks that do nothing"),
        Figure("host time of a recorded operator, µs", recorded, 1.5, "x + y on lazy tensors"),
    ]


def opencl(options: Any) -> list[Figure]:
    os.environ.setdefault("POCL_DEVICES", "basic")  # PoCL's driver of one thread, as the CPU has
    from flambeau.backends import opencl as module

    sides = {
        "OpenCL": training_step("mlp", "opencl", True, module.device.synchronize),
        "CPU": training_step("mlp", "cpu", True),
    }
    return [ratio("OpenCL, compiled MLP training step / the CPU's", 2, sides, max(options.steps // 4, 5))]


def lazy_mlp(options: Any) -> list[Figure]:
    sides = {
        "lazy": training_step("mlp", "lazy", finish=lazy.mark_step), "eager": training_step("mlp", "cpu"),
        "compile": training_step("mlp", "cpu", True),
    }  # fmt: skip
    return [ratio("lazy MLP training step / eager", 0.5, sides, options.steps)]


def lazy_gpt(options: Any) -> list[Figure]:
    sides = {
        "lazy": training_step("gpt", "lazy", finish=lazy.mark_step, small=options.small),
        "compile": training_step("gpt", "cpu", True, small=options.small),
    }
    return [ratio("lazy GPT training step / compile", 1.15, sides, options.gpt_steps)]


def compiles(options: Any) -> list[Figure]:
    """Programs made after each of three batch sizes was seen, with a learning rate and dropout that change."""
    model = fl.nn.Sequential(fl.nn.Linear(64, 64), fl.nn.GELU(), fl.nn.Dropout(0.1), fl.nn.Linear(64, 10)).to("lazy")
    optimizer = fl.optim.AdamW(model.parameters())
    sizes, seen, late = (16, 32, 8), set(), 0
    for step in range(1000):
        size = sizes[step % 3] if step > 2 else 16
        before = len(lazy.compilations())
        optimizer.param_groups[0]["lr"] = 0.01 / (step + 1)
        x, y = fl.randn(size, 64, device="lazy"), fl.randint(0, 10, (size,), device="lazy")
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        lazy.mark_step()
        if step >= 3 and size in seen:
            late += len(lazy.compilations()) - before
        seen.add(size)
    return [
        Figure("compiles in steps 3 to 1000 of a lazy loop", late, 0, "after each of three batch sizes was seen once")
    ]


def jax_step(width: int, hidden: int, batch: int) -> Step:
    """Loss and gradients of the same MLP in JAX."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    weights = [jax.random.normal(keys[0], (width, hidden)) / 10, jax.random.normal(keys[1], (hidden, 10)) / 10]
    biases = [jnp.zeros(hidden), jnp.zeros(10)]
    x, y = jax.random.normal(keys[2], (batch, width)), jax.random.randint(keys[3], (batch,), 0, 10)

    def loss(weights: Any, biases: Any) -> Any:
        logits = jax.nn.relu(x @ weights[0] + biases[0]) @ weights[1] + biases[1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    return lambda: jax.block_until_ready(step(weights, biases))


def xla(options: Any) -> list[Figure]:
    """Forward and backward on XLA against JAX doing the same."""
    import jax  # noqa: F401

    from flambeau import xla as module

    task = models.make(fl, "mlp")
    model = task.model.to("xla")
    x, y = (t.to("xla") for t in task.batch(0))

    def step() -> None:
        model.zero_grad()
        task.loss(model(x), y).backward()
        module.sync()

    sides = {"XLA": step, "JAX": jax_step(100, 50, 32)}
    return [ratio("XLA, MLP forward and backward / JAX", 1.2, sides, options.steps)]


FIGURES = {
    "lines": lines, "overhead": overhead, "opencl": opencl, "lazy_mlp": lazy_mlp, "lazy_gpt": lazy_gpt,
    "compiles": compiles, "xla": xla,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--gpt-steps", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="a small GPT, to see that everything runs")
    parser.add_argument("--only", default=",".join(FIGURES), help=f"figures by name (default: {','.join(FIGURES)})")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    fl.set_num_threads(1)
    figures: list[Figure] = []
    for name in options.only.split(","):
        try:
            measured = FIGURES[name](options)
        except (ImportError, NotImplementedError) as why:
            print(f"{name} is left out: {why}", flush=True)
            continue
        for figure in measured:
            print(figure, flush=True)
        figures += measured
    if options.json:
        Path(options.json).write_text(json.dumps([f._asdict() for f in figures], indent=1))


if __name__ == "__main__":
    main()
