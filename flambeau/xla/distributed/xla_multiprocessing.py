"""Processes: one, which has the one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import xla

__all__ = ["MpModelWrapper", "MpSerialExecutor", "spawn"]


def spawn(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int | None = None, join: bool = True,
    daemon: bool = False, start_method: str = "spawn",
) -> None:  # fmt: skip
    """Calls fn(0, *args) in this process; more processes than devices are refused."""
    if nprocs not in (None, 1):
        raise ValueError(f"[spawn] expected nprocs=None or 1, the number of devices, got {nprocs}")
    xla.launch(fn, args)


class MpModelWrapper:
    """A model of which all processes share one copy until they move it to their device."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def to(self, device: Any) -> Any:
        return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one process after the other."""

    def run(self, fn: Callable[[], Any]) -> Any:
        return fn()
