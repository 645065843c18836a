"""FullyShardedDataParallel, fully_shard and checkpoints of sharded models."""
# ranks: 2

import functools
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from cases import case, filled, main
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    FSDPModule,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    always_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from torch.distributed.tensor import DTensor

CPU = torch.device("cpu")


def rank():
    return dist.get_rank()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def model():
    return filled(nn.Sequential(Block(), Block(), nn.Linear(4, 3)))


def data(step=0):
    return torch.linspace(-1, 1, 12).view(3, 4) * (rank() + 1) + 0.1 * step


def train(net, steps=3, optimizer=None):
    optimizer = optimizer or torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(data(step)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def folder():
    box = [tempfile.mkdtemp()]
    dist.broadcast_object_list(box)
    return box[0]


@case
def strategies():
    return {
        s.name: train(FSDP(model(), device_id=CPU, sharding_strategy=s))
        for s in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD)
    }


@case
def options():
    policies = {
        "modules": ModuleWrapPolicy({Block}),
        "transformer": functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        "size": functools.partial(size_based_auto_wrap_policy, min_num_params=20),
        "always": always_wrap_policy,
    }
    results = {name: train(FSDP(model(), device_id=CPU, auto_wrap_policy=policy)) for name, policy in policies.items()}
    results["orig"] = train(
        FSDP(model(), device_id=CPU, use_orig_params=True, auto_wrap_policy=ModuleWrapPolicy({Block}))
    )
    results["prefetch"] = train(
        FSDP(model(), device_id=CPU, backward_prefetch=BackwardPrefetch.BACKWARD_POST, forward_prefetch=True)
    )
    return results


@case
def counts():
    net = FSDP(model(), device_id=CPU, auto_wrap_policy=ModuleWrapPolicy({Block}))
    net(data())
    inner = net.module[0]
    return [
        len(FSDP.fsdp_modules(net)), len(FSDP.fsdp_modules(net, root_only=True)), net.check_is_root(), inner.check_is_root(),
        type(net.module).__name__, type(inner).__name__, type(inner.module).__name__, type(net[0]).__name__,
    ]  # fmt: skip


@case
def orig_params():
    net = FSDP(model(), device_id=CPU, use_orig_params=True, auto_wrap_policy=ModuleWrapPolicy({Block}))
    names = [n for n, _ in net.named_parameters()]
    with FSDP.summon_full_params(net):
        shapes = {n: list(p.shape) for n, p in net.named_parameters()}
    return [names, shapes]


@case
def mixed():
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = FSDP(model(), device_id=CPU, mixed_precision=precision)
    out = net(data())
    out.float().sum().backward()
    return [str(out.dtype), {str(p.grad.dtype) for p in net.parameters()}, {str(p.dtype) for p in net.parameters()}]


@case
def written_back():
    net = FSDP(model(), device_id=CPU)
    with FSDP.summon_full_params(net, writeback=False), torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    first = net(data())
    with FSDP.summon_full_params(net), torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
    return [first, net(data())]


@case
def shared_and_frozen():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight
            self.c = nn.Linear(4, 4)

        def forward(self, x):
            return self.c(self.b(torch.relu(self.a(x))))

    net = filled(Tied())
    net.c.requires_grad_(False)
    return train(FSDP(net, device_id=CPU, use_orig_params=True))


@case
def clipping():
    net = FSDP(model(), device_id=CPU)
    net(data()).sum().backward()
    norm = net.clip_grad_norm_(0.5)
    return [norm, net.clip_grad_norm_(0.5)]


@case
def accumulate():
    net = FSDP(model(), device_id=CPU)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with net.no_sync():
        net(data()).square().mean().backward()
    net(data(1)).square().mean().backward()
    optimizer.step()
    with FSDP.summon_full_params(net):
        return [p.detach().clone() for p in net.parameters()]


@case
def state_dicts():
    results = {}
    net = FSDP(model(), device_id=CPU, auto_wrap_policy=ModuleWrapPolicy({Block}))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train(net, 2, optimizer)
    with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False)):
        full = net.state_dict()
        results["full"] = full
    with FSDP.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
        sharded = net.state_dict()
        results["sharded"] = {k: list(v.shape) for k, v in sharded.items()}
    other = FSDP(filled(model()), device_id=CPU, auto_wrap_policy=ModuleWrapPolicy({Block}))
    with FSDP.state_dict_type(other, StateDictType.FULL_STATE_DICT):
        other.load_state_dict(full)
    results["loaded"] = other(data())
    with FSDP.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
        other.load_state_dict(sharded)
    results["again"] = other(data())
    current = FSDP.get_state_dict_type(other)
    results["type"] = current.state_dict_type
    return results


