"""A transformer block divided over ranks gives the same results and gradients as the whole."""
# ranks: 2

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
rank = dist.get_rank()
torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.w1, self.w2 = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.w2(torch.nn.functional.gelu(self.w1(self.norm(x))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        heads = [p(x).unflatten(-1, (-1, 4)).transpose(1, 2) for p in (self.q, self.k, self.v)]
        out = torch.nn.functional.scaled_dot_product_attention(*heads)
        return self.o(out.transpose(1, 2).flatten(2))


def compare(net, ref, x, y=None):
    out, expected = net(x), ref(x)
    out = out.full_tensor() if isinstance(out, DTensor) else out
    assert torch.allclose(out, expected, atol=1e-5)
    out.square().sum().backward()
    expected.square().sum().backward()
    for (name, p), q in zip(net.named_parameters(), ref.parameters()):
        grad = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
        assert torch.allclose(grad, q.grad, atol=1e-4), name


x = torch.randn(2, 4, 8)
net = MLP()
ref = copy.deepcopy(net)
parallelize_module(net, mesh, {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
assert net.w1.weight.to_local().shape == (16, 8) and net.w2.weight.placements == (Shard(1),)
compare(net, ref, x)
net = MLP()
ref = copy.deepcopy(net)
plan = {
    "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "w1": ColwiseParallel(input_layouts=Shard(1)),
    "w2": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
}
parallelize_module(net, mesh, plan)
compare(net, ref, x)
net = Attention()
ref = copy.deepcopy(net)
plan = {name: ColwiseParallel() for name in "qkv"} | {"o": RowwiseParallel()}
parallelize_module(net, mesh, plan)
compare(net, ref, x)

# Embedding and a loss on divided logits.
net = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
ref = copy.deepcopy(net)
parallelize_module(
    net, mesh, {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel(use_local_output=False)}
)
tokens, labels = torch.randint(0, 10, (6,)), torch.randint(0, 10, (6,))
dist.broadcast(tokens, 0)
dist.broadcast(labels, 0)
with loss_parallel():
    loss = torch.nn.functional.cross_entropy(net(tokens), labels)
    loss.backward()
expected = torch.nn.functional.cross_entropy(ref(tokens), labels)
expected.backward()
assert torch.allclose(loss.full_tensor(), expected, atol=1e-5)
for p, q in zip(net.parameters(), ref.parameters()):
    assert torch.allclose(p.grad.full_tensor(), q.grad, atol=1e-5)
dist.barrier()
dist.destroy_process_group()
