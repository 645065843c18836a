"""Collectives, messages, groups and a DDP step over MPI, under `mpiexec`."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "mpi" and dist.is_mpi_available()
for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16, torch.float16, torch.complex64):
    tensor = torch.full((2, 3), rank + 1).to(dtype)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [[size * (size + 1) / 2] * 3] * 2, (dtype, tensor)
for op, expected in ((dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.AVG, (size + 1) / 2)):
    tensor = torch.full((4,), rank + 1.0)[::2]
    dist.all_reduce(tensor, op=op)
    assert tensor.tolist() == [expected] * 2, op
flags = torch.tensor([rank == 0, True])
dist.all_reduce(flags, op=dist.ReduceOp.BAND)
assert flags.tolist() == [False, True]

tensor = torch.arange(3.0) + rank
dist.broadcast(tensor, 1)
assert tensor.tolist() == [1, 2, 3]
parts = [torch.empty(2) for _ in range(size)]
dist.all_gather(parts, torch.full((2,), float(rank)))
assert [part[0].item() for part in parts] == list(range(size))
output = torch.empty(size)
dist.all_to_all_single(output, torch.arange(float(size)) + 10 * rank)
assert output.tolist() == [10 * i + rank for i in range(size)]
part = torch.empty(2)
dist.reduce_scatter_tensor(part, torch.arange(2.0 * size))
assert part.tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size]
scattered = torch.empty(1)
dist.scatter(scattered, [torch.tensor([float(i)]) for i in range(size)] if rank == 0 else None, src=0)
assert scattered.item() == rank
listed = [None] * size
dist.all_gather_object(listed, {"rank": rank})
assert [one["rank"] for one in listed] == list(range(size))

right, left = (rank + 1) % size, (rank - 1) % size
buffer = torch.empty(2)
works = [dist.isend(torch.full((2,), float(rank)), right, tag=3), dist.irecv(buffer, left, tag=3)]
for work in works:
    work.wait()
assert buffer.tolist() == [left, left]
if rank == 0:
    assert sorted(dist.recv(torch.empty(1)) for _ in range(size - 1)) == list(range(1, size))
else:
    dist.send(torch.ones(1), 0)

pair = dist.new_group([0, 1])
if rank < 2:
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=pair)
    assert tensor.item() == 2
gloo = dist.new_group(backend="gloo")
tensor = torch.ones(1)
work = dist.all_reduce(tensor, group=gloo, async_op=True)
work.wait()
assert tensor.item() == size

torch.manual_seed(rank)
model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
model(torch.full((1, 3), rank + 1.0)).sum().backward()
assert torch.allclose(model.module.weight.grad, torch.full((2, 3), (size + 1) / 2))

try:  # ranks that disagree are told so
    dist.all_reduce(torch.ones(2 + rank))
    raise SystemExit("expected a mismatch")
except RuntimeError as error:
    assert "mismatch" in str(error)
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} of {size} is through")
