"""Pipelines over several schedules, checkpoints in their corners, optimizers that divide their state."""
# ranks: 2

import copy
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
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    pipe_split,
    pipeline,
)
from torch.distributed.pipelining.microbatch import TensorChunkSpec, split_args_kwargs_into_chunks
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def rank():
    return dist.get_rank()


def values(*shape):
    return torch.sin(torch.arange(float(torch.Size(shape).numel())) * 0.9 + 0.3).view(*shape)


def tried(function, *arguments):
    try:
        return function(*arguments)
    except BaseException as error:  # `CheckpointException` is no `Exception`
        return {"raised": [c.__name__ for c in type(error).__mro__]}


def shared_folder():
    box = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(box, 0)
    return box[0]


def layer(index):
    block = filled(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    with torch.no_grad():
        for p in block.parameters():
            p.mul_(0.5 + 0.1 * index)
    return block


def loss_of(output, target):
    return (output - target).square().mean()


def single(kind, count=4, **options):
    module = layer(rank())
    stage = PipelineStage(module, rank(), 2, torch.device("cpu"))
    schedule = kind(stage, count, loss_fn=loss_of, **options)
    losses = []
    x, y = values(8, 4), values(8, 4).cos()
    out = schedule.step(x) if rank() == 0 else schedule.step(target=y, losses=losses)
    return [out, losses, [p.grad for p in module.parameters()]]


def several(kind, places, count=4, **options):
    modules = [layer(i) for i in places]
    stages = [PipelineStage(m, i, 4, torch.device("cpu")) for m, i in zip(modules, places)]
    schedule = kind(stages, count, loss_fn=loss_of, **options)
    losses = []
    x, y = values(8, 4), values(8, 4).cos()
    arguments = (x,) if 0 in places else ()
    named = {"target": y, "losses": losses} if 3 in places else {}
    out = schedule.step(*arguments, **named)
    return [out if 3 in places else None, losses, [p.grad for m in modules for p in m.parameters()]]


@case
def one_stage_each():
    return [
        single(ScheduleGPipe),
        single(Schedule1F1B),
        single(ScheduleGPipe, 2),
        single(Schedule1F1B, 8),
        single(ScheduleGPipe, 4, scale_grads=False),
    ]


@case
def interleaved():
    turns = [rank(), rank() + 2]
    return [
        several(kind, turns) for kind in (ScheduleInterleaved1F1B, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble)
    ]


@case
def folded():
    return several(ScheduleZBVZeroBubble, [0, 3] if rank() == 0 else [1, 2])


@case
def evaluated():
    stage = PipelineStage(layer(rank()), rank(), 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2)
    with torch.no_grad():
        first = schedule.step(values(4, 4)) if rank() == 0 else schedule.step()
        second = schedule.step(values(4, 4) * 2) if rank() == 0 else schedule.step()
    other = ScheduleGPipe(PipelineStage(layer(rank()), rank(), 2, torch.device("cpu")), 2, loss_fn=loss_of)
    losses = []
    third = other.eval(values(4, 4)) if rank() == 0 else other.eval(target=values(4, 4), losses=losses)
    return [first, second, third, losses]


@case
def named_inputs():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer(rank())

        def forward(self, x, scale=1.0):
            return self.inner(x) * scale

    stage = PipelineStage(Scaled(), rank(), 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2)
    scale = torch.full((4, 1), 2.0)
    return schedule.step(values(4, 4), scale=scale) if rank() == 0 else schedule.step(scale=scale)


@case
def nested_checkpoints():
    folder = shared_folder()
    mesh = init_device_mesh("cpu", (2,))
    state = {
        "tensors": [torch.ones(2), {"deep": torch.arange(4)}], "number": 3, "text": "x", "flag": True, "nothing": None, "pair": (1, 2),
        "sharded": distribute_tensor(values(5, 3), mesh, [Shard(0)]), "column": distribute_tensor(values(4, 6), mesh, [Shard(1)]), "half": values(3).bfloat16(),
        "scalar": torch.tensor(2.5), "empty": torch.empty(0), "bytes": b"ab",
    }  # fmt: skip
    dcp.save(state, checkpoint_id=folder)
    loaded = {
        "tensors": [torch.zeros(2), {"deep": torch.zeros(4, dtype=torch.int64)}], "number": 0, "text": "", "flag": False, "nothing": 1, "pair": (0, 0),
        "sharded": distribute_tensor(torch.zeros(5, 3), mesh, [Replicate()]), "column": distribute_tensor(torch.zeros(4, 6), mesh, [Shard(0)]), "half": torch.zeros(3).bfloat16(),
        "scalar": torch.tensor(0.0), "empty": torch.empty(0), "bytes": b"",
    }  # fmt: skip
    dcp.load(loaded, checkpoint_id=folder)
    loaded["sharded"], loaded["column"] = loaded["sharded"].full_tensor(), loaded["column"].full_tensor()
    loaded["bytes"] = list(loaded["bytes"])
    metadata = dcp.FileSystemReader(folder).read_metadata()
    return [loaded, sorted(metadata.state_dict_metadata), sorted(os.listdir(folder))[:1]]


@case
def wrong_checkpoints():
    folder = shared_folder()
    dcp.save({"a": torch.ones(4), "b": torch.ones(2)}, checkpoint_id=folder)
    partial = {"a": torch.zeros(4), "c": torch.zeros(3)}
    dcp.load(partial, checkpoint_id=folder, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    some = {"b": torch.zeros(2)}
    dcp.load(some, checkpoint_id=folder)
    return [
        partial, some, tried(lambda: dcp.load({"c": torch.zeros(3)}, checkpoint_id=folder)), tried(lambda: dcp.load({"a": torch.zeros(5)}, checkpoint_id=folder)),
        tried(lambda: dcp.load({"a": torch.zeros(4)}, checkpoint_id=folder + "/none")),
    ]  # fmt: skip


def sharded_model():
    model = filled(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    for module in (model[0], model[2], model):
        fully_shard(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(values(4, 4) * (rank() + 1)).square().sum().backward()
        optimizer.step()
    return model, optimizer


@case
def state_dicts():
    model, optimizer = sharded_model()
    full = StateDictOptions(full_state_dict=True)
    whole = get_model_state_dict(model, options=full)
    offloaded = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    states = get_optimizer_state_dict(model, optimizer, options=full)
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    other, again = sharded_model()
    set_state_dict(other, again, model_state_dict=dict(whole), optim_state_dict=copy.deepcopy(states), options=full)
    part = get_model_state_dict(model, submodules={model[0]}, options=full)
    both = get_state_dict(model, optimizer)
    return [
        whole, len(offloaded), states, sorted(flat), [p.full_tensor() for p in other.parameters()], sorted(part),
        sorted(both[0]), sorted(both[1]),
    ]  # fmt: skip


@case
def resumed():
    folder = shared_folder()
    model, optimizer = sharded_model()
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.save(state, checkpoint_id=folder)
    other, again = sharded_model()
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    target = dict(zip(("model", "optimizer"), get_state_dict(other, again)))
    dcp.load(target, checkpoint_id=folder)
    set_state_dict(other, again, model_state_dict=target["model"], optim_state_dict=target["optimizer"])
    for one, opt in ((model, optimizer), (other, again)):
        opt.zero_grad()
        one(values(4, 4)).square().sum().backward()
        opt.step()
    return [[p.full_tensor() for p in one.parameters()] for one in (model, other)]


@case
def zero_parts():
    model = filled(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        ddp(values(4, 4) * (rank() + 1)).square().sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
    optimizer.consolidate_state_dict(to=0)
    state = optimizer.state_dict() if rank() == 0 else None
    box = [copy.deepcopy(state)]
    dist.broadcast_object_list(box, 0)
    again = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01)
    again.load_state_dict(box[0])
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.5})
    return [
        list(model.parameters()),
        None if state is None else state["state"],
        again.param_groups[0]["lr"],
        len(optimizer.param_groups),
        tried(lambda: ZeroRedundancyOptimizer([], torch.optim.SGD, lr=0.1)),
    ]


@case
def precisions():
    results = []
    for policy in (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16),
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32),
        MixedPrecisionPolicy(cast_forward_inputs=False),
    ):
        model = filled(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
        fully_shard(model, mp_policy=policy)
        out = model(values(2, 4))
        out.float().square().sum().backward()
        results.append(
            [
                str(out.dtype),
                out.float().mul(64).round(),
                [str(p.grad.dtype) for p in model.parameters()],
                [str(p.dtype) for p in model.parameters()],
            ]
        )
    return results


@case
def sharded_calls():
    model = filled(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    fully_shard(model[0])
    fully_shard(model, reshard_after_forward=False)
    out = model(values(2, 4))
    kinds = [[isinstance(p, DTensor) for p in model[0].parameters()]]
    out.sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    model.unshard()
    kinds.append([isinstance(p, DTensor) for p in model[2].parameters()])
    model.reshard()
    kinds.append([isinstance(p, DTensor) for p in model[2].parameters()])
    model.set_requires_gradient_sync(False)
    model(values(2, 4)).sum().backward()
    model.set_requires_gradient_sync(True)
    model(values(2, 4)).sum().backward()
    shapes = [[list(p.shape), list(p.to_local().shape), str(p.placements)] for p in model.parameters()]
    return [
        kinds,
        norm.full_tensor() if isinstance(norm, DTensor) else norm,
        shapes,
        [p.grad.full_tensor() for p in model.parameters()],
        type(model).__name__,
        type(model[0]).__name__,
    ]


class Divided(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, y):
        x = self.first(x) + y
        pipe_split()
        return self.second(x) - y


@case
def divided_models_are_called():
    pipe = pipeline(filled(Divided()), mb_args=(values(2, 4), values(2, 4)))
    outputs = pipe(values(2, 4), values(2, 4) * 2)
    return [
        type(outputs).__name__, outputs, pipe.num_stages, pipe.info().num_stages,
        [name for name, _ in pipe.split_gm.named_children()],
        [sorted(pipe.get_stage_module(i).state_dict()) for i in range(2)],
    ]  # fmt: skip


@case
def microbatches():
    results = []
    for rows, count in ((1, 2), (3, 2), (5, 4), (3, 4)):
        results += split_args_kwargs_into_chunks((torch.arange(rows), 7), {"m": torch.arange(rows)}, count)
    columns, _ = split_args_kwargs_into_chunks((values(2, 4),), {}, 2, args_chunk_spec=(TensorChunkSpec(1),))
    names = [get_schedule_class(name).__name__ for name in ("1f1b", "GPipe", "PipelineScheduleMulti", "ZBVZeroBubble")]
    return results, columns, str(TensorChunkSpec(1)), str(TensorChunkSpec.from_dict({"a": 0})["a"]), names


if __name__ == "__main__":
    main()
