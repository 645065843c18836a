"""The simulator plays what real steps do: the bytes of their collectives, and whether they run behind backward."""
# ranks: 2 4

import re

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from flambeau.distributed.fsdp import _parameters
from flambeau.distributed.simulator import Cluster, Plan, profile, simulate

dist.init_process_group("gloo")
ranks = dist.get_world_size()
moved = []  # bytes that each rank passes on in a ring


def counted(name, factor, place):
    original = getattr(_parameters.collectives, name)

    def run(*args, **kwargs):
        tensor = args[place]
        moved.append(factor * (ranks - 1) / ranks * tensor.numel() * tensor.element_size())
        return original(*args, **kwargs)

    setattr(_parameters.collectives, name, run)


for name, factor, place in (
    ("all_gather_into_tensor", 1, 0),
    ("reduce_scatter_tensor", 1, 1),
):
    counted(name, factor, place)


def model():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)])


def step(parallel):
    moved.clear()
    parallel(torch.ones(8, 64)).square().mean().backward()
    return sum(moved), len(moved)


# Every byte takes a second, nothing else takes time: the seconds of communication are the bytes.
cluster = Cluster(hosts=1, gpus=ranks, inside=1.0, latency_inside=0.0, operations=1e30)
with torch.device("meta"):
    layers = profile(model(), (torch.zeros(8, 64),))

# The reducer's collectives are in the flight recorder: "all_reduce(float32 [n], op=avg, gradients of bucket …".
net = DDP(model(), bucket_cap_mb=0.2)
step(net)
group = dist.group.WORLD._native
before = group.sequence()
step(net)
texts = [text for number, text, *_ in group.recent() if number > before and "bucket" in text]
numbers = [int(re.search(r"\[(\d+)\]", text)[1]) for text in texts]
size, calls = sum(2 * (ranks - 1) / ranks * 4 * n for n in numbers), len(numbers)
expected = simulate(layers, cluster, Plan(data=ranks, bucket=0.2 * 2**20)).communication
assert abs(size / expected - 1) < 0.05, (size, expected)
assert 2 <= calls <= 2 * len(layers), calls

net = model()
for block in net:
    fully_shard(block)
fully_shard(net)
step(net)
size, calls = step(net)
# Forward and backward gather each block, and its gradients are reduced; the last block need not be gathered twice.
expected = simulate(layers, cluster, Plan(data=ranks, shard=True)).communication
assert 0.8 <= size / expected <= 1.2, (size, expected)
dist.destroy_process_group()
