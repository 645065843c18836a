"""XLA: a device whose recorded calls become StableHLO and run on a PJRT client.

    x = fl.randn(8, 8, device="xla")
    y = (x @ x).relu()
    xla.sync()

Calls are recorded as lazy tensors are (`flambeau.lazy`); graphs are printed as StableHLO (`printer.py`) and compiled by the
CPU client of jaxlib (extra `flambeau[xla]`). A graph with an operator that has no StableHLO runs on the CPU and is counted.
`import torch_xla` means this package in programs that run under the alias.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.lazy import Replay, make, metrics
from flambeau.lazy.graph import Graph, NotParametric
from flambeau.xla import engine

__all__ = [
    "compile", "device", "device_count", "devices", "launch", "load", "manual_seed", "real_devices", "step", "sync",
]  # fmt: skip

__version__ = "2.9.0"  # of PyTorch/XLA, whose names these are

_NAME = "xla"
_closures: list[Callable[[], None]] = []  # run after the next step


def device(index: int | None = None) -> Any:
    """The XLA device."""
    if index not in (None, 0):
        raise ValueError(f"[xla.device] expected 0, the only device, got {index}")
    return fl.device(_NAME, 0)


def device_count() -> int:
    return 1


def devices() -> list[Any]:
    return [device()]


def real_devices() -> list[str]:
    """The hardware behind the devices, by name."""
    return [f"{engine.platform().upper()}:0"]


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs what has been recorded, then the closures of the step."""
    _C._lazy_flush(_NAME, "sync")
    pending = list(_closures)
    _closures.clear()
    for closure in pending:
        closure()


@contextlib.contextmanager
def step() -> Iterator[None]:
    """What is recorded inside runs as a program of its own."""
    sync()
    try:
        yield
    finally:
        sync()


def compile(
    function: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    num_different_graphs_allowed: int | None = None,
) -> Any:
    """A function whose calls run as programs of their own. Without a function: a context, or a decorator."""
    from flambeau.lazy import recorded_apart

    if function is None:
        return recorded_apart(_NAME, full_graph)
    return recorded_apart(_NAME, full_graph)(function)


def launch(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Calls function(index, *args) for every device, of which there is one: in this process."""
    function(0, *args)


def manual_seed(seed: int, device: Any = None) -> None:
    fl.manual_seed(seed)


def load(path: str, options: Mapping[str, Any] | None = None) -> Any:
    """Opens a PJRT plugin by its path; see `flambeau.xla.pjrt`."""
    from flambeau.xla import pjrt

    return pjrt.Plugin(path, options)


def _program(graph: Graph, inputs: list[Any], reason: str) -> Any:
    """A graph as a program of XLA; call by call on the CPU where it has an operator without StableHLO, or a
    number that should have been a constant."""
    from flambeau.xla.printer import NotPrintable, print_graph

    started = time.perf_counter()
    replay = Replay(graph)
    program: Any = None
    try:
        printed = print_graph(replay, inputs)
        program = engine.load(printed)
    except NotParametric:
        program = False
    except NotPrintable as why:
        metrics.count(f"aten::{why}")
        metrics.count("HostGraphs")
    metrics.add("CompileTime", time.perf_counter() - started)
    return program


_MODULES = (
    "amp", "core", "debug", "distributed", "experimental", "pjrt", "printer", "runtime", "stablehlo", "test", "utils", "version", "_XLAC",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


make(_NAME, fl.device("cpu"), _program, sync, sys.modules[__name__], single_calls=False)


def _register_backend() -> None:
    """`compile(f, backend="openxla")`: the graph of a function is recorded as a program of its own."""
    from flambeau._dynamo.backends import register_backend

    def openxla(gm: Any, example_inputs: Any, **_: Any) -> Any:
        return compile(gm.forward)

    register_backend(openxla, name="openxla")


_register_backend()
