"""Steps that tutorials show: sharded models from meta tensors, state of optimizers from one process, nested checkpoints."""
# ranks: 2

import json
import os
import pickle
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from cases import case, filled, main
from meshes import rank
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
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor


def values(*shape, seed=0):
    return torch.sin(torch.arange(float(torch.Size(shape).numel())) * 0.37 + 0.1 + seed).view(*shape)


def shared_folder():
    box = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(box)
    return box[0]


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(8, 16, bias=False), nn.Linear(16, 8), nn.Linear(8, 16, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def sharded(model):
    fully_shard(model.w1)
    return fully_shard(model)


def trained(model, optimizer, steps=2):
    for step in range(steps):
        optimizer.zero_grad()
        model(values(4, 8, seed=rank() + step)).square().mean().backward()
        optimizer.step()


@case
def parts_assigned_to_a_model_of_meta_tensors():
    with torch.device("meta"):
        model = Gated()
    sharded(model)
    whole = filled(Gated()).state_dict()
    parts = {
        name: distribute_tensor(whole[name], own.device_mesh, own.placements) for name, own in model.named_parameters()
    }
    model.load_state_dict(parts, assign=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    trained(model, optimizer)
    return [p.full_tensor() for p in model.parameters()], model(values(2, 8))


@case
def states_of_the_first_process():
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    results = []
    for flatten in (False, True):
        options.flatten_optimizer_state_dict = flatten
        model = sharded(filled(Gated()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.3)
        trained(model, optimizer)
        weights = get_model_state_dict(model, options=options)
        state = get_optimizer_state_dict(model, optimizer, options=options)
        results += [sorted(weights), sorted(state)]
        other = sharded(Gated())
        again = torch.optim.AdamW(other.parameters(), lr=0.5)
        from_first = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        if flatten:
            continue
        set_model_state_dict(other, weights, options=from_first)
        set_optimizer_state_dict(other, again, state, options=from_first)
        trained(other, again, 1)
        results += [
            [p.full_tensor() for p in other.parameters()],
            [(group["lr"], group["weight_decay"]) for group in again.param_groups],
            [str(again.state[p]["exp_avg"].placements) for p in other.parameters()],
        ]
    return results


@case
def whole_states_everywhere():
    options = StateDictOptions(full_state_dict=True)
    model = sharded(filled(Gated()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trained(model, optimizer)
    weights, state = get_state_dict(model, optimizer, options=options)
    other = sharded(Gated())
    again = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    set_state_dict(other, again, model_state_dict=weights, optim_state_dict=state, options=options)
    trained(other, again, 1)
    return [p.full_tensor() for p in other.parameters()]


@case
def keys_of_nested_values():
    folder = shared_folder()
    state = {
        "lists": [1, 2],
        "dicts in a list": [{"a": 1, "b": [3]}, {"c": torch.ones(2)}],
        "tuples": (torch.zeros(2), {"d": 1}),
        "numbers": {1: {2: torch.ones(1)}, "e": {}},
        "empty": [],
        "lists of lists": [[torch.full((2,), 3.0)], 4],
    }
    dcp.save(state, checkpoint_id=folder)
    keys = sorted(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata)
    loaded = {
        "lists": [0, 0],
        "dicts in a list": [{"a": 0, "b": [0]}, {"c": torch.zeros(2)}],
        "lists of lists": [[torch.zeros(2)], 0],
        "numbers": {1: {2: torch.zeros(1)}},
    }
    dcp.load(loaded, checkpoint_id=folder)
    return keys, loaded


@case
def training_goes_on_from_a_checkpoint():
    folder = shared_folder()
    model = sharded(filled(Gated()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    trained(model, optimizer)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": state, "step": 2}, checkpoint_id=folder)
    keys = sorted(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata)
    other = sharded(Gated())
    again = torch.optim.Adam(other.parameters(), lr=0.4)
    weights, state = get_state_dict(other, again)
    whole = {"model": weights, "optim": state, "step": 0}
    dcp.load(whole, checkpoint_id=folder)
    set_state_dict(other, again, model_state_dict=whole["model"], optim_state_dict=whole["optim"])
    trained(other, again, 1)
    return keys, whole["step"], sorted(os.listdir(folder)), [p.full_tensor() for p in other.parameters()]


@case
def recorded_collectives():
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    x = torch.ones(2, 3)
    dist.all_reduce(x)
    dist.broadcast(x.to(torch.float64), 0)
    dist.all_reduce(torch.ones(4, dtype=torch.int64), async_op=True).wait()
    report = pickle.loads(_dump_fr_trace())
    names = ("profiling_name", "input_sizes", "input_dtypes", "pg_id", "process_group", "is_p2p")
    last = [[entry[name] for name in names] for entry in report["entries"][-3:]]
    numbers = [entry["collective_seq_id"] for entry in report["entries"][-3:]]
    in_words = json.loads(_dump_fr_trace_json())
    return last, [n - numbers[0] for n in numbers], sorted(report), sorted(report["entries"][-1]), "entries" in in_words


main()
