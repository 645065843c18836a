"""Counts of what capture did, under the names by which programs ask for them.

counters["graph_break"]     how often each reason broke a graph
counters["stats"]           unique_graphs, calls_captured
counters["frames"]          total: functions that were looked at; ok: those of which an artifact was made
counters["recompiles"]      how often a function was captured again
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter, defaultdict
from typing import Any

import flambeau as fl

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


@functools.cache
def warn_once(message: str, stacklevel: int = 1) -> None:
    """A warning that each message gives once in a process."""
    warnings.warn(message, stacklevel=stacklevel + 1)


def is_compile_supported(device_type: object) -> bool:
    return True


def clone_input(x: Any) -> Any:
    """A tensor of its own with the same values, layout and gradient flag."""
    with fl.no_grad():
        copy = x.detach().clone()
    return copy.requires_grad_(x.requires_grad) if copy.is_floating_point() or copy.is_complex() else copy


def clone_inputs(example_inputs: Any) -> Any:
    """Inputs of a program, of which the tensors are copies."""
    from flambeau.utils import _pytree as pytree

    return pytree.tree_map(lambda x: clone_input(x) if isinstance(x, fl.Tensor) else x, example_inputs)
