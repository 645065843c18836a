"""Meshes whose dimensions are flattened and sliced together, and groups of a backend for each dimension."""
# ranks: 4

import torch
import torch.distributed as dist
from cases import case, main
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


@case
def descriptions():
    return [repr(init_device_mesh("cpu", (4,))), repr(init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")))]


@case
def flattened_beside_others():
    mesh = init_device_mesh("cpu", (2, 2, 1), mesh_dim_names=("r", "s", "c"))
    mesh["s", "c"]._flatten()
    both = mesh["r", "s_c"]
    inner, outer = torch.ones(1) * dist.get_rank(), torch.ones(1) * dist.get_rank()
    dist.all_reduce(inner, group=both.get_group("s_c"))
    dist.all_reduce(outer, group=both["r"].get_group())
    return [both.mesh.tolist(), both.mesh_dim_names, inner, outer, both.get_coordinate(), both["s_c"].mesh.tolist()]


@case
def own_backends():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"), backend_override={"a": "gloo"})
    x = torch.ones(1)
    dist.all_reduce(x, group=mesh.get_group("a"))
    return x


@case
def wrong_calls():
    raised = []
    for override in ({"a": "gloo", 0: "gloo"}, {"c": "gloo"}, {42: "gloo"}):
        try:
            init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"), backend_override=override)
        except Exception as error:
            raised.append(type(error).__name__)
    try:
        DeviceMesh.from_group(dist.group.WORLD, "cpu", [[0, 1], [2, 3]])
    except Exception as error:
        raised.append(type(error).__name__)
    return raised


main()
