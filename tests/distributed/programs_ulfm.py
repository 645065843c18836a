"""Training over an MPI that can go on without a process: the last rank is killed, the others repeat the step and go on."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
ddp = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)


def step(number):
    optimizer.zero_grad()
    ddp(torch.full((1, 3), number + 1.0)).sum().backward()
    optimizer.step()


done = 0
while done < 4:
    if done == 2 and rank == size - 1 and dist.get_world_size() == size:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        step(done)
    except dist.DistBackendError:
        old = dist.reform()
        assert old == list(range(size - 1)) and dist.get_world_size() == size - 1, old
        ddp = nn.parallel.DistributedDataParallel(ddp.module)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        continue
    done += 1
torch.manual_seed(0)
expected = nn.Linear(3, 2)
expected.load_state_dict(
    {k: v - 0.1 * (1 + 2 + 3 + 4) if k == "weight" else v - 0.4 for k, v in expected.state_dict().items()}
)
assert torch.allclose(ddp.module.weight, expected.weight, atol=1e-5)
objects = [None] * dist.get_world_size()
dist.all_gather_object(objects, rank)
assert objects == list(range(size - 1))
pair = dist.new_group([0, 1])
if rank < 2:
    x = torch.ones(1)
    dist.all_reduce(x, group=pair)
    assert x.item() == 2
print(f"rank {rank} went on", flush=True)
os._exit(0)