@case
def optimizer_state():
    net = FSDP(model(), device_id=CPU, auto_wrap_policy=ModuleWrapPolicy({Block}))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train(net, 2, optimizer)
    full = FSDP.full_optim_state_dict(net, optimizer, rank0_only=False)
    results = [
        sorted(full["state"]),
        full["state"]["0.up.weight"]["exp_avg"],
        sorted(full["param_groups"][0]["params"]),
    ]
    other = FSDP(model(), device_id=CPU, auto_wrap_policy=ModuleWrapPolicy({Block}))
    second = torch.optim.Adam(other.parameters(), lr=0.01)
    second.load_state_dict(FSDP.shard_full_optim_state_dict(full, other))
    results.append(second.param_groups[0]["lr"])
    FSDP.set_state_dict_type(
        net,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=False),
        FullOptimStateDictConfig(rank0_only=False),
    )
    state = FSDP.optim_state_dict(net, optimizer)
    loaded = FSDP.optim_state_dict_to_load(net, optimizer, state)
    optimizer.load_state_dict(loaded)
    results.append(train(net, 2, optimizer))
    rekeyed = FSDP.rekey_optim_state_dict(state, FSDP_KEYS.PARAM_ID, model())
    results.append(sorted(map(str, rekeyed["state"])))
    return results


from torch.distributed.fsdp import OptimStateKeyType as FSDP_KEYS  # noqa: E402


@case
def communication_hook():
    seen = []

    def hook(state, gradient, output=None):
        seen.append(gradient.dim())
        if output is None:
            dist.all_reduce(gradient)
            gradient.div_(2)
        else:
            dist.reduce_scatter_tensor(output, gradient)
            output.div_(2)

    net = FSDP(model(), device_id=CPU)
    net.register_comm_hook(None, hook)
    losses = train(net, 2)
    return [losses, seen]


@case
def apply_and_ignored():
    def init(m):
        if isinstance(m, nn.Linear):
            with torch.no_grad():
                m.weight.fill_(0.1)

    net = FSDP(model(), device_id=CPU)
    net.apply(init)
    first = train(net, 1)
    base = model()
    ignoring = FSDP(base, device_id=CPU, ignored_modules=[base[2]])
    second = train(ignoring, 1)
    return [first, second, ignoring.module[2].weight.shape == (3, 4)]


@case
def offload():
    return train(FSDP(model(), device_id=CPU, cpu_offload=CPUOffload(offload_params=False)))


@case
def sharded():
    net = model()
    for block in net[:2]:
        fully_shard(block)
    fully_shard(net)
    kinds = [
        isinstance(net, FSDPModule),
        type(net).__name__,
        isinstance(net[0].up.weight, DTensor),
        net[0].up.weight.placements,
        list(net[0].up.weight.to_local().shape),
    ]
    losses = train(net)
    grads = {n: p.grad for n, p in net.named_parameters()}
    return [kinds, losses, grads, {k: v.full_tensor() for k, v in net.state_dict().items()}]


@case
def sharded_options():
    results = {}
    mesh = init_device_mesh("cpu", (2,))
    for name, kwargs in {
        "keep": {"reshard_after_forward": False},
        "mesh": {"mesh": mesh},
        "placement": {
            "shard_placement_fn": lambda p: (
                __import__("torch.distributed.tensor", fromlist=["Shard"]).Shard(p.dim() - 1)
                if p.dim() == 2 and p.shape[1] % 2 == 0
                else None
            )
        },
        "offload": {"offload_policy": OffloadPolicy()},
        "cpu_offload": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
    }.items():
        net = model()
        try:
            for block in net[:2]:
                fully_shard(block, **kwargs)
            fully_shard(net, **kwargs)
            results[name] = [train(net), str(net[0].up.weight.placements)]
        except Exception as error:
            results[name] = {"raised": [c.__name__ for c in type(error).__mro__]}
    return results


@case
def sharded_precision():
    seen = []
    net = model()
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32, cast_forward_inputs=True
    )
    net[0].register_forward_pre_hook(lambda m, a: seen.append(str(a[0].dtype)))
    fully_shard(net, mp_policy=policy)
    out = net(data())
    out.sum().backward()
    return [
        seen,
        str(out.dtype),
        {str(p.grad.dtype) for p in net.parameters()},
        {str(p.dtype) for p in net.parameters()},
    ]


