"""Checkpoints: sharded save, load into other placements, values, objects, in the background."""
# ranks: 2 3

import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, zeros

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder, src=0)
path = os.path.join(folder[0], "step1")
mesh = init_device_mesh("cpu", (size,))
torch.manual_seed(0)
whole = torch.randn(7, 5)
state = {
    "model": {
        "w": distribute_tensor(whole, mesh, [Shard(0)]),
        "b": torch.arange(4.0),
        "r": distribute_tensor(whole, mesh, [Replicate()]),
    },
    "step": 17,
    "names": ["a", "b"],
}
dcp.save(state, checkpoint_id=path)
assert ".metadata" in os.listdir(path)
for placement in (Shard(1), Replicate(), Shard(0)):
    into = {
        "model": {
            "w": zeros(7, 5, device_mesh=mesh, placements=[placement]),
            "b": torch.zeros(4),
            "r": torch.zeros(7, 5),
        },
        "step": 0,
        "names": None,
    }
    dcp.load(into, checkpoint_id=path)
    assert torch.equal(into["model"]["w"].full_tensor(), whole) and torch.equal(into["model"]["r"], whole)
    assert into["model"]["b"].tolist() == [0, 1, 2, 3] and into["step"] == 17 and into["names"] == ["a", "b"]


class Counter:
    def __init__(self):
        self.value = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


counter = Counter()
counter.value = 5
net = nn.Linear(3, 2)
future = dcp.async_save({"counter": counter, "net": net.state_dict()}, checkpoint_id=os.path.join(folder[0], "step2"))
saved = net.weight.detach().clone()
with torch.no_grad():
    net.weight.zero_()
t = torch.ones(1)
dist.all_reduce(t)
future.result()
other, fresh = Counter(), {key: torch.zeros_like(value) for key, value in net.state_dict().items()}
dcp.load({"counter": other, "net": fresh}, checkpoint_id=os.path.join(folder[0], "step2"))
assert other.value == 5
if rank == 0:
    assert torch.equal(fresh["weight"], saved)
try:
    dcp.load({"absent": torch.zeros(1)}, checkpoint_id=path)
    raise SystemExit("expected an error")
except BaseException as error:
    assert "absent" in str(error), error
dcp.save({"model": {"b": torch.full((4,), 9.0)}}, checkpoint_id=path)
into = {"model": {"b": torch.zeros(4)}}
dcp.load(into, checkpoint_id=path)
assert into["model"]["b"].tolist() == [9.0] * 4
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys  # noqa: E402

dcp.save({"a": {"b": torch.arange(3.0), "c": [1, torch.ones(2)]}, "n": 5}, checkpoint_id=path)
everything = _load_state_dict_from_keys(checkpoint_id=path)
assert everything["n"] == 5 and everything["a"]["c"][0] == 1 and everything["a"]["c"][1].tolist() == [1, 1]
assert _load_state_dict_from_keys({"a.b"}, checkpoint_id=path)["a"]["b"].tolist() == [0, 1, 2]

# Parts in safetensors files, and whole tensors made of them, one of which no process has whole.
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files  # noqa: E402

from flambeau.utils import safetensors  # noqa: E402

parts = {"w": distribute_tensor(whole, mesh, [Shard(0)]), "c": distribute_tensor(whole, mesh, [Shard(1)])}
hub = os.path.join(folder[0], "hub")
writer = dcp.HuggingFaceStorageWriter(hub, {"w": 1, "c": 2}, save_distributed=True, enable_consolidation=True)
dcp.save(parts, storage_writer=writer)
if rank == 0:
    with open(os.path.join(hub, "model.safetensors.index.json")) as file:
        index = json.load(file)
    assert index["metadata"]["total_size"] == 2 * 7 * 5 * 4
    for name, file_name in index["weight_map"].items():
        assert torch.equal(safetensors.load_file(os.path.join(hub, file_name))[name], whole), name
    os.remove(os.path.join(hub, "sharded", sorted(os.listdir(os.path.join(hub, "sharded")))[0]))
    try:
        consolidate_safetensors_files(os.path.join(hub, "sharded"), os.path.join(hub, "again"), {"w": 1, "c": 2})
        raise SystemExit("expected an error")
    except ValueError as error:
        assert "missing" in str(error), error


class Unpicklable(Exception):
    def __init__(self, first, second):
        super().__init__("cannot be made again")


class Failing(dcp.FileSystemWriter):
    def prepare_local_plan(self, plan):
        if rank == 1:
            raise Unpicklable(1, 2)
        return super().prepare_local_plan(plan)


try:
    dcp.save({"x": torch.ones(1)}, storage_writer=Failing(os.path.join(folder[0], "failing")))
    raise SystemExit("expected an error")
except dcp.CheckpointException as error:
    (failure, stack) = error.failures[1]
    assert list(error.failures) == [1] and "cannot be made again" in str(failure) and len(stack) > 0, error
    assert "prepare_local_plan" in str(error), error
dist.barrier()
dist.destroy_process_group()
