"""Figures of devices: host time of an outside operator, lazy training, OpenCL and XLA against the CPU.

    python benchmarks/devices.py [--steps 200]

Prints one line for each figure; those whose library is not installed are left out with a message. Times are the best of
several rounds that take turns, so run it on an idle machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import lazy

F = fl.nn.functional


def best(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The best time of each in microseconds."""
    times = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        for _ in range(3):
            function()
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            times[name] = min(times[name], (time.perf_counter() - started) * 1e6)
    return times


def mlp_step(device: str, compiled: bool = False, finish: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """A training step of a small MLP."""
    fl.manual_seed(0)
    model = fl.nn.Sequential(
        fl.nn.Linear(64, 256), fl.nn.GELU(), fl.nn.Linear(256, 256), fl.nn.GELU(), fl.nn.Linear(256, 10)
    )
    model = model.to(device)
    optimizer = fl.optim.SGD(model.parameters(), lr=0.01)
    x, y = fl.randn(64, 64).to(device), fl.randint(0, 10, (64,)).to(device)
    forward = (
        fl.compile(lambda x, y: F.cross_entropy(model(x), y)) if compiled else lambda x, y: F.cross_entropy(model(x), y)
    )

    def step() -> None:
        optimizer.zero_grad()
        forward(x, y).backward()
        optimizer.step()
        finish()

    return step


def overhead() -> None:
    from flambeau.backends import register_device

    register_device(
        "benchchip", pointwise=lambda expr, operands, out, dtype: None, reduction=lambda plan, source, out: None
    )
    x = fl.empty(4, device="benchchip")
    times = best({"add": lambda: [x + x for _ in range(100)]}, 50)
    print(f"eager operator on an outside device, host time: {times['add'] / 100:.2f} µs")
    y = fl.empty(4, device="lazy")

    def recorded() -> None:
        z = y
        for _ in range(100):
            z = z + y
        lazy.mark_step()

    times = best({"record": recorded}, 50)
    print(f"recording and running 100 lazy additions: {times['record'] / 100:.2f} µs each")


def training(steps: int) -> None:
    times = best(
        {"eager": mlp_step("cpu"), "lazy": mlp_step("lazy", finish=lazy.mark_step), "compile": mlp_step("cpu", True)},
        steps,
    )
    print(
        f"MLP step: eager {times['eager']:.0f} µs, lazy {times['lazy']:.0f}, compile {times['compile']:.0f}; lazy/eager {times['lazy'] / times['eager']:.2f}"
    )


def opencl(steps: int) -> None:
    try:
        from flambeau.backends import opencl as module
    except ImportError as error:
        return print(f"OpenCL is left out: {error}")
    wait = module.device.synchronize
    times = best({"cpu": mlp_step("cpu", True), "opencl": mlp_step("opencl", True, wait)}, steps)
    print(
        f"compiled MLP step: CPU {times['cpu']:.0f} µs, OpenCL {times['opencl']:.0f}; ratio {times['opencl'] / times['cpu']:.2f}"
    )


def xla(steps: int) -> None:
    try:
        import jaxlib  # noqa: F401
    except ImportError as error:
        return print(f"XLA is left out: {error}")
    from flambeau import xla as module

    times = best({"cpu": mlp_step("cpu", True), "xla": mlp_step("xla", finish=module.sync)}, steps)
    print(f"MLP step: CPU compiled {times['cpu']:.0f} µs, XLA {times['xla']:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    overhead()
    training(steps)
    opencl(max(steps // 4, 5))
    xla(max(steps // 4, 5))


if __name__ == "__main__":
    main()
