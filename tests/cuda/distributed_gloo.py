"""Several processes on one GPU with gloo: tensors go through the host's memory."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

device = torch.device("cuda")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for dtype in (torch.float32, torch.bfloat16, torch.int64):
    tensor = torch.full((3, 2), rank + 1, device=device).to(dtype).t()
    dist.all_reduce(tensor)
    assert tensor.is_cuda and tensor.cpu().tolist() == [[size * (size + 1) / 2] * 3] * 2, dtype
parts = [torch.empty(2, device=device) for _ in range(size)]
dist.all_gather(parts, torch.full((2,), float(rank), device=device))
assert [part[0].item() for part in parts] == list(range(size))
tensor = torch.full((2,), float(rank), device=device)
dist.broadcast(tensor, 1)
assert tensor.cpu().tolist() == [1, 1]
work = dist.all_reduce(tensor, async_op=True)
work.wait()
assert tensor.cpu().tolist() == [size, size]
buffer = torch.empty(2, device=device)
works = [
    dist.isend(torch.full((2,), float(rank), device=device), (rank + 1) % size),
    dist.irecv(buffer, (rank - 1) % size),
]
for work in works:
    work.wait()
assert buffer.cpu().tolist() == [(rank - 1) % size] * 2

torch.manual_seed(rank)
model = DDP(nn.Linear(4, 2).to(device))
model(torch.full((1, 4), rank + 1.0, device=device)).sum().backward()
assert torch.allclose(model.module.weight.grad.cpu(), torch.full((2, 4), (size + 1) / 2))
dist.barrier()
dist.destroy_process_group()
print("through")
