"""Functions on other workers, references to their results, gradients and optimizers across them."""
# ranks: 2

import os
import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.optim import DistributedOptimizer

rank = int(os.environ["RANK"])
other = f"worker{1 - rank}"


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        nn.init.constant_(self.linear.weight, 0.5)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(x)

    def references(self):
        return [rpc.RRef(parameter) for parameter in self.parameters()]


def raising(kind, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        return str(error)
    raise AssertionError("expected an error")


def fail():
    raise KeyError("lost")


rpc.init_rpc(f"worker{rank}", rpc_backend_options=rpc.TensorPipeRpcBackendOptions(rpc_timeout=30))
assert rpc.rpc_sync(other, torch.add, args=(torch.ones(2), 2)).tolist() == [3, 3]
assert [f.wait() for f in [rpc.rpc_async(other, max, args=(i, 3)) for i in range(6)]] == [3, 3, 3, 3, 4, 5]
assert "lost" in raising(KeyError, rpc.rpc_sync, other, fail)
assert "timeout" in raising(RuntimeError, rpc.rpc_sync, other, time.sleep, args=(1,), timeout=0.05)
raising(RuntimeError, rpc.rpc_sync, "nobody", max, args=(1, 2))

layer = rpc.remote(other, Layer)
assert layer.owner_name() == other and not layer.is_owner()
mine = Layer()
optimizer = DistributedOptimizer(torch.optim.SGD, [*layer.rpc_sync().references(), *mine.references()], lr=0.1)
reference, second = Layer(), Layer()
plain = torch.optim.SGD([*reference.parameters(), *second.parameters()], lr=0.1)
for _ in range(3):
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [mine(layer.rpc_sync().forward(torch.ones(1, 2))).square().sum()])
        optimizer.step(context)
    plain.zero_grad()
    second(reference(torch.ones(1, 2))).square().sum().backward()
    plain.step()
assert torch.allclose(mine.linear.weight, second.linear.weight)
assert torch.allclose(layer.rpc_sync().references()[0].to_here(), reference.linear.weight)
rpc.shutdown()
