"""DistributedDataParallel with its options, hooks, joins, ZeRO and the averaging algorithms."""
# ranks: 2

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from cases import case, filled, main
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def rank():
    return dist.get_rank()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, extra=False):
        y = self.b(torch.relu(self.a(x)))
        return {"out": self.unused(y) if extra else y, "other": [y]}


def simple():
    return filled(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))


def data(step=0):
    return torch.linspace(-1, 1, 12).view(3, 4) * (rank() + 1) + 0.1 * step


def train(model, steps=3, optimizer=None, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        out = model(data(step))
        loss = (out["out"] if isinstance(out, dict) else out).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [losses, [p.detach().clone() for p in model.parameters()]]


@case
def plain_training():
    return train(DDP(simple()))


@case
def options():
    results = {}
    for name, kwargs in {
        "views": {"gradient_as_bucket_view": True},
        "static": {"static_graph": True},
        "small": {"bucket_cap_mb": 0.0001},
        "no_buffers": {"broadcast_buffers": False},
        "group": {"process_group": dist.group.WORLD},
        "caps": {"bucket_cap_mb_list": [1, 25]},
        "skip": {"skip_all_reduce_unused_params": True},
    }.items():
        try:
            results[name] = train(DDP(simple(), **kwargs))[0]
        except TypeError:
            results[name] = "TypeError"
    return results


@case
def unused_parameters():
    model = DDP(filled(Net()), find_unused_parameters=True)
    model(data())["out"].sum().backward()
    first = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(data(), extra=rank() == 0)["out"].sum().backward()
    return [first, [None if p.grad is None else p.grad.clone() for p in model.parameters()]]


@case
def accumulation():
    model = DDP(simple())
    with model.no_sync():
        model(data()).sum().backward()
        local = model.module[0].weight.grad.clone()
    model(data(1)).sum().backward()
    return [local, model.module[0].weight.grad, model.require_backward_grad_sync]


@case
def different_start():
    model = filled(nn.Linear(2, 2))
    with torch.no_grad():
        model.weight += rank()
    model = DDP(model)
    return [model.module.weight, model.state_dict()["module.weight"]]


@case
def hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    results = {}
    for name in ("allreduce_hook", "fp16_compress_hook"):
        model = DDP(simple())
        model.register_comm_hook(None, getattr(default_hooks, name))
        results[name] = [len(train(model)[0])]
        if name == "allreduce_hook":
            results[name] = train(model)
    model = DDP(simple())
    model.register_comm_hook(None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook))
    results["wrapped"] = train(model, 1)[0]

    def own(state, bucket):
        state.append(
            (
                bucket.index(),
                bucket.is_last(),
                len(bucket.gradients()),
                len(bucket.parameters()),
                bucket.buffer().numel(),
            )
        )
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda f: f.value()[0] / 2)

    state = []
    model = DDP(simple())
    model.register_comm_hook(state, own)
    results["own"] = [train(model), state]
    model = DDP(simple())
    power = powerSGD_hook.PowerSGDState(
        process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    model.register_comm_hook(power, powerSGD_hook.powerSGD_hook)
    results["power"] = train(model, 2)
    return results


@case
def power_sgd_follows():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = DDP(simple())
    state = powerSGD_hook.PowerSGDState(
        process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.1
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    losses = train(model, 5)[0]
    both = [None, None]
    dist.all_gather_object(both, [p.sum().item() for p in model.parameters()])
    return [losses[0], both[0] == both[1], bool(losses[-1] < losses[0])]


@case
def join_uneven():
    model = DDP(simple())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(2 + rank()):
            optimizer.zero_grad()
            model(data(step)).square().mean().backward()
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@case
def join_context():
    from torch.distributed.algorithms.join import Join, Joinable, JoinHook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    class Hook(JoinHook):
        def __init__(self, counter):
            self.counter = counter

        def main_hook(self):
            total = torch.zeros(1)
            dist.all_reduce(total)
            self.counter.shadows += 1

        def post_hook(self, is_last_joiner):
            self.counter.last = is_last_joiner

    class Counter(Joinable):
        def __init__(self):
            super().__init__()
            self.total, self.shadows, self.last = 0, 0, None

        def step(self):
            Join.notify_join_context(self)
            one = torch.ones(1)
            dist.all_reduce(one)
            self.total += int(one)

        def join_hook(self, **kwargs):
            return Hook(self)

        @property
        def join_device(self):
            return torch.device("cpu")

        @property
        def join_process_group(self):
            return dist.group.WORLD

    counter = Counter()
    with Join([counter]):
        for _ in range(2 + 2 * rank()):
            counter.step()
    model = DDP(simple())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for step in range(3 - rank()):
            optimizer.zero_grad()
            model(data(step)).square().mean().backward()
            optimizer.step()
    return [counter.total, counter.shadows, counter.last, [p.detach().clone() for p in model.parameters()]]


@case
def zero_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(simple())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01, parameters_as_bucket_view=True)
    result = train(model, 3, optimizer)
    optimizer.consolidate_state_dict(to=0)
    state = optimizer.state_dict() if rank() == 0 else None
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.5})
    return [
        result,
        None if state is None else state["state"][0],
        len(optimizer.param_groups),
        optimizer.param_groups[1]["lr"],
    ]