@case
def sharded_methods():
    net = model()
    for block in net[:2]:
        fully_shard(block)
    fully_shard(net)
    net[0].set_modules_to_forward_prefetch([net[1]])
    net[1].set_modules_to_backward_prefetch([net[0]])
    net.set_is_last_backward(True)
    net.set_reshard_after_forward(True, recurse=False) if hasattr(net, "set_reshard_after_forward") else None
    net.set_requires_gradient_sync(False)
    net(data()).sum().backward()
    unsynced = [p.grad is None for p in net.parameters()]
    net.set_requires_gradient_sync(True)
    net(data()).sum().backward()
    net.reshard()
    grads = [p.grad.full_tensor() for p in net.parameters()]
    handle = net.unshard(async_op=True)
    handle.wait()
    shape = list(net[2].weight.shape)
    plain_kind = type(net[2].weight).__name__
    net.reshard()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    net.set_gradient_divide_factor(4.0) if hasattr(net, "set_gradient_divide_factor") else None
    return [
        unsynced,
        grads,
        shape,
        plain_kind,
        type(net[2].weight).__name__,
        norm.full_tensor() if isinstance(norm, DTensor) else norm,
    ]


@case
def forward_methods():
    from torch.distributed.fsdp import register_fsdp_forward_method

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x)

        def encode(self, x):
            return self.a(x) * 2

    net = filled(Two())
    fully_shard(net)
    register_fsdp_forward_method(net, "encode")
    return net.encode(data())


@case
def two_dimensional():
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    net = model()
    fully_shard(net, mesh=mesh)
    losses = train(net)
    hybrid = FSDP(model(), device_id=CPU, device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD)
    return [losses, train(hybrid), str(net[0].up.weight.placements)]


@case
def checkpoints():
    path = folder()
    net = model()
    fully_shard(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train(net, 2, optimizer)
    model_state, optim_state = get_state_dict(net, optimizer)
    dcp.save({"model": model_state, "optim": optim_state, "step": 7, "list": [1, torch.ones(2)]}, checkpoint_id=path)
    files = sorted(f for f in os.listdir(path) if f != ".metadata")
    fresh = model()
    fully_shard(fresh)
    second = torch.optim.Adam(fresh.parameters(), lr=0.5)
    m, o = get_state_dict(fresh, second)
    state = {"model": m, "optim": o, "step": 0, "list": [0, torch.zeros(2)]}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(fresh, second, model_state_dict=state["model"], optim_state_dict=state["optim"])
    whole = {k: torch.zeros(v.shape) for k, v in model_state.items()}
    dcp.load({"model": whole}, checkpoint_id=path)
    return [
        files,
        state["step"],
        state["list"],
        second.param_groups[0]["lr"],
        train(fresh, 2, second),
        train(net, 2, optimizer),
        whole["2.weight"],
        sorted(optim_state["state"]),
    ]


@case
def async_checkpoint():
    path = folder()
    state = {"w": torch.arange(4.0) + 0, "n": 3}
    future = dcp.async_save(state, checkpoint_id=path, process_group=dist.new_group(backend="gloo"))
    state["w"] = torch.zeros(4)
    future.result()
    dist.barrier()
    loaded = {"w": torch.zeros(4), "n": 0}
    dcp.load(loaded, checkpoint_id=path)
    return loaded


@case
def state_dict_options():
    net = model()
    fully_shard(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    train(net, 1, optimizer)
    full = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    every = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    optim = get_optimizer_state_dict(net, optimizer, options=StateDictOptions(full_state_dict=True))
    fresh = model()
    fully_shard(fresh)
    set_model_state_dict(
        fresh, full if rank() == 0 else {}, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    )
    flat = get_optimizer_state_dict(net, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    fresh_optimizer = torch.optim.AdamW(fresh.parameters(), lr=0.5)
    set_optimizer_state_dict(fresh, fresh_optimizer, optim, options=StateDictOptions(full_state_dict=True))
    part = get_model_state_dict(net, submodules={net[0]}, options=StateDictOptions(keep_submodule_prefixes=False))
    return [
        every["2.bias"],
        sorted(optim["state"]),
        sorted(flat)[:6],
        fresh(data()),
        fresh_optimizer.param_groups[0]["lr"],
        sorted(part),
    ]


@case
def stateful_objects():
    path = folder()

    class Trainer:
        def __init__(self):
            self.step, self.tensor = 5, torch.ones(2)

        def state_dict(self):
            return {"step": self.step, "tensor": self.tensor}

        def load_state_dict(self, state):
            self.step, self.tensor = state["step"], state["tensor"]

    trainer = Trainer()
    dcp.save({"trainer": trainer}, storage_writer=dcp.FileSystemWriter(path))
    other = Trainer()
    other.step, other.tensor = 0, torch.zeros(2)
    dcp.load({"trainer": other}, storage_reader=dcp.FileSystemReader(path))
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    if rank() == 0:
        dcp_to_torch_save(path, path + "/whole.pt")
    dist.barrier()
    whole = torch.load(path + "/whole.pt", weights_only=False)
    return [other.step, other.tensor, whole, sorted(dcp.FileSystemReader(path).read_metadata().state_dict_metadata)]


if __name__ == "__main__":
    main()
