"""Communication hooks, SyncBatchNorm, ZeroRedundancyOptimizer, model averaging."""
# ranks: 2

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def trained(hook=None, state=None, steps=3):
    torch.manual_seed(0)
    ddp = DDP(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3)))
    if hook is not None:
        ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(5, 20)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in ddp.parameters()]


plain = trained()
for hook, tolerance in (
    (default_hooks.allreduce_hook, 1e-6),
    (default_hooks.fp16_compress_hook, 1e-3),
    (default_hooks.bf16_compress_hook, 1e-2),
    (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 1e-3),
):
    for p, q in zip(plain, trained(hook)):
        assert torch.allclose(p, q, atol=tolerance), hook
state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
for p, q in zip(plain, trained(powerSGD_hook.powerSGD_hook, state, 4)):
    assert p.shape == q.shape and torch.isfinite(q).all()
assert state.iter == 4


def custom(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    state.append((bucket.index(), bucket.is_last(), bucket.buffer().numel(), len(bucket.parameters())))
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda f: f.value()[0] / size)


seen = []
for p, q in zip(plain, trained(custom, seen)):
    assert torch.allclose(p, q, atol=1e-6)
assert len(seen) == 3 and seen[0][1] and seen[0][2] == sum(p.numel() for p in plain)

# Batch statistics over all processes, with their gradient.
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
whole = copy.deepcopy(net)
sync = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))
assert isinstance(sync.module[1], nn.SyncBatchNorm)
x = torch.randn(size * 3, 2, 4, 4)
weights = torch.randn(size * 3, 3, 4, 4)
mine = slice(rank * 3, rank * 3 + 3)
out = sync(x[mine])
expected = whole(x)
assert torch.allclose(out, expected[mine], atol=1e-5)
(out * weights[mine]).sum().backward()
(expected * weights).sum().backward()
for p, q in zip(sync.parameters(), whole.parameters()):
    assert torch.allclose(p.grad, q.grad / size, atol=1e-4)
assert torch.allclose(sync.module[1].running_mean, whole[1].running_mean, atol=1e-6)
assert torch.allclose(sync.module[1].running_var, whole[1].running_var, atol=1e-6)

# The optimizer's state divided over the ranks gives the same training.
torch.manual_seed(0)
ddp = DDP(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
alone = copy.deepcopy(ddp.module)
zero = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
adam = torch.optim.Adam(alone.parameters(), lr=0.01)
for step in range(4):
    torch.manual_seed(step)
    x = torch.randn(4, 6)
    for net, optimizer in ((ddp, zero), (alone, adam)):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
for p, q in zip(ddp.parameters(), alone.parameters()):
    assert torch.allclose(p, q, atol=1e-6)
assert len(zero.optim.state) < len(list(ddp.parameters()))
zero.consolidate_state_dict(to=0)
if rank == 0:
    saved = zero.state_dict()
    assert len(saved["state"]) == 4
    for index, state in adam.state_dict()["state"].items():
        assert torch.allclose(saved["state"][index]["exp_avg"], state["exp_avg"], atol=1e-6)
dist.barrier()
dist.destroy_process_group()
