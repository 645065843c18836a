"""The seven figures of devices: an outside device, OpenCL, lazy tensors and XLA, each beside what it is measured against.

    python benchmarks/devices.py [--steps 200] [--gpt-steps 10] [--only lines,overhead,...] [--json FILE]

Prints a line for each figure: what it is, its value, and the most that it may be. One whose library is not installed is left
out with a message. Times are the best of rounds in which the sides take turns, on one thread; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import itertools
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


def training_step(task: Any, device: str, compiled: bool = False, finish: Step = lambda: None) -> Step:
    """A training step with SGD."""
    model = task.model.to(device)
    optimizer = fl.optim.SGD(model.parameters(), lr=0.01)
    x, y = (t.to(device) for t in task.batch(0))

    def forward(x: Any, y: Any) -> Any:
        return task.loss(model(x), y)

    loss_of = fl.compile(forward, fullgraph=True) if compiled else forward

    def step() -> None:
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()
        finish()

    return step


# Sizes of layers and batch: a small MLP, whose step is what the host does between kernels, and one whose step is arithmetic.
MLPS = {"small MLP": ((100, 50, 10), 32), "MLP": ((784, 256, 128, 10), 128)}


def mlp(name: str) -> models.Task:
    sizes, batch = MLPS[name]
    fl.manual_seed(0)
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [fl.nn.Linear(inputs, outputs), fl.nn.ReLU()]
    data = fl.randn(batch, sizes[0]), fl.randint(0, sizes[-1], (batch,))
    return models.Task(fl.nn.Sequential(*layers[:-1]), lambda step: data, F.cross_entropy)


# ---------------------------------------------------------------- the figures


def lines(options: Any) -> list[Figure]:
    """Lines of an out-of-tree device that brings memory, a copy and a printer; `flambeau device-check` says what it passes."""
    path = Path(__file__).resolve().parents[1] / "examples" / "chip" / "mychip" / "device.py"
    count = len(path.read_text().splitlines())
    return [Figure("lines of a device with a printer", count, 500, "examples/chip/mychip/device.py")]


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

    figures = []
    for name in MLPS:
        sides = {
            "OpenCL": training_step(mlp(name), "opencl", True, module.device.synchronize),
            "CPU": training_step(mlp(name), "cpu", True),
        }
        figures.append(ratio(f"OpenCL, compiled training step / the CPU's, {name}", 2, sides, options.steps))
    return figures


def lazy_mlp(options: Any) -> list[Figure]:
    figures = []
    for name in MLPS:
        sides = {
            "lazy": training_step(mlp(name), "lazy", finish=lazy.mark_step), "eager": training_step(mlp(name), "cpu"),
            "compile": training_step(mlp(name), "cpu", True),
        }  # fmt: skip
        figures.append(ratio(f"lazy training step / eager, {name}", 0.5, sides, options.steps))
    return figures


def lazy_gpt(options: Any) -> list[Figure]:
    sides = {
        "lazy": training_step(models.make(fl, "gpt", options.small), "lazy", finish=lazy.mark_step),
        "compile": training_step(models.make(fl, "gpt", options.small), "cpu", True),
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


def jax_step(task: models.Task) -> Step:
    """Loss and gradients of the same MLP in JAX: the same weights in the same layout, data as arguments."""
    import jax
    import jax.numpy as jnp

    weights = [jnp.asarray(p.detach().numpy()) for p in task.model.parameters()]
    x, y = (jnp.asarray(t.numpy()) for t in task.batch(0))

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for at in range(0, len(weights), 2):
            x = (jax.nn.relu(x) if at else x) @ weights[at].T + weights[at + 1]
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    step = jax.jit(jax.value_and_grad(loss))
    return lambda: jax.block_until_ready(step(weights, x, y))


def xla_step(task: models.Task) -> Step:
    from flambeau import xla as module

    model = task.model.to("xla")
    x, y = (t.to("xla") for t in task.batch(0))

    def step() -> None:
        model.zero_grad()
        loss = task.loss(model(x), y)  # held until the program has run, so that it is a result as in JAX
        loss.backward()
        module.sync()

    return step


def xla(options: Any) -> list[Figure]:
    """Forward and backward on XLA against JAX doing the same."""
    import jax  # noqa: F401

    figures = []
    for name in MLPS:
        sides = {"XLA": xla_step(mlp(name)), "JAX": jax_step(mlp(name))}
        figures.append(ratio(f"XLA, forward and backward / JAX, {name}", 1.2, sides, options.steps))
    return figures


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
