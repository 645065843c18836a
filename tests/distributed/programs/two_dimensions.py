"""Tensor parallelism inside of sharded data parallelism, with checkpoints that another division reads."""
# ranks: 4

import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
rank = dist.get_rank()
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder, src=0)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.w2(torch.relu(self.w1(x)))


torch.manual_seed(0)
net = nn.Sequential(MLP(), MLP())
ref = copy.deepcopy(net)
for block in net:
    parallelize_module(block, mesh["tp"], {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(net, mesh=mesh["dp"])
x = torch.randn(8, 8)
mine = x[4 * mesh.get_local_rank("dp") :][:4]
optimizer, reference = torch.optim.AdamW(net.parameters(), lr=0.01), torch.optim.AdamW(ref.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    net(mine).square().mean().backward()
    optimizer.step()
    reference.zero_grad()
    ref(x).square().mean().backward()
    reference.step()
for (name, p), q in zip(net.named_parameters(), ref.parameters()):
    assert torch.allclose(p.full_tensor(), q, atol=1e-5), name
dcp.save({"model": net.state_dict()}, checkpoint_id=os.path.join(folder[0], "two"))
plain = {name: torch.zeros_like(value) for name, value in ref.state_dict().items()}
dcp.load({"model": plain}, checkpoint_id=os.path.join(folder[0], "two"))
for name, value in ref.state_dict().items():
    assert torch.allclose(plain[name], value, atol=1e-5), name
one = nn.Sequential(MLP(), MLP())
fully_shard(one)
dcp.load({"model": one.state_dict()}, checkpoint_id=os.path.join(folder[0], "two"))
assert torch.allclose(one[1].w1.weight.full_tensor(), ref[1].w1.weight, atol=1e-5)
dist.barrier()
dist.destroy_process_group()
