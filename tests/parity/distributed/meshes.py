"""The meshes that the programs of this folder share, over four processes."""

import functools

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def rank():
    return dist.get_rank()


@functools.cache
def line():
    return init_device_mesh("cpu", (4,), mesh_dim_names=("x",))


@functools.cache
def grid():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
