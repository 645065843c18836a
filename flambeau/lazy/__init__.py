"""Lazy tensors: a device whose calls are recorded and run later, as one compiled program.

    x = fl.randn(8, 8, device="lazy")
    y = (x @ x).relu()      # recorded: shapes are known and checked, nothing is computed
    lazy.mark_step()        # runs; so do y.item(), y.cpu(), print(y) and bool(y)

A graph that was recorded before is found by a hash and runs at once. Sizes are part of it; Python numbers and random
streams are parameters, so that a new learning rate compiles nothing. `flambeau.lazy.metrics` counts.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import _C
from flambeau.backends import register_recorder
from flambeau.backends.device import RegisteredDevice
from flambeau.lazy import metrics
from flambeau.lazy.graph import Graph, Replay

__all__ = [
    "Compilation", "compilations", "compile", "mark_step", "metrics", "over",
    "recorded_apart", "set_limit", "sync",
]  # fmt: skip

_NAME = "lazy"


class Compilation(NamedTuple):
    """One program that had to be made."""

    line: str  # of the call that was recorded first
    reason: str  # why the graph ended and ran
    operators: int
    seconds: float
    native: bool  # one program; otherwise it runs call by call


_compilations: list[Compilation] = []


def compilations() -> list[Compilation]:
    """The programs made so far."""
    return list(_compilations)


def mark_step(wait: bool = False) -> None:
    """Runs what has been recorded."""
    _C._lazy_flush(_NAME, "mark_step")


def sync(wait: bool = True) -> None:
    """Runs what has been recorded, and waits for it."""
    _C._lazy_flush(_NAME, "sync")
    module = getattr(fl, _base().type, None)
    if wait and hasattr(module, "synchronize"):
        module.synchronize()  # type: ignore[union-attr]


def over(device: Any) -> None:
    """Chooses the device on which recorded programs run; tensors made before stay where they are, so call it first."""
    global _below
    _C._lazy_set(_NAME, fl.device(device), 0)
    _below = fl.device(device)


def set_limit(operators: int) -> None:
    """After this many recorded operators a graph runs by itself."""
    if operators < 1:
        raise ValueError(f"[lazy.set_limit] expected at least 1 operator, got {operators}")
    _C._lazy_set(_NAME, None, operators)


def _base() -> Any:
    return _below


class recorded_apart(contextlib.ContextDecorator):
    """A context, or a decorator, in which calls on a recording device become programs of their own: what was recorded
    before runs first, and the results are there when it ends. With `full_graph` there has to be one program."""

    def __init__(self, device: str, full_graph: bool = False) -> None:
        self._device, self._full_graph = device, full_graph
        self._graphs: list[int] = []  # that had run when each open context began

    def _count(self) -> int:
        return int(_C._lazy_metrics(self._device)["graphs"])

    def __enter__(self) -> recorded_apart:
        _C._lazy_flush(self._device, "a compiled function begins")
        self._graphs.append(self._count())
        return self

    def __exit__(self, *exception: Any) -> None:
        early = self._count() - self._graphs.pop()
        _C._lazy_flush(self._device, "a compiled function ends")
        if self._full_graph and early and exception[0] is None:
            raise RuntimeError(f"[compile] expected one graph because of full_graph=True, got {early} that ended early")


def compile(function: Callable[..., Any] | None = None, *, device: str = _NAME, full_graph: bool = False) -> Any:
    """A function whose calls on lazy tensors run as programs of their own; without a function: a decorator or a context."""
    apart = recorded_apart(device, full_graph)
    return apart if function is None else apart(function)


# ---------------------------------------------------------------- programs


def _kinds(graph: Graph, replay: Replay) -> list[Any]:
    from flambeau._inductor.numbers import Kind

    uses = replay.uses()
    return [Kind.TENSOR] * len(graph.inputs) + [Kind[uses[i].name] for i in range(graph.parameters)]


def _program(graph: Graph, inputs: list[Any], reason: str) -> Any:
    """A native program for a graph; None where it has to run call by call, False where its numbers are the reason."""
    from flambeau._inductor.failures import Origin
    from flambeau._inductor.numbers import ScalarGraphCompiler, _Refused

    started = time.perf_counter()
    replay = Replay(graph)
    native: Any = None
    try:
        native = ScalarGraphCompiler(replay, True, _kinds(graph, replay), None, Origin()).graph_for(inputs)
    except _Refused:  # a number takes part in what cannot read it from memory
        metrics.count("NotFused")
        native = False
    seconds = time.perf_counter() - started
    line = graph.calls[0].where
    _compilations.append(Compilation(line, reason, len(graph.calls), seconds, bool(native)))
    metrics.add("CompileTime", seconds)
    metrics.count("Kernels", 1 if native else len(graph.calls))
    return native


class RecordingDevice(RegisteredDevice):
    """The device in the registry: its launches are programs, its host calls operators that ran below at once."""

    def __init__(self, name: str, synchronize: Any, module: Any) -> None:
        super().__init__(name, _C._register_device(name, None, None), True, synchronize=synchronize)
        self.module = module

    @property  # type: ignore[misc]
    def launches(self) -> int:
        return int(_C._lazy_metrics(self.name)["graphs"])

    @property
    def host_calls(self) -> int:  # type: ignore[override]
        return int(_C._lazy_metrics(self.name)["host_calls"])


def make(name: str, base: Any, program: Any, synchronize: Any, module: Any, *, single_calls: bool) -> None:
    """Registers a device whose calls are recorded: `program(graph, inputs, reason)` makes what runs a graph. None stands
    for running it call by call, as graphs of one call do where `single_calls` says so."""
    device = RecordingDevice(name, synchronize, module)
    _C._lazy_recorder(name, base, program, single_calls)
    register_recorder(name, device)
    metrics.recorders.append(name)


_below = fl.device("cpu")
make(_NAME, _below, _program, sync, sys.modules[__name__], single_calls=True)
