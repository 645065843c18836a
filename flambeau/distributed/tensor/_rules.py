"""Finds the sharding rule of an operator; the rules are beside the operators' records (`ops/sharding.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau.ops import record, rules, sharding, tags
from flambeau.ops.sharding import Call, Decision

__all__ = ["decide", "registered"]

registered: dict[str, Callable[..., Any]] = {}  # rules of programs, by operator (`experimental.register_sharding`)


@functools.cache
def _rule_of(name: str) -> sharding.Rule | None:
    """The rule of an operator or of its functional form, or that of the record's kind."""
    functional = rules.functional_name(name)
    if functional is not None and name in tags.operators("reshapes"):
        return None
    own = rules.sharding.find(name) or rules.sharding.find(functional or name)
    if own is not None:
        return own
    if name.startswith("_grad_"):  # derived from a pointwise record
        return sharding.pointwise
    op_record = record.find(name) or record.find(functional or name)
    if op_record is None:
        return None
    if op_record.kind == "pointwise" or "elementwise" in op_record.tags:
        return sharding.pointwise
    return sharding.reduction if op_record.kind == "reduction" else None


@functools.cache
def draws(name: str) -> bool:
    """Whether an operator fills a tensor, or one like it, with random numbers."""
    return _rule_of(name) is sharding.drawn


def _by_registered(rule: Callable[..., Any], args: list[Any], call: Call) -> Decision | None:
    """The choice of a program's rule that moves the fewest elements."""
    best: tuple[int, Decision] | None = None
    for outputs, inputs in rule(*args):
        wanted = [placement for placement in inputs if placement is not None]
        if len(wanted) != len(call.tensors):
            continue
        moved = sum(
            tensor.numel() for tensor, own, target in zip(call.tensors, call.placements, wanted) if own != target
        )
        if best is None or moved < best[0]:
            best = (moved, (wanted, list(outputs)))
    return None if best is None else best[1]


def decide(name: str, args: list[Any], call: Call) -> Decision | None:
    """What the rules say of a call along one mesh dimension; None: replicate."""
    own = registered.get(name.partition(".")[0])
    if own is not None:
        return _by_registered(own, args, call)
    rule = _rule_of(name)
    return None if rule is None else rule(call)
