"""Checkpoints: sharded save, load into other placements, values, objects, in the background."""
# ranks: 2 3

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
dist.barrier()
dist.destroy_process_group()
