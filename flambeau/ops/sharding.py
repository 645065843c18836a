"""Sharding rules: how the placements of an operator's inputs and results go together along one dimension of a mesh.

A placement says how a tensor lies on the processes along that dimension: divided, replicated, or as parts to be reduced. A
rule gets a `Call` and returns the placements that the inputs need and those of the results, or None when it has no answer:
then everything is replicated, which is always right. Pointwise and reduction records share a rule each; the others are in
`sharding.py` of their family, found by the operator's name, and are often one of the common ones here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union


class Placement:
    """Base of the three."""

    def is_shard(self, dim: int | None = None) -> bool:
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))


class Shard(Placement):
    """Divided along a dimension, in parts as `chunk` makes them; the last ones may be smaller or empty."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """Size and start of the part of one process."""
        full = -(-curr_local_size // num_chunks)
        start = min(full * rank, curr_local_size)
        return min(full, curr_local_size - start), start

    _local_shard_size_and_offset = local_shard_size_and_offset

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


class _StridedShard(Shard):
    """Divided along a dimension whose parts were divided before."""

    def __init__(self, dim: int, *, split_factor: int) -> None:
        super().__init__(dim)
        self.split_factor = split_factor


class Replicate(Placement):
    """The same on each."""

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


class Partial(Placement):
    """Parts that have to be reduced: by "sum", "avg", "max", "min" or "product"; by "norm2" and its like when they are norms of
    parts, of which the norm of the whole is made."""

    def __init__(self, reduce_op: str = "sum") -> None:
        self.reduce_op = reduce_op

    def __repr__(self) -> str:
        if self.reduce_op.startswith("norm"):
            return f"_NormPartial({float(self.reduce_op.removeprefix('norm')):g})"
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        if self.reduce_op.startswith("norm"):
            return f"_NormP({float(self.reduce_op.removeprefix('norm')):g})"
        return f"P({self.reduce_op})"


R = Replicate()
Decision = tuple[list[Placement], list[Placement]]  # needed of each tensor among the arguments, of each result
Rule = Callable[["Call"], Union[Decision, None]]
SUMS = ("sum", "avg")  # reductions of parts that linear operators commute with


@dataclass(frozen=True)
class Call:
    """A call of an operator, seen along one dimension of a mesh."""

    arguments: dict[str, Any]  # by name; tensors have the shape of the whole and no data
    tensors: Sequence[Any]  # those among the arguments
    placements: list[Placement]  # of the tensors
    outputs: Sequence[Any]  # tensors that the operator returns, without data
    parts: int  # processes along the dimension of the mesh
    in_place: bool = False  # whether the first tensor is written, whose placement then has to stay

    @property
    def dims(self) -> list[int]:
        """What the argument `dim` names, or every dimension of the first tensor."""
        rank, dim = self.tensors[0].dim(), self.arguments.get("dim")
        if dim is None or dim == []:
            return list(range(rank))
        return [d % max(rank, 1) for d in ([dim] if isinstance(dim, int) else dim)]

    def all(self, needed: Placement, result: Placement | None = None) -> Decision:
        """The same for all inputs, and the same for all results."""
        return [needed] * len(self.tensors), [needed if result is None else result] * len(self.outputs)

    def first(self, needed: Placement, result: Placement | None = None) -> Decision:
        """The other inputs are replicated."""
        others: list[Placement] = [R] * (len(self.tensors) - 1)
        return [needed, *others], [needed if result is None else result] * len(self.outputs)

    def shard(self) -> Shard | None:
        """The placement of the first input that is divided."""
        return next((p for p in self.placements if isinstance(p, Shard)), None)


def broadcast(tensor: Any, dim: int, rank: int) -> Placement:
    """What an operand needs when the result, of `rank` dimensions, is divided along `dim`."""
    own = dim - (rank - tensor.dim())
    return Shard(own) if own >= 0 and tensor.shape[own] != 1 else R


def pointwise(call: Call) -> Decision | None:
    """Divided as the largest divided operand; parts to be reduced are reduced first, into divisions where another operand has one."""
    partial = any(isinstance(p, Partial) for p in call.placements)
    if partial and (call.in_place or call.shard() is None):
        return None
    written = call.tensors[:1] if call.in_place else call.tensors
    rank = max((tensor.dim() for tensor in written), default=0)
    divided = [(t.numel(), p.dim + rank - t.dim()) for t, p in zip(written, call.placements) if isinstance(p, Shard)]
    if not divided:
        return call.all(R)
    dim = max(divided, key=lambda pair: pair[0])[1]
    return [broadcast(tensor, dim, rank) for tensor in call.tensors], [Shard(dim)] * len(call.outputs)


def linear(call: Call) -> Decision | None:
    """Pointwise, and commutes with a sum of parts when every operand is one."""
    first = call.placements[0]
    same = all(placement == first for placement in call.placements)
    number = isinstance(call.arguments.get("other"), (int, float, complex))
    if isinstance(first, Partial) and first.reduce_op in SUMS and same and not number:
        return list(call.placements), [first] * len(call.outputs)
    return pointwise(call)


def scaling(call: Call) -> Decision | None:
    """The first operand is multiplied by a replicated factor, which leaves parts of a sum as they are."""
    first, others = call.placements[0], call.placements[1:]
    if isinstance(first, Partial) and first.reduce_op in SUMS and all(p.is_replicate() for p in others):
        return list(call.placements), [first] * len(call.outputs)
    return pointwise(call)


def unchanged(call: Call) -> Decision | None:
    """The result lies as the argument."""
    return call.first(call.placements[0])


def fresh(call: Call) -> Decision | None:
    """Elements that do not depend on the argument's, which lends its shape."""
    placement = call.placements[0]
    if isinstance(placement, Partial):
        return None if call.in_place else call.first(placement, R)
    return call.first(placement)


