"""How a tensor lies on the processes along a dimension of a mesh; sharding rules of operators are written in these words."""

from flambeau.ops.sharding import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["Partial", "Placement", "Replicate", "Shard", "_StridedShard"]

_Partial = Partial
for _kind in (Partial, Placement, Replicate, Shard, _StridedShard):
    _kind.__module__ = __name__
