"""Distributed tensors: placements, operators, derivatives, optimizers."""
# ranks: 2 4

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)

mesh = init_device_mesh(
    "cpu", (dist.get_world_size() if dist.is_initialized() else int(__import__("os").environ["WORLD_SIZE"]),)
)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
big = torch.randn(8, 6)
for pl in (Shard(0), Shard(1), Replicate()):
    d = distribute_tensor(big, mesh, [pl])
    assert d.shape == (8, 6) and torch.equal(d.full_tensor(), big)
    if pl == Shard(0):
        assert d.to_local().shape == (8 // size, 6)
    for pl2 in (Shard(0), Shard(1), Replicate()):
        assert torch.equal(d.redistribute(placements=[pl2]).full_tensor(), big)
    assert torch.allclose((d * 2 + d).full_tensor(), big * 3)
    for pl2 in (Shard(0), Shard(1), Replicate()):
        e = distribute_tensor(big.t().contiguous(), mesh, [pl2])
        assert torch.allclose((d @ e).full_tensor(), big @ big.t(), atol=1e-5), (pl, pl2)
    for f in (
        lambda t: t.sum(),
        lambda t: t.sum(0),
        lambda t: t.mean(),
        lambda t: t.sum(1, keepdim=True),
        lambda t: t.t(),
        lambda t: t.view(4, 2, 6),
        lambda t: t.reshape(48),
        lambda t: t.softmax(-1),
        lambda t: t.relu(),
        lambda t: t[2:5],
        lambda t: t[:, 1],
        lambda t: torch.cat([t, t], 1),
        lambda t: t.unsqueeze(0),
        lambda t: t.max(),
        lambda t: t.std(),
        lambda t: t.argmax(1),
        lambda t: t.exp().log1p(),
        lambda t: t.norm(),
        lambda t: t.sum().sqrt(),
        lambda t: t.chunk(2, 1)[1],
        lambda t: t.cumsum(0),
    ):
        a, b = f(d), f(big)
        assert torch.allclose(a.full_tensor(), b, atol=1e-5), pl
p = DTensor.from_local(torch.ones(3) * (rank + 1), mesh, [Partial()])
assert p.full_tensor().tolist() == [size * (size + 1) / 2] * 3
u = distribute_tensor(torch.arange(7.0), mesh, [Shard(0)])
assert torch.equal(u.full_tensor(), torch.arange(7.0)) and torch.equal((u + 1).full_tensor(), torch.arange(7.0) + 1)
# autograd
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))

ref = copy.deepcopy(net)


def part(name, m, mesh):
    if isinstance(m, nn.Linear):
        if name == "0":
            w, b = [Shard(0)], [Shard(0)]
        else:
            w, b = [Shard(1)], [Replicate()]
        m.weight = nn.Parameter(distribute_tensor(m.weight.detach(), mesh, w))
        m.bias = nn.Parameter(distribute_tensor(m.bias.detach(), mesh, b))


dn = distribute_module(
    net,
    mesh,
    part,
    input_fn=lambda m, i, me: tuple(DTensor.from_local(x, me, [Replicate()]) for x in i),
    output_fn=lambda m, o, me: o.redistribute(placements=[Replicate()]).to_local(),
)
x = torch.randn(5, 6)
out = dn(x)
assert torch.allclose(out, ref(x), atol=1e-5)
out.square().sum().backward()
ref(x).square().sum().backward()
for (n, a), b in zip(dn.named_parameters(), ref.parameters()):
    assert torch.allclose(a.grad.full_tensor(), b.grad, atol=1e-4), (n, a.grad, b.grad)
opt, ropt = torch.optim.AdamW(dn.parameters(), lr=0.1), torch.optim.AdamW(ref.parameters(), lr=0.1)
opt.step()
ropt.step()
for (n, a), b in zip(dn.named_parameters(), ref.named_parameters()):
    assert torch.allclose(a.full_tensor(), b[1], atol=1e-4), n

# Images are divided; gradients of the weight are sums over them.
images, weight, bias = torch.randn(2 * size, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4)
plain = [one.clone().requires_grad_() for one in (images, weight, bias)]
torch.nn.functional.conv2d(*plain, padding=1).square().sum().backward()
placed = [
    distribute_tensor(one, mesh, [placement]).requires_grad_()
    for one, placement in zip((images, weight, bias), (Shard(0), Replicate(), Replicate()))
]
out = torch.nn.functional.conv2d(*placed, padding=1)
assert out.placements == (Shard(0),), out.placements
out.square().sum().backward()
for a, b in zip(placed, plain):
    assert torch.allclose(a.grad.full_tensor(), b.grad, atol=1e-3, rtol=1e-4)
rows = torch.randn(2 * size, 5)
ordered, indices = distribute_tensor(rows, mesh, [Shard(0)]).sort(1)
assert ordered.placements == (Shard(0),) and torch.equal(indices.full_tensor(), rows.sort(1)[1])
print(repr(Shard(0)), repr(Partial()), type(dn[0].weight).__name__, isinstance(dn[0].weight, nn.Parameter))
# A product is linear: it commutes with sums of parts, and with no other reduction of them.
for kind in ("sum", "max", "min", "product"):
    parts = DTensor.from_local(torch.sin(torch.arange(6.0)).view(2, 3) * (dist.get_rank() + 1), mesh, [Partial(kind)])
    factor = torch.cos(torch.arange(12.0)).view(3, 4)
    product = parts @ distribute_tensor(factor, mesh, [Replicate()])
    assert torch.allclose(product.full_tensor(), parts.full_tensor() @ factor, atol=1e-5), kind
    beside = torch.stack([parts, distribute_tensor(factor[:2, :3], mesh, [Replicate()])])
    want = torch.stack([parts.full_tensor(), factor[:2, :3]])
    assert torch.allclose(beside.full_tensor(), want, atol=1e-5), kind
# Norms of parts beside a whole number, as gradients of different placements are clipped.
x = torch.sin(torch.arange(8.0)).view(4, 2)
for power in (1, 2, float("inf")):
    norms = [
        torch.linalg.vector_norm(distribute_tensor(x, mesh, [p]) * (i + 1), power)
        for i, p in enumerate((Shard(0), Replicate()))
    ]
    want = torch.stack([torch.linalg.vector_norm(x * (i + 1), power) for i in range(2)])
    assert torch.allclose(torch.stack(norms).full_tensor(), want, atol=1e-5), power
dist.destroy_process_group()
