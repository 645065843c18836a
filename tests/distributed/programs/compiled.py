"""Collectives, data-parallel and sharded modules inside compiled functions."""
# ranks: 2

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
ref = copy.deepcopy(net)
net2 = copy.deepcopy(net)
x = torch.randn(4 * size, 8)
mine = slice(4 * rank, 4 * rank + 4)
ref(x).square().mean().backward()


def ok(m):
    return all(torch.allclose(p.grad, q.grad, atol=1e-5) for p, q in zip(m.parameters(), ref.parameters()))


ddp = torch.compile(DDP(net), fullgraph=True)
for _ in range(3):
    ddp.zero_grad()
    ddp(x[mine]).square().mean().backward()
assert ok(net), "compile(ddp)"
ddp = DDP(torch.compile(net2))
for _ in range(3):
    ddp.zero_grad()
    ddp(x[mine]).square().mean().backward()
assert ok(net2), "ddp(compile)"
net3 = copy.deepcopy(ref)
net3.zero_grad()
d3 = DDP(net3)
opt = torch.optim.SGD(d3.parameters(), lr=0.0)


@torch.compile
def step(x):
    opt.zero_grad()
    loss = d3(x).square().mean()
    loss.backward()
    opt.step()
    return loss


for _ in range(3):
    step(x[mine])
assert ok(net3), "compiled step"


@torch.compile
def f(t):
    t = t * 2
    dist.all_reduce(t)
    return t + 1


assert f(torch.ones(2)).tolist() == [2.0 * size + 1] * 2
import torch.distributed._functional_collectives as funcol  # noqa: E402


@torch.compile(fullgraph=True)
def g(t):
    return funcol.all_reduce(t * 2, "sum", dist.group.WORLD) + 1


assert g(torch.ones(2)).tolist() == [2.0 * size + 1] * 2
from torch.distributed.fsdp import fully_shard  # noqa: E402

net4 = copy.deepcopy(ref)
net4.zero_grad()
for m in net4:
    if isinstance(m, nn.Linear):
        fully_shard(m)
fully_shard(net4)
c = torch.compile(net4)
c(x[mine]).square().mean().backward()
assert all(torch.allclose(p.grad.full_tensor(), q.grad, atol=1e-5) for p, q in zip(net4.parameters(), ref.parameters()))
dist.destroy_process_group()