def drawn(call: Call) -> Decision | None:
    """Random numbers; the whole is drawn alike on all processes, of which each keeps its part."""
    return fresh(call)


def without_dims(call: Call, placement: Shard) -> Placement:
    """Where a division is after a reduction of other dimensions."""
    keeps = call.outputs[0].dim() == call.tensors[0].dim()
    return Shard(placement.dim - (0 if keeps else sum(d < placement.dim for d in call.dims)))


def reduction(call: Call) -> Decision | None:
    """Divided along dimensions that are not reduced."""
    placement = call.placements[0]
    if isinstance(placement, Shard) and placement.dim not in call.dims:
        return call.first(placement, without_dims(call, placement))
    return call.all(R) if placement.is_replicate() else None


def reduction_by(op: str) -> Rule:
    """A reduction whose result is the reduction of those of parts."""

    def rule(call: Call) -> Decision | None:
        placement = call.placements[0]
        if isinstance(placement, Partial):
            commutes = placement.reduce_op == op or (op in SUMS and placement.reduce_op in SUMS)
            return call.first(placement) if commutes else None
        if isinstance(placement, Shard) and placement.dim in call.dims:
            size = call.tensors[0].shape[placement.dim]
            last_is_empty = -(-size // call.parts) * (call.parts - 1) >= size
            if (op == "avg" and size % call.parts) or (op in ("max", "min") and last_is_empty):
                return None
            return call.first(placement, Partial(op))
        return reduction(call)

    return rule


def along(dims: Callable[[Call], Iterable[int]]) -> Rule:
    """Independent along the dimensions that `dims` does not name; all tensors are divided alike."""

    def rule(call: Call) -> Decision | None:
        rank = max(call.tensors[0].dim(), 1)
        shard = call.shard()
        if shard is None or shard.dim in {d % rank for d in dims(call)}:
            return call.all(R)
        return call.all(shard)

    return rule
