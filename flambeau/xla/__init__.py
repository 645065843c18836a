"""XLA: a device whose recorded calls become StableHLO and run on a PJRT client.

    x = fl.randn(8, 8, device="xla")
    y = (x @ x).relu()
    xla.sync()

Calls are recorded as lazy tensors are (`flambeau.lazy`); graphs are printed as StableHLO (`printer.py`) and compiled by the
CPU client of jaxlib (extra `flambeau[xla]`). A graph with an operator that has no StableHLO runs on the CPU and is counted.
`import torch_xla` means this package in programs that run under the alias.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.lazy import Replay, make, metrics
from flambeau.lazy.graph import Graph
from flambeau.xla import engine

__all__ = ["compile", "device", "device_count", "load", "sync"]

_NAME = "xla"


def device(index: int | None = None) -> Any:
    """The XLA device."""
    return fl.device(_NAME) if index is None else fl.device(_NAME, index)


def device_count() -> int:
    return 1


def devices() -> list[Any]:
    return [device()]


def sync(wait: bool = False) -> None:
    """Runs what has been recorded."""
    _C._lazy_flush(_NAME, "sync")


def compile(
    function: Callable[..., Any] | None = None, full_graph: bool = False, name: str | None = None, **_: Any
) -> Any:
    """A function whose calls run as programs of their own, as `flambeau.lazy.compile`."""
    from flambeau import lazy

    return lazy.compile(function, device=_NAME)


def load(path: str) -> Any:
    """Opens a PJRT plugin by its path; see `flambeau.xla.pjrt`."""
    from flambeau.xla import pjrt

    return pjrt.Plugin(path)


def _program(graph: Graph, inputs: list[Any], reason: str) -> Any:
    """A graph as a program of XLA; call by call on the CPU where it has an operator without StableHLO."""
    from flambeau.xla.printer import NotPrintable, print_graph

    started = time.perf_counter()
    replay = Replay(graph)
    try:
        printed = print_graph(replay, inputs)
        program: Any = engine.load(printed)
    except NotPrintable as why:
        metrics.count(f"aten::{why}")
        metrics.count("HostGraphs")
        program = None
    metrics.add("CompileTime", time.perf_counter() - started)
    return program


def __getattr__(name: str) -> Any:
    if name in ("core", "debug", "stablehlo", "pjrt", "runtime", "printer"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


make(_NAME, fl.device("cpu"), _program, sync, sys.modules[__name__], single_calls=False)
