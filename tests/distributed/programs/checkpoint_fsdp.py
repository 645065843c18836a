"""Training state of a sharded model: whole state dicts, and a checkpoint that goes on with another division."""
# ranks: 2

import copy
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder, src=0)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def step(net, optimizer, seed):
    torch.manual_seed(seed)
    optimizer.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()


net = model()
fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
step(net, optimizer, 1)
state, optim_state = get_state_dict(net, optimizer)
dcp.save({"model": state, "optim": optim_state}, checkpoint_id=folder[0])
step(net, optimizer, 2)
expected = [p.full_tensor() for p in net.parameters()]

# The same run goes on from the checkpoint, sharded and not.
for sharded in (True, False):
    other = model()
    if sharded:
        fully_shard(other)
    again = torch.optim.AdamW(other.parameters(), lr=0.1)
    state, optim_state = get_state_dict(other, again)
    loaded = {"model": state, "optim": optim_state}
    dcp.load(loaded, checkpoint_id=folder[0])
    set_state_dict(other, again, model_state_dict=loaded["model"], optim_state_dict=loaded["optim"])
    step(other, again, 2)
    for p, q in zip(other.parameters(), expected):
        assert torch.allclose(p.full_tensor() if sharded else p, q, atol=1e-5), sharded

whole = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
assert (len(whole) == 4) == (rank == 0)
if rank == 0:
    assert torch.equal(whole["0.weight"], expected[0])
fresh = model()
fully_shard(fresh)
plain = {name: value.clone() for name, value in model().state_dict().items()}
set_model_state_dict(fresh, plain, options=StateDictOptions(full_state_dict=True))
assert torch.equal(fresh[0].weight.full_tensor(), plain["0.weight"])
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(fresh, copy.deepcopy(whole) if rank == 0 else {}, options=options)
assert torch.equal(fresh[0].weight.full_tensor(), expected[0])
dist.barrier()
dist.destroy_process_group()
