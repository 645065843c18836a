"""Distributed tensors as `out=`, under other dtypes, in files, and functions of their parts."""
# ranks: 2

import io

import torch
from cases import case, main
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map


def mesh():
    return init_device_mesh("cpu", (2,))


def divided(placement, rows=4):
    return distribute_tensor(torch.arange(3.0 * rows).view(rows, 3), mesh(), [placement])


def refused(function):
    try:
        function()
    except Exception:
        return True
    return False


@case
def out():
    results = {}
    for own in (Shard(0), Shard(1), Replicate()):
        for target in (Shard(0), Replicate()):
            to, x = divided(target), divided(own)
            answer = torch.add(x, 3, out=to)
            results[f"add {own} {target}"] = [answer is to, to, to.full_tensor()]
    to = distribute_tensor(torch.zeros(4, 4), mesh(), [Replicate()])
    torch.mm(divided(Shard(0)), divided(Shard(0)).t(), out=to)
    results["mm"] = to.full_tensor()
    to = distribute_tensor(torch.zeros(4, 3, dtype=torch.bool), mesh(), [Shard(0)])
    torch.eq(divided(Shard(0)), divided(Shard(0)), out=to)
    results["eq"] = to
    return results


@case
def other_dtypes():
    results = []
    for dtypes in ({}, {"forward_dtype": torch.bfloat16}, {"backward_dtype": torch.float64}):
        x = divided(Shard(0)).requires_grad_()
        moved = x.redistribute(placements=[Replicate()], **dtypes)
        (moved * 0.3).sum().backward()
        results.append([moved, str(moved.dtype), x.grad])
    return results


@case
def files():
    """What is written is read again, without running what a file names."""
    results = []
    two = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    for x in (
        divided(Shard(0), 5), divided(Replicate()), torch.nn.Parameter(divided(Shard(1))),
        distribute_tensor(torch.arange(8.0).view(4, 2), two, [Shard(1), Replicate()]),
        DTensor.from_local(torch.ones(2), mesh(), [Partial()]),
    ):  # fmt: skip
        file = io.BytesIO()
        torch.save({"x": x}, file)
        for checked in (True, False):
            file.seek(0)
            read = torch.load(file, weights_only=checked)["x"]
            kind = isinstance(read, torch.nn.Parameter)
            results.append([read, read.full_tensor(), read.requires_grad, kind, read.device_mesh.mesh_dim_names])
    return results


@case
def functions_of_parts():
    a, b = divided(Shard(0)), divided(Replicate())
    first = ([Shard(0)], [Replicate()])
    several = local_map(lambda x, y: (x @ y.t(), 5, None), ([Shard(0)], None, None), first, device_mesh=mesh())
    plain = local_map(lambda x, y: bool((x == y).all()), None, ([Shard(0)], [Shard(0)]), device_mesh=mesh())
    nested = local_map(lambda pair: pair[0] * pair[1], [Shard(0)], ([Shard(0)], [Shard(0)]))
    two = local_map(lambda x: [x, x + 1], ([Shard(0)], [Shard(0)]))
    return [
        several(a, b), plain(a, a), nested([a, a]), two(a), local_map(lambda x: x.sum(), [Partial()])(a),
        refused(lambda: local_map(lambda x: x, ([Shard(0)], [Shard(0)]))(a)),
        refused(lambda: local_map(lambda x, y: x * y, [Shard(0)], ([Shard(0)], [Shard(0)]))(a, b)),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
