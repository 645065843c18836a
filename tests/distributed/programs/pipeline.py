"""Pipelines give the outputs, losses and gradients of the whole model, for every schedule."""
# ranks: 2 4

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    pipe_split,
    pipeline,
)

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def layers(count):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(count)]


torch.manual_seed(3)
x, y = torch.randn(8, 6), torch.randn(8, 6)
loss_fn = nn.MSELoss()


def check(modules, indices, outputs, losses, whole):
    expected = whole(x)
    loss = loss_fn(expected, y)
    loss.backward()
    if len(whole) - 1 in indices:
        assert torch.allclose(outputs, expected, atol=1e-6)
        assert torch.allclose(torch.stack(losses).mean(), loss, atol=1e-6)
    else:
        assert outputs is None
    for module, index in zip(modules, indices):
        for p, q in zip(module.parameters(), whole[index].parameters()):
            assert torch.allclose(p.grad, q.grad, atol=1e-6)


for kind in (ScheduleGPipe, Schedule1F1B):
    for microbatches in (size, 2 * size):
        parts = layers(size)
        whole = copy.deepcopy(nn.Sequential(*parts))
        stage = PipelineStage(parts[rank], rank, size, torch.device("cpu"))
        schedule = kind(stage, n_microbatches=microbatches, loss_fn=loss_fn)
        for _ in range(2):
            parts[rank].zero_grad()
            losses = []
            if rank == 0:
                outputs = schedule.step(x)
            elif rank == size - 1:
                outputs = schedule.step(target=y, losses=losses)
            else:
                outputs = schedule.step()
        check([parts[rank]], [rank], outputs, losses, whole)

parts = layers(2 * size)
whole = copy.deepcopy(nn.Sequential(*parts))
indices = [rank, rank + size]
stages = [PipelineStage(parts[i], i, 2 * size, torch.device("cpu")) for i in indices]
schedule = ScheduleInterleaved1F1B(stages, n_microbatches=2 * size, loss_fn=loss_fn)
losses = []
arguments = (x,) if rank == 0 else ()
outputs = schedule.step(*arguments, **({"target": y, "losses": losses} if rank == size - 1 else {}))
check([parts[i] for i in indices], indices, outputs, losses, whole)

# A model that is divided at names.


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(layers(size))
        self.head = nn.Linear(6, 6)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.manual_seed(5)
model = Model()
spec = {f"layers.{i}": SplitPoint.BEGINNING for i in range(1, size)}
pipe = pipeline(model, mb_args=(x[:2],), split_spec=spec)
assert pipe.num_stages == size
stage = pipe.build_stage(rank, torch.device("cpu"))
losses = []
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss_fn)
outputs = schedule.step(*((x,) if rank == 0 else ()), **({"target": y, "losses": losses} if rank == size - 1 else {}))
if rank == size - 1:
    assert torch.allclose(outputs, model(x), atol=1e-6) and len(losses) == 4
assert all(p.grad is not None for p in stage.submod.parameters())


class Marked(Model):
    def forward(self, x):
        for index, layer in enumerate(self.layers):
            if index:
                pipe_split()
            x = layer(x)
        return self.head(x)


assert pipeline(Marked(), mb_args=(x[:2],)).num_stages == size
names = {name for name, _ in stage.submod.named_parameters()}
assert f"layers.{rank}.0.weight" in names and names <= {name for name, _ in model.named_parameters()}


class Scaled(nn.Module):
    """A stage with a named input, which every stage gets."""

    def forward(self, x, scale):
        return x * scale


schedule = ScheduleGPipe(PipelineStage(Scaled(), rank, size, torch.device("cpu")), n_microbatches=2)
scale = torch.tensor([[2.0], [3.0]])
out = schedule.step(torch.ones(2, 3), scale=scale) if rank == 0 else schedule.step(scale=scale)
if rank == size - 1:
    assert torch.equal(out, (scale**size).expand(2, 3)), out
dist.barrier()
dist.destroy_process_group()
