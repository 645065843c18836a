"""FLAMBEAU_LOGS (and TORCH_LOGS): which artifacts of compilation are written to stderr.

A list of names separated by commas; `dynamo`, `inductor` and `all` are groups, a minus takes a name out again. The same
names are keywords of `set_logs`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["set_logs"]

GROUPS = {
    "dynamo": ("graph_breaks", "recompiles", "guards", "graph_code", "bytecode"),
    "aot": ("aot_graphs",),
    "inductor": ("ir_pre_fusion", "ir_post_fusion", "output_code", "steps"),
}
DESCRIPTIONS = {
    "graph_breaks": "where graphs end, and why",
    "recompiles": "which guard failed when a function is captured once more",
    "guards": "what must hold for an artifact to be used",
    "graph_code": "captured graphs, as Python",
    "bytecode": "artifacts: the Python that runs graphs and replays effects",
    "aot_graphs": "recorded calls of operators, forward and backward",
    "ir_pre_fusion": "loops",
    "ir_post_fusion": "groups of loops that become one kernel",
    "output_code": "generated kernels",
    "steps": "compiled programs, step by step",
}
_SAME = {
    "graph": "graph_code",
    "kernel_code": "output_code",
    "recompiles_verbose": "recompiles",
    "graph_sizes": "graph_code",
}
# Of PyTorch's, that have no counterpart.
_FOREIGN = frozenset(
    "dynamic aot_joint_graph ddp_graphs fusion overlap schedule perf_hints post_grad_graphs inductor_metrics onnx distributed "
    "export fsdp c10d autograd trace_source trace_call trace_bytecode verbose_guards compiled_autograd cudagraphs "
    "graph_region_expansion hierarchical_compile benchmarking autotuning torch sym_node tcpstore rdzv profiler".split()
)
_INFO = 20  # logging.INFO; the module is not imported for it
_on: set[str] | None = None


def _select(text: str) -> set[str]:
    on: set[str] = set()
    for part in text.split(","):
        name = part.strip()
        remove, name = name.startswith("-"), name.lstrip("+-")
        if name == "all":
            names: tuple[str, ...] = tuple(DESCRIPTIONS)
        else:
            names = GROUPS.get(name) or (_SAME.get(name, name),)
            if name and name not in GROUPS and names[0] not in DESCRIPTIONS and name not in ("help", *_FOREIGN):
                _answer(name)
        on = on - set(names) if remove else on | set(names)
    return on


def _answer(name: str) -> None:
    """Tells who asked for a log that there is none of that name."""
    import difflib
    import warnings

    known = [*DESCRIPTIONS, *GROUPS, "all", "help"]
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}."
    warnings.warn(f"[logs] expected the name of a log, got {name!r}: {hint}", stacklevel=4)


def _read() -> set[str]:
    on = _select(",".join(os.environ.get(name, "") for name in ("TORCH_LOGS", "FLAMBEAU_LOGS")))
    if "help" in on:
        lines = [f"  {name:16}{text}" for name, text in DESCRIPTIONS.items()]
        lines += [f"  {name:16}{', '.join(members)}" for name, members in GROUPS.items()]
        print("FLAMBEAU_LOGS takes, separated by commas:", *lines, sep="\n", file=sys.stderr)
    return on


def enabled(name: str) -> bool:
    global _on
    if _on is None:
        _on = _read()
    return name in _on


def set_logs(*names: str, modules: Any = None, **flags: Any) -> None:
    """Turns logs on by name, and all others off. A flag may be a level of `logging`: warnings and errors alone are none of
    these logs."""
    global _on
    _on = _select(",".join([*names, *(name if 0 < (on or 0) <= _INFO else f"-{name}" for name, on in flags.items())]))


def log(name: str, text: str) -> None:
    if enabled(name):
        print(f"[{name}] {text}", file=sys.stderr)
