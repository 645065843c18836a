"""What a program can set on sharded modules: collectives of its own, hooks, when replicas are summed, recovery from errors."""
# ranks: 4

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import DataParallelMeshDims, fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
start = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
x = torch.randn(8, 6)
mine = x[2 * rank : 2 * rank + 2]


def reference_gradients(times=1):
    ref = copy.deepcopy(start)
    for _ in range(times):
        ref(x).square().mean().backward()
    return [p.grad for p in ref.parameters()]


def check(net, times=1, factor=1.0):
    for p, expected in zip(net.parameters(), reference_gradients(times)):
        assert torch.allclose(p.grad.full_tensor(), expected * factor, atol=1e-5)


class Counted:
    """Collectives of a program, with memory of its own."""

    def __init__(self, collective):
        self.collective, self.calls, self.allocated = collective, 0, 0

    def allocate(self, size, *, dtype, device):
        self.allocated += 1
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op=None, async_op=False):
        self.calls += 1
        given = {} if op is None else {"op": op}
        return self.collective(output_tensor, input_tensor, group=group, async_op=async_op, **given)


net = fully_shard(copy.deepcopy(start))
gather, scatter, seen = Counted(dist.all_gather_into_tensor), Counted(dist.reduce_scatter_tensor), []
net.set_custom_all_gather(gather)
net.set_custom_reduce_scatter(scatter)
net.set_all_reduce_hook(lambda reduced: (seen.append(reduced.numel()), reduced.mul_(0.5)))
net(mine).square().mean().backward()
check(net, factor=0.5)
assert gather.calls and gather.allocated and scatter.calls == 1 and scatter.allocated == 2 and len(seen) == 1

# Gradients wait for a pass that sums over the replicas.
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
net = fully_shard(copy.deepcopy(start), mesh=mesh)
net.set_requires_all_reduce(False)
net(mine).square().mean().backward()
assert all(p.grad is None for p in net.parameters())
net.set_requires_all_reduce(True)
net(mine).square().mean().backward()
check(net, times=2)

# The dimensions of a larger mesh that are for data.
net = fully_shard(
    copy.deepcopy(start), mesh=mesh, dp_mesh_dims=DataParallelMeshDims(shard="shard", replicate="replicate")
)
net(mine).square().mean().backward()
check(net)
net = fully_shard(copy.deepcopy(start), mesh=mesh, dp_mesh_dims=DataParallelMeshDims(shard=("replicate", "shard")))
net(mine).square().mean().backward()
check(net)


class Either(nn.Module):
    """Uses another layer on even ranks than on odd ones."""

    def __init__(self):
        super().__init__()
        self.even, self.odd = copy.deepcopy(start), copy.deepcopy(start)

    def forward(self, x):
        return (self.even if rank % 2 == 0 else self.odd)(x)


net = fully_shard(Either())
net.set_reduce_scatter_unused_params(True)
net(mine).square().mean().backward()
total = [a.grad.full_tensor() + b.grad.full_tensor() for a, b in zip(net.even.parameters(), net.odd.parameters())]
for got, expected in zip(total, reference_gradients()):
    assert torch.allclose(got, expected, atol=1e-5)

# An error in the middle of a step.
net = copy.deepcopy(start)
fully_shard(net[0])
fully_shard(net)
try:
    net(mine[:, :2])
except RuntimeError:
    net.reset_iter_state()
net(mine).square().mean().backward()
check(net)
dist.barrier()
dist.destroy_process_group()
