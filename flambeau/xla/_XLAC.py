"""Names of PyTorch/XLA's extension module that programs use to look at what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.lazy.graph import Replay

__all__ = ["_get_xla_tensors_hlo", "_get_xla_tensors_text", "_xla_get_default_device", "_xla_step_marker"]


def _get_xla_tensors_hlo(tensors: Sequence[Any]) -> str:
    """What has been recorded and has not run yet, as StableHLO; tensors that have values add nothing."""
    from flambeau.xla.printer import print_graph

    graph, inputs = _C._lazy_recorded("xla")
    if not graph.calls:
        return "module @flambeau {\n}\n"
    return print_graph(Replay(graph), inputs).text


def _get_xla_tensors_text(tensors: Sequence[Any]) -> str:
    """The recorded calls, one to a line, with the lines of the program that they come from."""
    graph, _ = _C._lazy_recorded("xla")
    rows = []
    for call in graph.calls:
        results = ", ".join(f"%{w.slot}" for w in call.results) or "nothing"
        rows.append(f"  {results} = {call.op}  # {call.where}")
    return "IR {\n" + "\n".join(rows) + "\n}\n"


def _xla_get_default_device() -> str:
    return str(fl.device("xla"))


def _xla_step_marker(device: str = "", devices: Sequence[str] = (), wait: bool = False, **_: Any) -> None:
    from flambeau import xla

    xla.sync(wait)
