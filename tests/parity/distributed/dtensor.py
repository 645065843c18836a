"""Meshes, DTensors, tensor-parallel plans, parallel losses, pipelines."""
# ranks: 4

import torch
import torch.distributed as dist
import torch.nn.functional as F
from cases import case, filled, main
from meshes import grid, line, rank
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor import empty as d_empty
from torch.distributed.tensor import full as d_full
from torch.distributed.tensor import ones as d_ones
from torch.distributed.tensor import zeros as d_zeros
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


def values(*shape):
    n = 1
    for s in shape:
        n *= s
    return torch.sin(torch.arange(float(n)) * 0.9).view(*shape)


def tried(function):
    try:
        return function()
    except Exception as error:
        return {"raised": [c.__name__ for c in type(error).__mro__]}


@case
def meshes():
    mesh = grid()
    flat = mesh["dp", "tp"]._flatten("all")
    return [
        mesh.shape, mesh.ndim, mesh.size(), mesh.size(0), mesh.get_rank(), mesh.get_local_rank("tp"), mesh.get_local_rank(0),
        mesh.get_coordinate(), mesh["tp"].mesh, mesh["dp"].size(), mesh.mesh_dim_names, dist.get_process_group_ranks(mesh.get_group("dp")),
        mesh.mesh, flat.size(), flat.mesh, mesh.device_type, mesh == grid(), tried(lambda: mesh["no"]),
        len(mesh.get_all_groups()), tried(lambda: mesh.get_group()), DeviceMesh("cpu", torch.arange(4)).mesh, repr(line()),
        DeviceMesh.from_group(mesh.get_group("tp"), "cpu").mesh, mesh["tp"].get_local_rank(), tried(lambda: init_device_mesh("cpu", (3, 3))),
    ]  # fmt: skip


@case
def placing():
    x = values(8, 4)
    results = {}
    for name, placements in {"r": [Replicate()], "s0": [Shard(0)], "s1": [Shard(1)], "neg": [Shard(-1)]}.items():
        d = distribute_tensor(x, line(), placements)
        results[name] = [d, d.full_tensor(), str(d.placements), list(d.shape), d.stride(), d.device_mesh.ndim]
    uneven = distribute_tensor(values(5, 3), line(), [Shard(0)])
    two = distribute_tensor(x, grid(), [Shard(0), Shard(1)])
    same = distribute_tensor(x, grid(), [Shard(0), Shard(0)])
    local = DTensor.from_local(torch.full((2, 2), float(rank())), line(), [Shard(0)])
    partial = DTensor.from_local(torch.full((2, 2), float(rank())), line(), [Partial()])
    average = DTensor.from_local(torch.full((2,), float(rank())), line(), [Partial("avg")])
    biggest = DTensor.from_local(torch.full((2,), float(rank())), line(), [Partial("max")])
    return [
        results,
        uneven,
        uneven.full_tensor(),
        two,
        two.full_tensor(),
        same,
        same.full_tensor(),
        local.full_tensor(),
        partial.full_tensor(),
        partial.redistribute(placements=[Shard(0)]),
        average.full_tensor(),
        biggest.full_tensor(),
    ]


@case
def moving():
    x = distribute_tensor(values(8, 8), line(), [Shard(0)])
    return [
        x.redistribute(line(), [Shard(1)]), x.redistribute(placements=[Replicate()]), x.redistribute(placements=[Shard(1)]).redistribute(placements=[Shard(0)]),
        distribute_tensor(values(8, 8), grid(), [Shard(0), Replicate()]).redistribute(placements=[Replicate(), Shard(1)]),
        x.to_local(), Shard(0) == Shard(0), Shard(0).is_shard(), Shard(1).is_shard(0), Replicate().is_replicate(), Partial().is_partial(), repr(Shard(1)), repr(Partial()), repr(Replicate()),
        isinstance(Shard(0), Placement),
    ]  # fmt: skip


@case
def factories():
    return [
        d_zeros(8, 2, device_mesh=line(), placements=[Shard(0)]),
        d_ones(4, device_mesh=line(), placements=[Replicate()]),
        d_full((4, 2), 3.0, device_mesh=line(), placements=[Shard(0)]),
        list(d_empty(6, device_mesh=line(), placements=[Shard(0)]).shape),
    ]


def both(function, *tensors, placements):
    """A function on DTensors; placements of the result and the whole."""
    placed = [distribute_tensor(t, line(), [p]) for t, p in zip(tensors, placements)]
    out = function(*placed)
    return [str(out.placements), out.full_tensor()] if isinstance(out, DTensor) else out


