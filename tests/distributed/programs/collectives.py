"""Every collective, over dtypes, shapes, strides and sizes that need several rounds."""
# ranks: 2 3

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
SIZES = (0, 1, 7, 100_003, 700_001)

for dtype in (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int8):
    for count in SIZES:
        base = torch.arange(count) % 5
        t = (base + rank).to(dtype)
        dist.all_reduce(t)
        assert torch.equal(t, (base * size + sum(range(size))).to(dtype)), (dtype, count)
for dtype in (torch.bfloat16, torch.complex64, torch.complex128):
    t = torch.full((1000,), rank + 1).to(dtype)
    dist.all_reduce(t)
    assert torch.equal(t, torch.full((1000,), size * (size + 1) // 2).to(dtype)), dtype

for op, expected in (
    (dist.ReduceOp.SUM, sum(range(1, size + 1))),
    (dist.ReduceOp.PRODUCT, {2: 2, 3: 6, 4: 24}[size]),
    (dist.ReduceOp.MIN, 1),
    (dist.ReduceOp.MAX, size),
    (dist.ReduceOp.AVG, sum(range(1, size + 1)) / size),
):
    t = torch.full((3, 4), float(rank + 1))
    dist.all_reduce(t, op=op)
    assert torch.allclose(t, torch.full((3, 4), float(expected))), op
for op, start, combine in (
    (dist.ReduceOp.BAND, 255, lambda a, b: a & b),
    (dist.ReduceOp.BOR, 0, lambda a, b: a | b),
    (dist.ReduceOp.BXOR, 0, lambda a, b: a ^ b),
):
    t = torch.tensor([rank + 5, 3], dtype=torch.int32)
    dist.all_reduce(t, op=op)
    expected = [start, start]
    for other in range(size):
        expected = [combine(expected[0], other + 5), combine(expected[1], 3)]
    assert t.tolist() == expected, op
try:
    dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)
    raise SystemExit("bitwise reduction of floats was accepted")
except RuntimeError as error:
    assert "Cannot use ReduceOp" in str(error)

# Strided tensors are read and written where they are.
whole = torch.zeros(4, 6)
column = whole[:, 1:5:2]
column.fill_(rank + 1)
dist.all_reduce(column)
assert torch.equal(whole[:, 1], torch.full((4,), float(size * (size + 1) // 2))) and whole[:, 0].sum() == 0
assert torch.equal(column.t(), torch.full((2, 4), float(size * (size + 1) // 2)))

for count in SIZES:
    for root in range(size):
        t = torch.arange(count) + rank * 10
        dist.broadcast(t, src=root)
        assert torch.equal(t, torch.arange(count) + root * 10)
    flag = torch.tensor([rank == 1])
    dist.broadcast(flag, src=1)
    assert flag.item()

    t = torch.full((count,), rank + 1.0)
    dist.reduce(t, dst=1)
    if rank == 1:
        assert torch.equal(t, torch.full((count,), size * (size + 1) / 2))

    outputs = [torch.empty(count, dtype=torch.int32) for _ in range(size)]
    dist.all_gather(outputs, torch.full((count,), rank, dtype=torch.int32))
    assert all(torch.equal(o, torch.full((count,), i, dtype=torch.int32)) for i, o in enumerate(outputs))
    into = torch.empty(size * count)
    dist.all_gather_into_tensor(into, torch.full((count,), float(rank)))
    assert torch.equal(into.view(size, count), torch.arange(size).float()[:, None].expand(size, count))
    stacked = torch.empty(size, count)
    dist.all_gather_into_tensor(stacked, torch.full((count,), float(rank)))
    assert torch.equal(stacked.view(-1), into)

    gathered = [torch.empty(count) for _ in range(size)] if rank == 1 else None
    dist.gather(torch.full((count,), float(rank)), gathered, dst=1)
    if rank == 1:
        assert all(torch.equal(o, torch.full((count,), float(i))) for i, o in enumerate(gathered))

    t = torch.empty(count)
    dist.scatter(t, [torch.full((count,), float(i)) for i in range(size)] if rank == 0 else None, src=0)
    assert torch.equal(t, torch.full((count,), float(rank)))

    t = torch.empty(count)
    dist.reduce_scatter(t, [torch.full((count,), float(i + rank)) for i in range(size)])
    assert torch.equal(t, torch.full((count,), float(rank * size + sum(range(size)))))
    t = torch.empty(count)
    dist.reduce_scatter_tensor(t, torch.arange(size).repeat_interleave(count).float() + rank)
    assert torch.equal(t, torch.full((count,), float(rank * size + sum(range(size)))))

    outputs = [torch.empty(count) for _ in range(size)]
    dist.all_to_all(outputs, [torch.full((count,), float(rank * 10 + i)) for i in range(size)])
    assert all(torch.equal(o, torch.full((count,), float(i * 10 + rank))) for i, o in enumerate(outputs))
    t = torch.empty(size * count)
    dist.all_to_all_single(t, torch.arange(size).repeat_interleave(count).float() + 10 * rank)
    assert torch.equal(t, 10 * torch.arange(size).repeat_interleave(count).float() + rank)

# Uneven parts: rank i sends j + 1 rows to rank j.
rows = sum(range(1, size + 1))
received = torch.empty(size * (rank + 1), 2)
dist.all_to_all_single(received, torch.full((rows, 2), float(rank)), [rank + 1] * size, [j + 1 for j in range(size)])
assert torch.equal(received[:, 0], torch.arange(size).repeat_interleave(rank + 1).float())

# Handles.
t = torch.full((5,), float(rank))
work = dist.all_reduce(t, async_op=True)
other = torch.ones(3)
second = dist.broadcast(other, src=0, async_op=True)
assert work.wait() and second.wait() and work.is_completed() and work.is_success()
assert t[0] == sum(range(size)) and work.result()[0].data_ptr() == t.data_ptr()
future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
assert future.then(lambda f: f.value()[0] * 2).wait().tolist() == [2.0 * size] * 2
works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
dist.barrier()
assert all(work.wait() for work in works)
dist.barrier(async_op=True).wait()
tensors = [torch.ones(2), torch.full((3,), float(rank))]
dist.all_reduce_coalesced(tensors)
assert tensors[0].tolist() == [size] * 2 and tensors[1].tolist() == [sum(range(size))] * 3
repeated = torch.full((3,), float(rank))
dist.all_reduce_coalesced([repeated, repeated], async_op=True).wait()
assert repeated.tolist() == [sum(range(size))] * 3, "a tensor that is given twice is reduced once"
dist.monitored_barrier()
dist.destroy_process_group()
assert not dist.is_initialized()
