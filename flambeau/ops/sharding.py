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

    def _split_tensor(
        self, tensor: Any, num_chunks: int, *, with_padding: bool = True, contiguous: bool = True
    ) -> tuple[list[Any], list[int]]:
        """The parts of all processes, filled up with zeros to one size on demand, and by how much."""
        import flambeau as fl

        length = tensor.shape[self.dim]
        places = [self.local_shard_size_and_offset(length, num_chunks, rank) for rank in range(num_chunks)]
        parts = [tensor.narrow(self.dim, start, size) for size, start in places]
        missing = [places[0][0] - size if with_padding else 0 for size, _ in places]
        after = [0, 0] * (tensor.dim() - self.dim - 1)
        parts = [fl.constant_pad_nd(part, [*after, 0, gap]) if gap else part for part, gap in zip(parts, missing)]
        return [part.contiguous() if contiguous else part for part in parts], missing if with_padding else []

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


class _StridedShard(Shard):
    """Divided along a dimension that consists of `split_factor` equal pieces, each of which is divided: what becomes of a division
    when other dimensions are joined in front of its own."""

    def __init__(self, dim: int, *, split_factor: int) -> None:
        super().__init__(dim)
        self.split_factor = split_factor

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


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
by_pieces: set[Rule] = set()  # rules that know dimensions of divided pieces; others are asked about divided dimensions
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
    # Into how many parts earlier dimensions of the mesh divide each dimension of the first tensor, and of the first result.
    divided: tuple[Sequence[int], Sequence[int]] | None = None

    @property
    def dims(self) -> list[int]:
        """What the argument `dim` names, or every dimension of the first tensor."""
        rank, dim = self.tensors[0].dim(), self.arguments.get("dim")
        if dim is None or dim == []:
            return list(range(rank))
        return [d % max(rank, 1) for d in ([dim] if isinstance(dim, int) else dim)]

    def local_shapes(self) -> tuple[list[int], list[int]] | None:
        """Shapes of the first tensor and of the first result as earlier dimensions of the mesh leave them; None where parts differ."""
        shapes = list(self.tensors[0].shape), list(self.outputs[0].shape)
        if self.divided is None:
            return shapes
        pairs = [list(zip(shape, parts)) for shape, parts in zip(shapes, self.divided)]
        if any(size % count for own in pairs for size, count in own):
            return None
        first, result = ([size // count for size, count in own] for own in pairs)
        return first, result

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
    dim = max(divided, key=lambda pair: (pair[0], -pair[1]))[1]
    return [broadcast(tensor, dim, rank) for tensor in call.tensors], [Shard(dim)] * len(call.outputs)


def _sum_of_parts(call: Call) -> Partial | None:
    """The sum of parts that all operands are or can become: none is divided."""
    kinds = [p for p in call.placements if isinstance(p, Partial) and p.reduce_op in SUMS]
    whole = all(p.is_replicate() or p in kinds for p in call.placements)
    if not kinds or not whole or (call.in_place and call.placements[0] != kinds[0]):
        return None
    return max(kinds, key=lambda p: p.reduce_op == "avg" and not call.in_place)


def linear(call: Call) -> Decision | None:
    """Pointwise, and commutes with a sum of parts; a whole operand beside one becomes parts. Beside the first operand's maxima or
    minima of parts the others are whole."""
    first, parts = call.placements[0], _sum_of_parts(call)
    if any(isinstance(call.arguments.get(name), (int, float, complex)) for name in ("self", "other")):
        return pointwise(call)
    if parts is not None:
        return call.all(parts)
    if call.in_place and isinstance(first, Partial) and first.reduce_op in SUMS:
        return call.all(first)
    extreme = isinstance(first, Partial) and first.reduce_op in ("max", "min") and len(call.tensors) > 1
    return call.first(first) if extreme and (call.shard() is None or call.in_place) else pointwise(call)


def scaling(call: Call) -> Decision | None:
    """The first operand is multiplied by a factor, which leaves parts of a sum as they are."""
    first = call.placements[0]
    parts = isinstance(first, Partial) and first.reduce_op in SUMS
    return call.first(first) if parts and (call.shard() is None or call.in_place) else pointwise(call)


def increasing(call: Call) -> Decision | None:
    """Pointwise, and commutes with maxima and minima of parts."""
    first = call.placements[0]
    parts = isinstance(first, Partial) and first.reduce_op in ("max", "min")
    return call.first(first) if parts and len(call.tensors) == 1 else pointwise(call)


def decreasing(call: Call) -> Decision | None:
    """Pointwise, and turns maxima of parts into minima."""
    first = call.placements[0]
    if isinstance(first, Partial) and first.reduce_op in ("max", "min") and not call.in_place:
        return call.first(first, Partial("min" if first.reduce_op == "max" else "max"))
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


def like_shape(call: Call) -> Decision | None:
    """A new tensor, divided as the argument when it has its shape."""
    placement = call.placements[0]
    alike = isinstance(placement, Shard) and tuple(call.outputs[0].shape) == tuple(call.tensors[0].shape)
    return call.first(placement, placement if alike else R)


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
            return call.first(placement) if placement.reduce_op == op else None
        if isinstance(placement, Shard) and placement.dim in call.dims:
            earlier = call.divided[0][placement.dim] if call.divided else 1
            size = call.tensors[0].shape[placement.dim] // earlier
            last_is_empty = -(-size // call.parts) * (call.parts - 1) >= size
            if (op == "avg" and size % call.parts) or (op in ("max", "min") and last_is_empty):
                return None
            return call.first(placement, Partial(op))
        return reduction(call)

    return rule


def along(dims: Callable[[Call], Iterable[int]], moves: bool = False) -> Rule:
    """Independent along the dimensions that `dims` does not name; all tensors are divided alike. What only moves elements of a
    tensor does so with parts that are to be reduced."""

    def rule(call: Call) -> Decision | None:
        rank = max(call.tensors[0].dim(), 1)
        shard = call.shard()
        if moves and isinstance(call.placements[0], Partial):
            return call.all(call.placements[0])
        if shard is None or shard.dim in {d % rank for d in dims(call)}:
            return call.all(R)
        return call.all(shard)

    return rule
