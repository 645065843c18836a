"""Tensors of meshes that not every process is part of: those outside have tensors of the same shape without a part."""
# ranks: 4

import torch
import torch.distributed as dist
from cases import case, main
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, full, ones, zeros


def pair():
    return DeviceMesh("cpu", [0, 2])


def divided():
    return DTensor.from_local(torch.ones(4, 3), pair(), [Shard(0)])


@case
def places():
    mesh = pair()
    return [mesh.get_coordinate(), mesh.size(), mesh.mesh.tolist()]


@case
def parts():
    tensor = divided()
    return [list(tensor.shape), tensor.to_local(), (tensor + 2).to_local()]


@case
def questions():
    return divided().equal(divided())


@case
def reductions():
    total = divided().sum()
    return [total.to_local(), list(total.shape)]


@case
def lists_of_results():
    return [part.to_local() for part in divided().split([1, 2], dim=1)]


@case
def moved():
    whole = divided().redistribute(placements=[Replicate()])
    return [whole.to_local(), whole.redistribute(placements=[Shard(0)]).to_local(), divided().full_tensor()]


@case
def distributed():
    whole = torch.arange(12.0).view(4, 3)
    return [distribute_tensor(whole, pair(), [placement]).to_local() for placement in (Shard(0), Replicate())]


@case
def factories():
    mesh = pair()
    return [
        zeros(4, 3, device_mesh=mesh, placements=[Shard(0)]).to_local(),
        ones(4, 3, device_mesh=mesh, placements=[Replicate()]).to_local(),
        full((2, 3), 7.0, device_mesh=mesh).to_local(),
    ]


@case
def recorded():
    x = DTensor.from_local(torch.ones(4, 3, requires_grad=True), pair(), [Shard(0)])
    return (x * 2).sum().to_local()


@case
def a_part_of_a_grid():
    mesh = DeviceMesh("cpu", [[0, 1]])
    return [
        distribute_tensor(torch.arange(8.0).view(4, 2), mesh, [Replicate(), Shard(0)]).to_local(),
        mesh.get_coordinate(),
    ]


@case
def together_again():
    dist.barrier()
    return True


main()
