"""A PJRT plugin by its path: what it says of itself, a training step checked against the CPU, and what a program costs.

    pip install --target DIR --no-deps jax-cuda13-pjrt
    python benchmarks/pjrt_plugin.py DIR/jax_plugins/xla_cuda13/xla_cuda_plugin.so --option preallocate=false

A CUDA plugin finds CUDA's libraries as any other program does (LD_LIBRARY_PATH, or the nvidia-* wheels on it).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import flambeau as fl
from flambeau import xla


def parsed(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    known: Any = {"true": True, "false": False}.get(value)
    if known is None:
        known = int(value) if value.lstrip("-").isdigit() else value
    return name, known


def losses(device: str, steps: int = 5) -> list[float]:
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(64, 128), fl.nn.GELU(), fl.nn.LayerNorm(128), fl.nn.Linear(128, 10)).to(
        device
    )
    optimizer = fl.optim.AdamW(model.parameters(), lr=0.01)
    x, y = fl.randn(32, 64).to(device), fl.randint(0, 10, (32,)).to(device)
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = fl.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plugin")
    parser.add_argument("--option", action="append", default=[], help="name=value, of the plugin's client")
    options = parser.parse_args()
    plugin = xla.load(options.plugin, dict(map(parsed, options.option)))
    print(f"PJRT {plugin.api_version[0]}.{plugin.api_version[1]}, attributes {plugin.attributes}")
    print(f"platform {plugin.platform} {plugin.platform_version}, devices {plugin.devices}")
    plugin.use()
    got, want = losses("xla"), losses("cpu")
    worst = max(abs(g - w) for g, w in zip(got, want))
    print(f"losses {got}, the CPU's {want}, difference {worst:.2e}")
    x = fl.randn(2048, 2048).to("xla")
    for _ in range(3):
        started = time.perf_counter()
        y = x @ x
        xla.sync()
        print(
            f"product of 2048 x 2048: {(time.perf_counter() - started) * 1e3:.2f} ms with copies, sum {y.sum().item():.1f}"
        )
    if worst > 1e-2:
        raise SystemExit("the losses differ")


if __name__ == "__main__":
    main()
