"""NCCL in a group of one process: collectives, handles, streams, graphs, data parallel and sharded training."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

device = torch.device("cuda")
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.is_nccl_available() and dist.get_backend() == "nccl", dist.get_backend()
print("NCCL", torch.cuda.nccl.version())
for dtype in (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
):
    tensor = torch.ones(4, 3, device=device).to(dtype)
    dist.all_reduce(tensor)
    assert tensor.cpu().tolist() == (torch.ones(4, 3) * size).to(dtype).tolist(), dtype
for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT):
    strided = torch.arange(12.0, device=device).view(3, 4).t()
    dist.all_reduce(strided, op=op)
    assert strided.cpu().tolist() == torch.arange(12.0).view(3, 4).t().tolist(), op
own = torch.arange(6.0, device=device)
parts = [torch.empty(6, device=device) for _ in range(size)]
dist.all_gather(parts, own)
whole = torch.empty(6 * size, device=device)
dist.all_gather_into_tensor(whole, own)
part = torch.empty(6, device=device)
dist.reduce_scatter_tensor(part, whole)
swapped = torch.empty(6, device=device)
dist.all_to_all_single(swapped, own)
scattered, gathered = torch.empty(6, device=device), [torch.empty(6, device=device) for _ in range(size)]
dist.scatter(scattered, [own for _ in range(size)], src=0)
dist.gather(own, gathered, dst=0)
dist.broadcast(own, 0)
dist.reduce(own, 0)
for one in (parts[0], whole, part, swapped, scattered, gathered[0], own):
    assert one.cpu().tolist() == [0, 1, 2, 3, 4, 5]
box = [{"a": 1}]
dist.broadcast_object_list(box)
listed = [None] * size
dist.all_gather_object(listed, "x")
assert listed == ["x"] * size
on_host = torch.ones(2)
dist.all_reduce(on_host)
dist.barrier()

large = torch.ones(1 << 22, device=device)
work = dist.all_reduce(large, async_op=True)
work.wait()
total = (large * 2).sum()
assert total.item() == 2 * (1 << 22) and work.is_completed()
doubled = (
    dist.all_reduce(torch.ones(2, device=device), async_op=True).get_future().then(lambda f: f.value()[0] * 2).wait()
)
assert doubled.cpu().tolist() == [2, 2]

static = torch.ones(8, device=device)
dist.all_reduce(static)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    doubled_static = static * 2
    dist.all_reduce(doubled_static)
    result = doubled_static + 1
for value in (1.0, 5.0):
    static.fill_(value)
    graph.replay()
    torch.cuda.synchronize()
    assert result.cpu().tolist() == [2 * value + 1] * 8, (value, result)


def losses(wrap):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.sin(torch.arange(float(p.numel())) + i).view(p.shape) * 0.2)
    net = wrap(net.to(device))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    found = []
    for step in range(4):
        optimizer.zero_grad()
        loss = net(torch.full((8, 16), 0.1 * (step + 1), device=device)).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def sharded(net):
    fully_shard(net, mesh=init_device_mesh("cuda", (size,)))
    return net


plain = losses(lambda net: net)
for wrap in (DDP, lambda net: DDP(net, device_ids=[0]), sharded):
    assert all(abs(a - b) < 1e-5 for a, b in zip(losses(wrap), plain)), wrap
dist.destroy_process_group()
print("through")