@case
def pointwise():
    a, b = values(8, 4), values(8, 4) + 2
    return {
        "add": both(torch.add, a, b, placements=[Shard(0), Shard(0)]),
        "mixed": both(torch.mul, a, b, placements=[Shard(0), Replicate()]),
        "relu": both(torch.relu, a, placements=[Shard(1)]),
        "gelu": both(F.gelu, a, placements=[Shard(1)]),
        "broadcast": both(lambda x, y: x + y, a, values(4), placements=[Shard(1), Replicate()]),
        "scalar": both(lambda x: x * 2 + 1, a, placements=[Shard(0)]),
        "where": both(lambda x: torch.where(x > 0, x, -x), a, placements=[Shard(0)]),
        "clone": both(lambda x: x.clone().detach(), a, placements=[Shard(0)]),
        "to": both(lambda x: x.to(torch.float64), a, placements=[Shard(0)]),
        "dropout": both(lambda x: F.dropout(x, 0.0), a, placements=[Shard(0)]),
    }


@case
def reductions():
    a = values(8, 4)
    return {
        "sum": both(torch.sum, a, placements=[Shard(0)]),
        "sum0": both(lambda x: x.sum(0), a, placements=[Shard(0)]),
        "sum1": both(lambda x: x.sum(1, keepdim=True), a, placements=[Shard(0)]),
        "mean": both(lambda x: x.mean(), a, placements=[Shard(0)])[1],
        "max": both(lambda x: x.max(), a, placements=[Shard(0)])[1],
        "amax": both(lambda x: x.amax(1), a, placements=[Shard(0)]),
        "softmax": both(lambda x: x.softmax(-1), a, placements=[Shard(0)]),
        "softmax_across": both(lambda x: x.softmax(-1), a, placements=[Shard(1)])[1],
        "norm": both(lambda x: torch.linalg.vector_norm(x), a, placements=[Shard(0)])[1],
        "var": both(lambda x: x.var(), a, placements=[Shard(0)])[1],
        "argmax": both(lambda x: x.argmax(1), a, placements=[Shard(0)]),
        "cumsum": both(lambda x: x.cumsum(1), a, placements=[Shard(0)]),
        "layer_norm": both(lambda x: F.layer_norm(x, (4,)), a, placements=[Shard(0)]),
        "topk": both(lambda x: x.topk(2, 1).values, a, placements=[Shard(0)])[1],
    }


@case
def products():
    a, b = values(8, 8), values(8, 8).cos()
    results = {}
    for left in (Shard(0), Shard(1), Replicate()):
        for right in (Shard(0), Shard(1), Replicate()):
            results[f"{left} {right}"] = both(torch.mm, a, b, placements=[left, right])
    results["linear"] = both(F.linear, a, b, placements=[Replicate(), Shard(0)])
    results["bmm"] = both(torch.bmm, values(4, 2, 3), values(4, 3, 2), placements=[Shard(0), Shard(0)])
    results["addmm"] = both(torch.addmm, values(8), a, b, placements=[Replicate(), Shard(0), Replicate()])
    results["einsum"] = both(lambda x, y: torch.einsum("ij,jk->ik", x, y), a, b, placements=[Shard(0), Replicate()])
    return results


@case
def views():
    a = values(8, 4)
    return {
        "t": both(lambda x: x.t(), a, placements=[Shard(0)]),
        "view": both(lambda x: x.view(8, 2, 2), a, placements=[Shard(0)]),
        "flatten": both(lambda x: x.flatten(), a, placements=[Shard(0)]),
        "unsqueeze": both(lambda x: x.unsqueeze(0), a, placements=[Shard(0)]),
        "transpose": both(lambda x: x.transpose(0, 1).contiguous(), a, placements=[Shard(1)]),
        "cat": both(lambda x, y: torch.cat([x, y], 1), a, a, placements=[Shard(0), Shard(0)]),
        "split": both(lambda x: x.split(2, 1)[1], a, placements=[Shard(0)]),
        "chunk": both(lambda x: x.chunk(2, 1)[0], a, placements=[Shard(0)]),
        "slice": both(lambda x: x[:, 1:3], a, placements=[Shard(0)]),
        "stack": both(lambda x, y: torch.stack([x, y]), a, a, placements=[Shard(0), Shard(0)]),
        "permute": both(lambda x: x.permute(1, 0), a, placements=[Shard(0)]),
        "expand": both(lambda x: x.unsqueeze(2).expand(8, 4, 3), a, placements=[Shard(0)]),
        "embedding": both(
            lambda w: F.embedding(distribute_tensor(torch.arange(6), line(), [Replicate()]), w),
            a,
            placements=[Shard(1)],
        ),
        "index": both(
            lambda x: (
                x[torch.tensor([0, 2])]
                if not isinstance(x, DTensor)
                else x.index_select(0, distribute_tensor(torch.tensor([0, 2]), line(), [Replicate()]))
            ),
            a,
            placements=[Replicate()],
        ),
    }


