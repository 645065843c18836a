"""Point-to-point messages: order, tags, any source, batches, large and empty tensors."""
# ranks: 2 3

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
right, left = (rank + 1) % size, (rank - 1) % size

for count in (0, 1, 1000, 200_000):
    if rank == 0:
        dist.send(torch.arange(count), dst=1)
    elif rank == 1:
        t = torch.empty(count, dtype=torch.int64)
        assert dist.recv(t, src=0) == 0
        assert torch.equal(t, torch.arange(count))

# Tags choose among messages, whatever the order of their arrival.
if rank == 0:
    works = [dist.isend(torch.tensor([float(tag)]), dst=1, tag=tag) for tag in (5, 6, 7)]
    for work in works:
        work.wait()
elif rank == 1:
    for tag in (7, 5, 6):
        t = torch.zeros(1)
        dist.recv(t, src=0, tag=tag)
        assert t.item() == tag

# A ring of simultaneous messages.
incoming = torch.zeros(50_000)
works = [dist.irecv(incoming, src=left), dist.isend(torch.full((50_000,), float(rank)), dst=right)]
for work in works:
    work.wait()
assert incoming[0] == left and incoming[-1] == left
received = torch.zeros(3)
ops = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), right), dist.P2POp(dist.irecv, received, left)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
assert received.tolist() == [left] * 3

# From anybody.
if rank == 0:
    seen = set()
    for _ in range(size - 1):
        t = torch.zeros(1)
        source = dist.recv(t)
        assert t.item() == source
        seen.add(source)
    assert seen == set(range(1, size))
else:
    dist.send(torch.tensor([float(rank)]), dst=0)

# Strided tensors.
whole = torch.zeros(4, 4)
if rank == 0:
    dist.send(torch.arange(4.0).expand(4, 4).t()[0], dst=1)
elif rank == 1:
    dist.recv(whole[:, 2], src=0)
    assert whole[:, 2].tolist() == [0.0] * 4
for bad in (rank, None):
    try:
        dist.send(torch.ones(1), dst=bad)
        raise SystemExit("expected an error")
    except ValueError:
        pass
dist.barrier()
dist.destroy_process_group()