@case
def averaging():
    import torch.distributed.algorithms.model_averaging.averagers as averagers
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.optim import PostLocalSGDOptimizer

    model = DDP(simple())
    subgroup, _ = dist.new_subgroups(1)
    model.register_comm_hook(PostLocalSGDState(None, subgroup, 2), post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), averagers.PeriodicModelAverager(period=2, warmup_steps=2)
    )
    trained = train(model, 5, optimizer)
    return [trained, sorted(optimizer.state_dict())]


@case
def sync_batch_norm():
    torch.manual_seed(0)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    return [type(model[1]).__name__, model[1].num_features]


@case
def buffers():
    model = DDP(nn.BatchNorm1d(4))
    model.train()
    model(data()).sum().backward()
    running = model.module.running_mean.clone()
    model(data(1)).sum().backward()
    return [running, model.module.running_mean]


@case
def errors():
    results = []
    for call in (
        lambda: DDP(nn.ReLU()),
        lambda: DDP(simple(), bucket_cap_mb=-5) and None,
        lambda: DDP(simple(), device_ids=[0, 1]),
        lambda: DDP(simple()).register_comm_hook(None, 5),
    ):
        try:
            results.append(type(call()).__name__)
        except Exception as error:
            results.append({"raised": [c.__name__ for c in type(error).__mro__]})
    return results


@case
def reuse_and_checkpoint():
    from torch.utils.checkpoint import checkpoint

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x):
            return self.a(checkpoint(self.a, self.a(x), use_reentrant=False))

    model = DDP(filled(Twice()))
    model(data()).sum().backward()
    return model.module.a.weight.grad


@case
def named_optimizer():
    from torch.distributed.optim import _NamedOptimizer

    model = simple()
    optimizer = _NamedOptimizer(model.named_parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    return [sorted(state["state"]), state["param_groups"], state["state"]["0.weight"]]


@case
def functional_optimizers():
    from torch.distributed.optim import as_functional_optim

    results = {}
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        parameter = torch.ones(3, requires_grad=True)
        optimizer = as_functional_optim(kind, lr=0.1)
        optimizer.step_param(parameter, torch.arange(3.0))
        optimizer.step_param(parameter, torch.arange(3.0))
        results[kind.__name__] = parameter.detach()
    return results


@case
def replicate():
    from torch.distributed._composable.replicate import replicate

    model = simple()
    replicate(model)
    model(data()).square().mean().backward()
    return model[0].weight.grad


@case
def logging_data():
    model = DDP(simple())
    model(data()).sum().backward()
    found = model._get_ddp_logging_data()
    return [
        found["world_size"],
        found["rank"],
        found["module_name"],
        found["backend_name"],
        found["is_multi_device_module"],
        found["bucket_cap_bytes"],
    ]


@case
def copies():
    model = DDP(simple())
    other = copy.deepcopy(model.module)
    return F.mse_loss(other(data()), model(data()))


@case
def sampler():
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    sampled = DistributedSampler(TensorDataset(torch.arange(7)), shuffle=False)
    plain = DistributedSampler(range(5), shuffle=False, drop_last=True)
    batches = [
        b[0].tolist()
        for b in DataLoader(
            TensorDataset(torch.arange(7)), batch_size=2, sampler=DistributedSampler(range(7), shuffle=False)
        )
    ]
    return [list(sampled), len(sampled), list(plain), batches]


class Branches(nn.Module):
    """Every process uses other parameters in the first pass than in the second."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(3, 2) for _ in range(5)])

    def forward(self, x, which):
        return self.branches[which](x)


@case
def parameters_used_only_while_gradients_are_accumulated():
    results = []
    for as_view in (False, True):
        net = filled(Branches())
        model = DDP(net, find_unused_parameters=True, gradient_as_bucket_view=as_view)
        x = torch.ones(2, 3) * (rank() + 1)
        for _ in range(2):
            with model.no_sync():
                model(x, rank()).sum().backward()
            model(x, 2 + rank()).sum().backward()
            results.append([parameter.grad for parameter in net.parameters()])
            model.zero_grad()
    return results


if __name__ == "__main__":
    main()
