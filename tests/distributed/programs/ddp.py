"""Data-parallel training equals training on the whole batch, whatever the options."""
# ranks: 2 3

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)  # DDP makes the models equal


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(steps, rows=4):
    generator = torch.Generator().manual_seed(7)
    return [
        (torch.randn(size * rows, 8, generator=generator), torch.randn(size * rows, 4, generator=generator))
        for _ in range(steps)
    ]


def same_everywhere(tensor):
    others = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(others, tensor.detach().contiguous())
    return all(torch.equal(others[0], other) for other in others)


for options in (
    {},
    {"bucket_cap_mb": 0.0005},
    {"gradient_as_bucket_view": True},
    {"find_unused_parameters": True},
    {"static_graph": True},
    {"broadcast_buffers": False},
):
    net = model()
    ddp = DDP(net, **options)
    assert all(same_everywhere(p) for p in ddp.parameters())
    alone = copy.deepcopy(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches(4):
        optimizer.zero_grad()
        mine = slice(rank * 4, rank * 4 + 4)
        nn.functional.mse_loss(ddp(x[mine]), y[mine]).backward()
        optimizer.step()
        reference.zero_grad()
        nn.functional.mse_loss(alone(x), y).backward()
        reference.step()
    for p, q in zip(ddp.parameters(), alone.parameters()):
        assert torch.allclose(p, q, atol=1e-6), options
        assert torch.allclose(p.grad, q.grad, atol=1e-6) and same_everywhere(p)
    assert set(ddp.state_dict()) == {f"module.{key}" for key in net.state_dict()}

# Accumulation without and with communication.
ddp = DDP(model())
x = torch.randn(4, 8)
with ddp.no_sync():
    ddp(x).sum().backward()
local = [p.grad.clone() for p in ddp.parameters()]
ddp(x).sum().backward()
for p, g in zip(ddp.parameters(), local):
    whole = 2 * g
    dist.all_reduce(whole)
    assert torch.allclose(p.grad, whole / size, atol=1e-5)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, which):
        return self.a(x) if which == 0 else self.b(x)


# Branches that differ from rank to rank.
ddp = DDP(Branches(), find_unused_parameters=True)
for _ in range(2):
    ddp.zero_grad()
    ddp(torch.ones(2, 4), 0 if rank == 0 else 1).sum().backward()
    assert torch.allclose(ddp.module.a.weight.grad, torch.full((4, 4), 2.0 / size))
    assert torch.allclose(ddp.module.b.weight.grad, torch.full((4, 4), 2.0 * (size - 1) / size))
    assert ddp.module.never.weight.grad is None

# Buffers are those of the first rank at the start of forward.
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
ddp = DDP(net)
ddp(torch.randn(6, 4) + rank).sum().backward()
ddp(torch.randn(6, 4))
ddp.eval()
with torch.no_grad():
    ddp(torch.randn(6, 4))
assert net[1].num_batches_tracked.item() == 2

# Uneven inputs.
net = nn.Linear(1, 1, bias=False)
ddp = DDP(net)
with ddp.join():
    for _ in range(2 + rank):
        ddp.zero_grad()
        ddp(torch.ones(1, 1)).sum().backward()
assert same_everywhere(net.weight)
net = nn.Linear(1, 1, bias=False)
ddp = DDP(net)
with ddp.join(divide_by_initial_world_size=False):
    for _step in range(1 + 2 * (rank == size - 1)):
        ddp.zero_grad()
        ddp(torch.ones(1, 1)).sum().backward()
if rank == size - 1:
    assert net.weight.grad.item() == 1.0
dist.barrier()
dist.destroy_process_group()
