"""A file of `save`, held by one process, is loaded into distributed tensors of all; a divided model is a module."""
# ranks: 2

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import SplitPoint, pipeline
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2,))
with tempfile.TemporaryDirectory() as folder:  # each process has a folder of its own; only the first writes
    path = os.path.join(folder, "model.pt")
    saved = {"model": {"weight": torch.arange(15.0).view(5, 3), "bias": torch.ones(3, dtype=torch.float64)}}
    if rank == 0:
        torch.save(saved, path)
    state = {
        "model": {
            "weight": distribute_tensor(torch.zeros(5, 3), mesh, [Shard(0)]),
            "bias": torch.zeros(3, dtype=torch.float64),
        }
    }
    dcp.load(state, storage_reader=BroadcastingTorchSaveReader(path), planner=DynamicMetaLoadPlanner())
    assert torch.equal(state["model"]["weight"].full_tensor(), saved["model"]["weight"])
    assert torch.equal(state["model"]["bias"], saved["model"]["bias"])

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
pipe = pipeline(model, (torch.ones(2, 3),), split_spec={"2": SplitPoint.BEGINNING})
assert isinstance(pipe, nn.Module) and pipe.num_stages == 2 and len(list(pipe.parameters())) == 4
assert torch.equal(pipe(torch.ones(2, 3))[0], model(torch.ones(2, 3)))
assert pipe.get_stage_module(1) is pipe.split_gm.submod_pp_1
dist.barrier()
dist.destroy_process_group()
