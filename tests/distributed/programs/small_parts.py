"""Parts that programs use around the large ones: wrappers, local maps, sparse sums, coalescing, names."""
# ranks: 2

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication, local_map

mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("x",))
rank, size = dist.get_rank(), dist.get_world_size()

net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
keys = list(net.state_dict())
apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, nn.Linear))
assert list(net.state_dict()) == keys
net.load_state_dict(net.state_dict())
net(torch.randn(2, 3)).sum().backward()
assert all(p.grad is not None for p in net.parameters())

x = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
doubled = local_map(lambda t: t * 2, out_placements=[Shard(0)], in_placements=([Shard(0)],))(x)
assert doubled.full_tensor().tolist() == [0, 2, 4, 6] and doubled.placements == (Shard(0),)
with implicit_replication():
    assert (x + torch.ones(4)).full_tensor().tolist() == [1, 2, 3, 4]
try:
    x + torch.ones(4)
    raise SystemExit("expected an error")
except RuntimeError as error:
    assert "mixed" in str(error)
assert isinstance(x, DTensor) and x.redistribute(placements=[Replicate()]).to_local().tolist() == [0, 1, 2, 3]

sparse = torch.sparse_coo_tensor([[rank, 2]], [1.0, 1.0], (4,))
dist.all_reduce(sparse)
assert sparse.to_dense().tolist() == [1, 1, 2, 0]
with dist._coalescing_manager(async_ops=True) as manager:
    tensors = [torch.ones(2), torch.full((3,), float(rank))]
    for tensor in tensors:
        dist.all_reduce(tensor)
manager.wait()
assert tensors[0].tolist() == [2, 2] and tensors[1].tolist() == [1, 1, 1]
flags = torch.tensor([rank == 0, True])
dist.all_reduce(flags, op=dist.ReduceOp.BAND)
assert flags.tolist() == [False, True]
eighth = torch.arange(4.0).to(torch.float8_e4m3fn)
gathered = [torch.empty_like(eighth) for _ in range(2)]
dist.all_gather(gathered, eighth)
assert gathered[1].float().tolist() == [0, 1, 2, 3]
scaled = torch.ones(2)
dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(3.0)) if "flambeau" in torch.__version__ else scaled.fill_(6)
assert scaled.tolist() == [6, 6]
assert dist.is_gloo_available() and dist.get_backend_config() and dist.is_initialized()
assert repr(dist.ReduceOp.SUM) == "<RedOpType.SUM: 0>" and dist.get_debug_level() is not None
dist.barrier()
# A profile has ranges for collectives, blocking, in the background and those of a reducer, which has no call of its own.
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
with torch.profiler.profile(record_shapes=True) as profile:
    dist.all_reduce(torch.ones(3, 2))
    dist.all_reduce(torch.ones(5), async_op=True).wait()
    net(torch.ones(1, 4)).sum().backward()
ranges = [event.input_shapes for event in profile.events() if event.name == "gloo:all_reduce"]
assert [[3, 2]] in ranges and [[5]] in ranges and len(ranges) == 3, ranges
dist.destroy_process_group()
