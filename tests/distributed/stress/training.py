"""Training that goes on while processes are killed. Prints what the survivors end with.

Each step works on the same batch whatever the number of processes, so the result is that of one process; a step that a kill
interrupted is done again by those that are left.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, STEPS = 60, int(sys.argv[1])


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, 8, generator=generator), torch.randn(BATCH, 4, generator=generator)


def model():
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return net


def train(net, step, optimizer, rank, size):
    inputs, targets = (part.chunk(size)[rank] for part in batch(step))
    optimizer.zero_grad()
    # The sum over this rank's rows times the number of ranks: their mean is the sum over all rows.
    loss = (net(inputs) - targets).square().sum() / BATCH * size
    loss.backward()
    optimizer.step()


dist.init_process_group("gloo")
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
step, ddp, lost, noticed = 0, None, False, False
print("started", flush=True)
while step < STEPS:
    try:
        if lost:
            dist.reform()
            steps = [None] * dist.get_world_size()
            dist.all_gather_object(steps, step)
            assert len(set(steps)) == 1, f"survivors are at different steps: {steps}"
            lost, ddp = False, None
        if ddp is None:
            ddp = DDP(net)
        train(ddp, step, optimizer, dist.get_rank(), dist.get_world_size())
        step += 1
        if noticed:
            print(f"again {time.monotonic()}", flush=True)
            noticed = False
        time.sleep(0.002)
    except dist.DistBackendError:
        if not noticed:
            print(f"noticed {time.monotonic()}", flush=True)
        lost = noticed = True
checksum = sum(parameter.double().sum().item() for parameter in net.parameters())
print(f"ended {checksum:.9f}", flush=True)
dist.destroy_process_group()
