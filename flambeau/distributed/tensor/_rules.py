"""Finds the sharding rule of an operator; the rules are beside the operators' records (`ops/sharding.py`)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau.ops import record, rules, sharding, tags
from flambeau.ops.sharding import Call, Decision, Placement, R, Shard, _StridedShard

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
    if rule is None:
        return None
    pieces = rule not in sharding.by_pieces and any(isinstance(p, _StridedShard) for p in call.placements)
    return _by_pieces(rule, call) if pieces else rule(call)


def _by_pieces(rule: sharding.Rule, call: Call) -> Decision | None:
    """A rule that takes no notice of how a dimension is divided holds for divided pieces of it, too."""
    kinds = {(p.split_factor, t.shape[p.dim]) for t, p in _pieces(call.tensors, call.placements)}
    divisions = [p for p in call.placements if isinstance(p, Shard)]
    if len(kinds) != 1 or not all(isinstance(p, _StridedShard) for p in divisions):
        whole: list[Placement] = [R if isinstance(p, _StridedShard) else p for p in call.placements]
        return rule(dataclasses.replace(call, placements=whole))
    ((pieces, size),) = kinds
    plain = [Shard(p.dim) if isinstance(p, Shard) else p for p in call.placements]
    decision = rule(dataclasses.replace(call, placements=plain))
    if decision is None:
        return None
    answers = []
    for tensors, placements in zip((call.tensors, call.outputs), decision):
        if any(isinstance(p, Shard) and t.shape[p.dim] != size for t, p in zip(tensors, placements)):
            return None
        answers.append([_StridedShard(p.dim, split_factor=pieces) if isinstance(p, Shard) else p for p in placements])
    return answers[0], answers[1]


def _pieces(tensors: Sequence[Any], placements: Sequence[Placement]) -> Iterator[tuple[Any, _StridedShard]]:
    return ((t, p) for t, p in zip(tensors, placements) if isinstance(p, _StridedShard))
