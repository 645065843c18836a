"""Sharded data-parallel training equals training on the whole batch."""
# ranks: 2 4

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import DTensor, Shard

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(net, optimizer, x, y, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return loss


torch.manual_seed(0)
x, y = torch.randn(4 * size, 6), torch.randn(4 * size, 3)
mine = slice(4 * rank, 4 * rank + 4)
start = Model()
meshes = [None] if size == 2 else [None, init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))]
for mesh in meshes:
    for reshard in (True, False):
        ref, net = copy.deepcopy(start), copy.deepcopy(start)
        for block in net.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(net, mesh=mesh, reshard_after_forward=reshard)
        assert isinstance(net, FSDPModule) and isinstance(net, Model)
        assert all(isinstance(p, DTensor) for p in net.parameters())
        whole = (Shard(0),) if mesh is None else None
        assert whole is None or net.head.weight.placements == whole
        train(net, torch.optim.AdamW(net.parameters(), lr=0.01), x[mine], y[mine])
        train(ref, torch.optim.AdamW(ref.parameters(), lr=0.01), x, y)
        for (name, p), q in zip(net.named_parameters(), ref.parameters()):
            assert torch.allclose(p.full_tensor(), q, atol=1e-5), name
            assert torch.allclose(p.grad.full_tensor(), q.grad, atol=1e-5), name
        total = nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        expected = nn.utils.clip_grad_norm_(ref.parameters(), 0.01)
        total = total.full_tensor() if isinstance(total, DTensor) else total
        assert torch.allclose(total, expected, atol=1e-5)
        with torch.no_grad():
            assert torch.allclose(net(x), ref(x), atol=1e-5)
        state = net.state_dict()
        assert list(state) == list(ref.state_dict()) and isinstance(state["head.weight"], DTensor)

# Accumulation without reduction.
ref, net = copy.deepcopy(start), copy.deepcopy(start)
fully_shard(net)
net.set_requires_gradient_sync(False)
net(x[mine]).sum().backward()
net.set_requires_gradient_sync(True)
net(x[mine]).sum().backward()
(2 * ref(x).sum() / size).backward()
for p, q in zip(net.parameters(), ref.parameters()):
    assert torch.allclose(p.grad.full_tensor(), q.grad, atol=1e-4)

# Lower precision in computation.
net = copy.deepcopy(start)
fully_shard(net, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
out = net(x[mine])
assert out.dtype == torch.bfloat16
out.float().sum().backward()
assert net.head.weight.dtype == torch.float32 and net.head.weight.grad.dtype == torch.float32

# Parameters that are gathered ahead, also of a module that is not run before they change.
ref, net = copy.deepcopy(start), copy.deepcopy(start)
for block in net.blocks:
    fully_shard(block)
fully_shard(net)
net.blocks[0].set_modules_to_forward_prefetch([net.blocks[1]])
net.blocks[1].set_modules_to_backward_prefetch([net.blocks[0]])
optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (net, ref)]
for _ in range(2):
    train(net, optimizers[0], x[mine], y[mine], 1)
    train(ref, optimizers[1], x, y, 1)
    handle = net.blocks[1].unshard(async_op=True)
    with torch.no_grad():
        for p, q in zip(net.blocks[1].parameters(), ref.blocks[1].parameters()):
            (p.to_local() if isinstance(p, DTensor) else p).mul_(0.5)
            q.mul_(0.5)
    handle.wait()
    net.blocks[1].reshard()
for p, q in zip(net.parameters(), ref.parameters()):
    assert torch.allclose(p.full_tensor(), q, atol=1e-5)

# The wrapper class.
ref, net = copy.deepcopy(start), FSDP(copy.deepcopy(start))
train(net, torch.optim.SGD(net.parameters(), lr=0.1), x[mine], y[mine])
train(ref, torch.optim.SGD(ref.parameters(), lr=0.1), x, y)
state = net.state_dict()
for name, q in ref.state_dict().items():
    assert torch.allclose(state[name], q, atol=1e-5), name
dist.barrier()
dist.destroy_process_group()
