"""A program written for many processes that runs as one: process group, data parallel module, a
scripted part, gradients accumulated and checkpointed activations."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common import initialise, integers, numbers, report
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@torch.jit.script
def activation(x):
    return x * torch.sigmoid(1.702 * x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x):
        x = activation(self.first(x))
        x = checkpoint(lambda y: torch.tanh(self.second(y)), x, use_reentrant=False)
        return self.third(x)


def main(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=dist.HashStore())
    labels = integers(4, 96, seed=1)
    inputs = numbers(4, 16, seed=2)[labels] + numbers(96, 16, seed=3)
    data = TensorDataset(inputs, labels)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(initialise(Net()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if step % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
            total = loss.detach().clone()
            dist.all_reduce(total, op=dist.ReduceOp.SUM)
            if dist.get_rank() == 0:
                report(step, total / dist.get_world_size())
            step += 1
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    print(mp.get_start_method(allow_none=False) in mp.get_all_start_methods())
    main(0, 1)
