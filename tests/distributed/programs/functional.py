"""Collectives with derivatives, functional collectives and device meshes."""
# ranks: 4

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as dnn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
rank, size = dist.get_rank(), dist.get_world_size()
total = sum(range(1, size + 1))

x = torch.full((3,), float(rank + 1), requires_grad=True)
y = dnn.all_reduce(x)
assert y.tolist() == [total] * 3
(y * (rank + 1)).sum().backward()
assert x.grad.tolist() == [total] * 3
x.grad = None
parts = dnn.all_gather(x)
sum((i + 1) * part.sum() for i, part in enumerate(parts)).backward()
assert x.grad.tolist() == [size * (rank + 1.0)] * 3
x.grad = None
dnn.broadcast(x, src=1).sum().backward()
assert x.grad.tolist() == [float(size) if rank == 1 else 0.0] * 3
x.grad = None
out = dnn.reduce_scatter(torch.empty(3), [x * i for i in range(size)])
assert out.tolist() == [float(total * rank)] * 3
out.sum().backward()
assert x.grad.tolist() == [float(sum(range(size)))] * 3
x.grad = None
out = dnn.all_to_all_single(torch.empty(4), torch.arange(4.0) * x[0])
out.sum().backward()
assert x.grad[0] == 6

t = torch.full((4, 2), float(rank))
assert torch.equal(funcol.all_reduce(t, "sum", dist.group.WORLD), torch.full((4, 2), 6.0)) and t[0, 0] == rank
gathered = funcol.all_gather_tensor(t, 0, dist.group.WORLD)
assert gathered.shape == (16, 2) and gathered[::4, 0].tolist() == [0, 1, 2, 3]
assert funcol.all_gather_tensor(t, 1, dist.group.WORLD).shape == (4, 8)
scattered = funcol.reduce_scatter_tensor(t, "avg", 0, dist.group.WORLD)
assert funcol.wait_tensor(scattered).tolist() == [[1.5, 1.5]]
assert funcol.all_reduce(torch.ones(1), "sum", (mesh, 1)).item() == 2
moved = funcol.all_to_all_single(torch.arange(4.0) + 10 * rank, None, None, dist.group.WORLD)
assert moved.tolist() == [rank, 10 + rank, 20 + rank, 30 + rank]

assert mesh.shape == (2, 2) and mesh.size() == 4 and mesh.size(0) == 2 and mesh.ndim == 2
assert mesh.get_coordinate() == (rank // 2, rank % 2)
assert mesh.get_local_rank("dp") == rank // 2 and mesh["tp"].get_local_rank() == rank % 2
assert dist.get_process_group_ranks(mesh.get_group("tp")) == [rank // 2 * 2, rank // 2 * 2 + 1]
assert dist.get_process_group_ranks(mesh["dp"].get_group()) == [rank % 2, rank % 2 + 2]
assert mesh["tp"].mesh.tolist() == [rank // 2 * 2, rank // 2 * 2 + 1] and mesh["dp", "tp"] == mesh
one = torch.ones(1)
dist.all_reduce(one, group=mesh.get_group(0))
assert one.item() == 2
flat = DeviceMesh("cpu", [0, 1, 2, 3])
assert flat.get_group() is dist.group.WORLD and flat.get_local_rank() == rank
dist.barrier()
dist.destroy_process_group()