@case
def gradients():
    a, b = values(8, 4), values(4, 8)
    results = []
    for left, right in ((Shard(0), Replicate()), (Replicate(), Shard(1)), (Shard(1), Shard(0))):
        x = distribute_tensor(a, line(), [left]).requires_grad_()
        w = distribute_tensor(b, line(), [right]).requires_grad_()
        out = torch.relu(x @ w).sum()
        out.backward()
        results += [str(x.grad.placements), x.grad.full_tensor(), str(w.grad.placements), w.grad.full_tensor()]
    x = distribute_tensor(a, line(), [Shard(0)]).requires_grad_()
    local = x.to_local()
    (local * (rank() + 1)).sum().backward()
    results += [str(x.grad.placements), x.grad.full_tensor()]
    y = torch.ones(2, 2, requires_grad=True)
    d = DTensor.from_local(y, line(), [Shard(0)])
    (d.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]) * (rank() + 1)).sum().backward()
    results.append(y.grad)
    return results


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.mlp, self.head = nn.Embedding(16, 4), nn.LayerNorm(4), MLP(), nn.Linear(4, 16)

    def forward(self, tokens):
        return self.head(self.mlp(self.norm(self.embed(tokens))))


@case
def tensor_parallel():
    x = values(4, 4)
    results = {}
    plans = {
        "plain": {"up": ColwiseParallel(), "down": RowwiseParallel()},
        "sharded_input": {
            "up": ColwiseParallel(input_layouts=Shard(0)),
            "down": RowwiseParallel(output_layouts=Shard(0)),
        },
        "dtensor_output": {
            "up": ColwiseParallel(use_local_output=False),
            "down": RowwiseParallel(use_local_output=False),
        },
    }
    for name, plan in plans.items():
        net = parallelize_module(filled(MLP()), line(), plan)
        given = x.chunk(4)[rank()].clone() if name == "sharded_input" else x.clone()
        given.requires_grad_()
        out = net(given)
        (out.to_local() if isinstance(out, DTensor) else out).square().sum().backward()
        results[name] = [
            out,
            given.grad,
            net.up.weight.grad,
            net.down.bias.grad,
            {k: str(v.placements) for k, v in net.state_dict().items()},
        ]
    return results


@case
def sequence_parallel():
    tokens = torch.arange(8).view(2, 4)
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    net = parallelize_module(filled(Net()), line(), plan)
    logits = net(tokens)
    with loss_parallel():
        loss = F.cross_entropy(logits.flatten(0, 1), torch.arange(8))
        loss.backward()
    return [
        str(logits.placements),
        loss,
        {n: p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for n, p in net.named_parameters()},
    ]


@case
def wrong_plans():
    return [
        tried(lambda: parallelize_module(filled(MLP()), grid(), {"up": ColwiseParallel()}) and 1),
        tried(lambda: parallelize_module(filled(MLP()), line(), {"no": ColwiseParallel()}) and 1),
        tried(lambda: parallelize_module(nn.Sequential(nn.ReLU()), line(), {"0": ColwiseParallel()}) and 1),
        tried(lambda: distribute_tensor(values(4), line(), [Shard(3)]) and 1),
        tried(lambda: distribute_tensor(values(4), line(), [Shard(0), Shard(0)]) and 1),
        tried(lambda: (distribute_tensor(values(4), line(), [Shard(0)]) + torch.ones(4)) and 1),
        tried(lambda: PrepareModuleInput(input_layouts=Shard(0)) and 1),
        tried(lambda: ColwiseParallel(5) and 1),
    ]


