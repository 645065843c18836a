"""`ShardedTensor`: tensors in shards, and checkpoints of them."""
# ranks: 2

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from cases import case, main
from torch.distributed._shard import _shard_tensor, shard_parameter, sharded_tensor
from torch.distributed._shard.sharded_tensor import Shard, ShardMetadata, init_from_local_shards
from torch.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec


def rank():
    return dist.get_rank()


def folder():
    box = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(box, 0)
    return box[0]


def spec(dim=0, ranks=(0, 1)):
    return ChunkShardingSpec(dim, [f"rank:{r}/cpu" for r in ranks])


def values(dim=0, rows=5, columns=3):
    return _shard_tensor(torch.arange(float(rows * columns)).view(rows, columns), spec(dim))


def shards(t):
    return [
        [s.tensor, s.metadata.shard_offsets, s.metadata.shard_sizes, str(s.metadata.placement)]
        for s in t.local_shards()
    ]


@case
def chunked():
    t = values()
    return [
        list(t.shape),
        shards(t),
        str(t.sharding_spec()),
        [m.shard_sizes for m in t.metadata().shards_metadata],
        str(t.dtype),
        t.local_tensor(),
    ]


@case
def along_one():
    return shards(values(1))


@case
def gathered():
    t = values()
    o = torch.zeros(5, 3) if rank() == 0 else None
    t.gather(0, o)
    return o


@case
def resharded():
    t = values(0, 4, 4)
    t.reshard(spec(1, (1, 0)))
    return shards(t)


@case
def local():
    t = init_from_local_shards(
        [Shard.from_tensor_and_offsets(torch.ones(2, 3) * rank(), [2 * rank(), 0], rank())], 4, 3
    )
    o = torch.zeros(4, 3) if rank() == 1 else None
    t.gather(1, o)
    return [o, str(t.sharding_spec()), str(t.metadata().size)]


@case
def enumerated():
    s = EnumerableShardingSpec(
        [
            ShardMetadata([0, 0], [1, 4], "rank:0/cpu"),
            ShardMetadata([1, 0], [3, 2], "rank:1/cpu"),
            ShardMetadata([1, 2], [3, 2], "rank:0/cpu"),
        ]
    )
    t = sharded_tensor.full(s, (4, 4), 7.0)
    return shards(t)


@case
def factories():
    return [
        shards(sharded_tensor.ones(spec(), 3, 2)),
        shards(sharded_tensor.zeros(spec(), 4, dtype=torch.int64)),
        [list(s.tensor.shape) for s in sharded_tensor.rand(spec(), 4, 2).local_shards()],
    ]


@case
def checkpointed():
    d = folder()
    dcp.save({"t": values()}, checkpoint_id=d)
    u = sharded_tensor.zeros(spec(1, (1, 0)), 5, 3)
    dcp.load({"t": u}, checkpoint_id=d)
    w = {"t": torch.zeros(5, 3)}
    dcp.load(w, checkpoint_id=d)
    return shards(u), w


@case
def parameters():
    m = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.constant_(m.weight, 2.0)
    shard_parameter(m, "weight", spec())
    return [shards(m.weight), type(m.weight).__name__, m.weight.requires_grad]


@case
def initialised():
    t = sharded_tensor.empty(spec(), 4, 2)
    torch.nn.init.constant_(t, 3.0)
    return shards(t)


@case
def errors():
    out = []
    for f in (
        lambda: ChunkShardingSpec("H", []),
        lambda: EnumerableShardingSpec([]),
        lambda: EnumerableShardingSpec([ShardMetadata([0], [3], "rank:0/cpu"), ShardMetadata([2], [3], "rank:1/cpu")]),
        lambda: Shard(torch.ones(2), ShardMetadata([0], [3], "rank:0/cpu")),
        lambda: ShardMetadata([0], [1, 2]),
        lambda: ShardMetadata([-1], [1]),
        lambda: values() + 1,
    ):
        try:
            f()
            out.append(None)
        except Exception as e:
            out.append(type(e).__name__)
    return out


main()
