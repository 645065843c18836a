"""Distributed tensors and whole training steps of parallel modules as one compiled graph, against eager mode."""
# ranks: 2

import copy
import logging
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (ranks,))
told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger().addHandler(handler)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 15), nn.ReLU(), nn.Linear(15, 4))


def data():
    torch.manual_seed(1)
    batch = torch.randn(2 * ranks, 8)
    return batch, batch[2 * rank : 2 * rank + 2]


def compiled(function):
    return torch.compile(function, fullgraph=True)


def close(a, b):
    a = a.full_tensor() if isinstance(a, DTensor) else a
    return torch.allclose(a, b.full_tensor() if isinstance(b, DTensor) else b, atol=1e-5)


def test_operators_on_an_input():
    x = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Shard(0)])

    @compiled
    def f(x):
        return (x * 2 + 1).sum(), x.placements == (Shard(0),)

    total, known = f(x)
    assert isinstance(total, DTensor) and known
    assert close(total, (x * 2 + 1).sum())
    y = x.redistribute(placements=[Replicate()])
    total, known = f(y)  # other placements: another graph
    assert not known and close(total, (y * 2 + 1).sum())


def test_redistribution():
    @compiled
    def f(x):
        d = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
        assert d.shape[0] == ranks * x.shape[0]
        columns = d.redistribute(placements=[Shard(1)])
        return columns.to_local() * 2, d.full_tensor()

    x = torch.arange(8.0).view(2, 4) + rank
    whole = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
    columns, everything = f(x)
    assert close(columns, whole.redistribute(placements=[Shard(1)]).to_local() * 2)
    assert close(everything, whole)


def test_gradients():
    w = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Shard(0)]).requires_grad_()

    def f(x, w):
        x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        return (x @ w.t()).redistribute(placements=[Replicate()]).to_local().square().sum()

    x = torch.ones(3, 4)
    f(x, w).backward()
    expected, w.grad = w.grad, None
    compiled(f)(x, w).backward()
    assert isinstance(w.grad, DTensor) and w.grad.placements == (Shard(0),)
    assert close(expected, w.grad)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def train(parallel, make=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), own_part=True, tolerance=1e-5):
    """Some compiled steps give the parameters that eager steps of one process on all data give."""
    whole, part = data()
    alone, parallel = model(), parallel(model())
    one, other = make(alone.parameters()), make(parallel.parameters())
    run = compiled(step)
    for _ in range(4):
        step(alone, one, whole)
        run(parallel, other, part if own_part else whole)
    for expected, got in zip(alone.parameters(), parallel.parameters()):
        got = got.full_tensor() if isinstance(got, DTensor) else got
        assert torch.allclose(expected, got, atol=tolerance), (expected, got)


def sharded(model, **options):
    for layer in (model[0], model[2]):
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def test_data_parallel_step():
    train(DDP)
    train(lambda m: DDP(m, bucket_cap_mb=0.0001), lambda p: torch.optim.AdamW(p, lr=0.01))


def test_sharded_step():
    train(sharded)
    train(sharded, lambda p: torch.optim.AdamW(p, lr=0.01))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    train(lambda m: sharded(m, mp_policy=half), tolerance=2e-2)


def test_compiled_full_sharding_tells_nothing():
    """Library code between the graphs is not compiled: no warnings of its own functions that change too often."""
    whole, own = data()
    plain, sharded = model(), FullyShardedDataParallel(model(), use_orig_params=True)
    run = torch.compile(sharded)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module, batch in ((plain, whole), (run, own)):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            for _ in range(4):
                loss = module(batch).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    with torch.no_grad(), FullyShardedDataParallel.summon_full_params(sharded):
        for a, b in zip(plain.parameters(), sharded.parameters()):
            assert torch.allclose(a, b, atol=1e-5)


def test_sharded_forward():
    whole, part = data()
    alone, parallel = model(), sharded(model())
    alone(whole).square().mean().backward()
    forward = compiled(parallel)
    for _ in range(2):
        parallel.zero_grad()
        forward(part).square().mean().backward()
    for expected, got in zip(alone.parameters(), parallel.parameters()):
        assert close(expected.grad, got.grad)
    parallel.zero_grad()
    parallel(part).square().mean().backward()  # eager again
    for expected, got in zip(alone.parameters(), parallel.parameters()):
        assert close(expected.grad, got.grad)


def test_tensor_parallel_step():
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}

    def divide(m):
        wide = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        with torch.no_grad():
            for mine, theirs in zip(wide.parameters(), m.parameters()):
                mine.zero_()
                mine[tuple(slice(n) for n in theirs.shape)] = theirs
        return parallelize_module(wide, mesh, plan)

    whole, _ = data()
    alone, parallel = model(), divide(model())
    assert close(compiled(parallel)(whole), alone(whole))
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (alone, parallel))
    run = compiled(step)
    for _ in range(3):
        assert close(step(alone, one, whole), run(parallel, other, whole))


def test_gradients_are_accumulated_without_communication():
    _, part = data()
    alone, parallel = model(), DDP(copy.deepcopy(model()))
    alone(part).square().mean().backward()

    @compiled
    def backward(x):
        parallel(x).square().mean().backward()

    with parallel.no_sync():
        backward(part)
    for expected, got in zip(alone.parameters(), parallel.parameters()):
        assert close(expected.grad, got.grad)


def test_lists():
    @compiled
    def f(x):
        parts = [torch.empty_like(x) for _ in range(ranks)]
        dist.all_gather(parts, x + 1)
        mine = torch.empty(1)
        dist.reduce_scatter(mine, [part[:1] for part in parts])
        return torch.stack(parts), mine

    gathered, mine = f(torch.full((2,), float(rank)))
    assert gathered.tolist() == [[r + 1.0] * 2 for r in range(ranks)]
    assert mine.tolist() == [(rank + 1.0) * ranks]


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        assert not [line for line in told if "operator by operator" in line], (name, told)
dist.destroy_process_group()