@case
def patterns():
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([MLP(), MLP()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    net = parallelize_module(
        filled(Many()), line(), {"layers.*.up": ColwiseParallel(), "layers.*.down": RowwiseParallel()}
    )
    return [net(values(2, 4)), [type(p).__name__ for p in net.parameters()]]


@case
def prepared_outputs():
    net = parallelize_module(
        filled(MLP()), line(), PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    )
    first = net(values(4, 4))
    other = parallelize_module(
        filled(MLP()),
        line(),
        PrepareModuleInputOutput(
            input_layouts=(Shard(0),),
            desired_input_layouts=(Replicate(),),
            output_layouts=Replicate(),
            desired_output_layouts=Shard(0),
            use_local_input=True,
        ),
    )
    return [first, other(values(1, 4) + rank())]


@case
def distributed_modules():
    def part(name, module, mesh):
        for key, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))

    net = distribute_module(
        filled(MLP()),
        line(),
        part,
        input_fn=lambda m, i, mesh: (DTensor.from_local(i[0], mesh, [Replicate()]),),
        output_fn=lambda m, o, mesh: o.redistribute(placements=[Replicate()]).to_local(),
    )
    out = net(values(2, 4))
    out.sum().backward()
    return [out, net.up.weight.grad]


@case
def optimizers():
    net = parallelize_module(filled(MLP()), line(), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    results = []
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        optimizer = kind(net.parameters(), lr=0.1)
        optimizer.zero_grad()
        net(values(2, 4)).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        results += [norm.full_tensor() if isinstance(norm, DTensor) else norm, net.up.weight.full_tensor()]
    return results


@case
def two_dimensions():
    from torch.distributed.fsdp import fully_shard

    mesh = grid()
    net = filled(MLP())
    parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(net, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = net(values(2, 4) + mesh.get_local_rank("dp")).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [losses, net.up.weight.full_tensor()]


@case
def local_maps():
    from torch.distributed.tensor.experimental import local_map

    x = distribute_tensor(values(8, 4), line(), [Shard(0)])
    f = local_map(
        lambda t: t.sum(0, keepdim=True), out_placements=[Partial()], in_placements=([Shard(0)],), device_mesh=line()
    )
    return [
        f(x).full_tensor(),
        tried(lambda: local_map(lambda t: t, out_placements=[Shard(0)], in_placements=([Replicate()],))(x) and 1),
    ]


@case
def pipelines():
    from torch.distributed.pipelining import (
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        ScheduleInterleaved1F1B,
        ScheduleLoopedBFS,
    )

    data, target = values(8, 4), values(8, 4).cos()
    results = {}
    for kind in (ScheduleGPipe, Schedule1F1B):
        layer = filled(nn.Linear(4, 4))
        stage = PipelineStage(layer, rank(), 4, torch.device("cpu"))
        schedule = kind(stage, 4, loss_fn=nn.MSELoss())
        losses = []
        if rank() == 0:
            out = schedule.step(data)
        elif rank() == 3:
            out = schedule.step(target=target, losses=losses)
        else:
            out = schedule.step()
        results[kind.__name__] = [out, losses, layer.weight.grad]
    for kind in (ScheduleInterleaved1F1B, ScheduleLoopedBFS):
        layers = [filled(nn.Linear(4, 4)) for _ in range(2)]
        stages = [PipelineStage(layers[i], rank() + 4 * i, 8, torch.device("cpu")) for i in range(2)]
        schedule = kind(stages, 4, loss_fn=nn.MSELoss())
        losses = []
        if rank() == 0:
            schedule.step(data)
        elif rank() == 3:
            schedule.step(target=target, losses=losses)
        else:
            schedule.step()
        results[kind.__name__] = [losses, layers[0].weight.grad, layers[1].weight.grad]
    return results


@case
def split_models():
    from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

    net = filled(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)))
    pipe = pipeline(
        net,
        mb_args=(values(2, 4),),
        split_spec={"2": SplitPoint.BEGINNING, "3": SplitPoint.BEGINNING, "4": SplitPoint.BEGINNING},
    )
    stage = pipe.build_stage(rank(), torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2)
    out = schedule.step(values(4, 4)) if rank() == 0 else schedule.step()
    return [pipe.num_stages, out if rank() == 3 else None]


@case
def schedule_errors():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    stage = PipelineStage(nn.Linear(2, 2), rank(), 4, torch.device("cpu"))
    return [
        stage.is_first,
        stage.is_last,
        tried(lambda: Schedule1F1B(stage, 2) and 1),
        tried(lambda: PipelineStage(nn.Linear(2, 2), 9, 4, torch.device("cpu"))),
    ]


@case
def debugging():
    from torch.distributed.tensor.debug import CommDebugMode

    mode = CommDebugMode()
    x, w = distribute_tensor(values(8, 4), line(), [Shard(0)]), distribute_tensor(values(4, 4), line(), [Replicate()])
    with mode:
        x.redistribute(placements=[Replicate()])
        (x @ w).sum().full_tensor()
    return [mode.get_total_counts(), {str(k): v for k, v in mode.get_comm_counts().items()}]


if __name__ == "__main__":
    main()
