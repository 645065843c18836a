"""All collectives over all dtypes, reductions, layouts and groups."""
# ranks: 2

import torch
import torch.distributed as dist
from cases import case, main

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
MOVED = [*FLOATS, torch.uint8, torch.int8, torch.int32, torch.int64]


def rank():
    return dist.get_rank()


def sample(dtype, shape=(2, 3)):
    values = torch.arange(6).view(2, 3) + 2 * rank() + 1
    return (values.remainder(2) if dtype == torch.bool else values).to(dtype).reshape(shape)


def tried(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return {"raised": [c.__name__ for c in type(error).__mro__]}


@case
def reductions():
    def one(dtype, op):
        tensor = sample(dtype)
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        return tensor

    supported = {
        **{d: ["SUM", "AVG", "PRODUCT", "MIN", "MAX"] for d in FLOATS},
        **{d: ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"] for d in INTS if d != torch.int16},
    }
    return {f"{d} {op}": one(d, op) for d, ops in supported.items() for op in ops}


@case
def unsupported_reductions():
    def one(dtype, op):
        tensor = sample(dtype)
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        return tensor

    return {f"{d} {op}": tried(one, d, op) for d in (torch.float32, torch.complex64) for op in ("BAND", "BOR", "BXOR")}


@case
def movement():
    results = {}
    for dtype in MOVED:
        tensor = sample(dtype)
        dist.broadcast(tensor, src=1)
        results[f"broadcast {dtype}"] = tensor
        tensor = sample(dtype)
        parts = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(parts, tensor)
        results[f"all_gather {dtype}"] = parts
        whole = torch.empty(4, 3, dtype=dtype)
        dist.all_gather_into_tensor(whole, tensor)
        results[f"all_gather_into_tensor {dtype}"] = whole
        outputs = [torch.empty_like(tensor) for _ in range(2)] if rank() == 0 else None
        dist.gather(tensor, outputs, dst=0)
        results[f"gather {dtype}"] = outputs
        to = torch.empty_like(tensor)
        dist.scatter(to, [tensor, tensor] if rank() == 1 else None, src=1)
        results[f"scatter {dtype}"] = to
        swapped = torch.empty_like(tensor)
        dist.all_to_all_single(swapped, tensor)
        results[f"all_to_all_single {dtype}"] = swapped
        if rank() == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(to, 0)
        results[f"recv {dtype}"] = to
    return results


@case
def reduce_and_scatter():
    tensor = sample(torch.float32)
    dist.reduce(tensor, dst=1, op=dist.ReduceOp.SUM)
    part, parts = torch.empty(3), [sample(torch.float32)[i].clone() for i in range(2)]
    dist.reduce_scatter(part, parts)
    flat = torch.empty(1, 3)
    dist.reduce_scatter_tensor(flat, sample(torch.float32), op=dist.ReduceOp.MAX)
    return [tensor if rank() == 1 else None, part, flat]


@case
def layouts():
    strided = sample(torch.float32).t()
    expanded = torch.ones(3)[::2] * (rank() + 1)
    dist.all_reduce(strided)
    dist.broadcast(expanded, 1)
    scalar = torch.tensor(3.0 + rank())
    dist.all_reduce(scalar)
    empty = torch.empty(0)
    dist.all_reduce(empty)
    listed = [torch.empty(()) for _ in range(2)]
    dist.all_gather(listed, torch.tensor(float(rank())))
    return [strided, expanded, scalar, empty, listed]


@case
def uneven():
    mine = torch.arange(3.0) + 10 * rank()
    sizes = [[1, 2], [2, 1]]
    received = [sizes[i][rank()] for i in range(2)]
    output = torch.empty(sum(received))
    dist.all_to_all_single(output, mine, received, sizes[rank()])
    return output


@case
def handles():
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, async_op=True)
    waited = work.wait()
    other = torch.full((2,), float(rank()))
    second = dist.broadcast(other, 0, async_op=True)
    second.wait()
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2).wait()
    return [waited, tensor, work.is_completed(), other, second.is_success(), doubled]


@case
def messages():
    peer, tensor, buffer = 1 - rank(), torch.full((2,), float(rank())), torch.empty(2)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, buffer, peer)])
    for work in works:
        work.wait()
    first, second = torch.empty(1), torch.empty(1)
    if rank() == 0:
        for tag in (7, 9):
            dist.send(torch.tensor([float(tag)]), 1, tag=tag)
        source = None
    else:
        dist.recv(first, 0, tag=7)
        source = dist.recv(second, tag=9)
        return [buffer, first, second, source]
    return [buffer, source]


@case
def objects():
    gathered = [None, None]
    dist.all_gather_object(gathered, {"rank": rank(), "list": [1, "a"]})
    listed = [None, None] if rank() == 0 else None
    dist.gather_object(("x", rank()), listed, dst=0)
    box = ["a", {"b": 2}, 3] if rank() == 1 else [None] * 3
    dist.broadcast_object_list(box, src=1)
    to = [None]
    dist.scatter_object_list(to, ["p", ["q"]] if rank() == 0 else None, src=0)
    if rank() == 0:
        dist.send_object_list([1, {"t": torch.ones(2)}], dst=1)
        got = None
    else:
        got = [None, None]
        dist.recv_object_list(got, src=0)
    return [gathered, listed, box, to, got]


@case
def coalesced():
    a, b = torch.ones(2), torch.full((3,), float(rank()))
    dist.all_reduce_coalesced([a, b])
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(2)]
    dist.all_gather_coalesced(lists, [a, b + rank()])
    return [a, b, lists]


@case
def barriers():
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.monitored_barrier()
    return True


@case
def groups():
    alone = [dist.new_group([i]) for i in range(2)][rank()]
    both = dist.new_group([0, 1], group_desc="both")
    tensor = torch.ones(2) * (rank() + 1)
    dist.all_reduce(tensor, group=both)
    own = torch.ones(1) * rank()
    dist.all_reduce(own, group=alone)
    mine, every = dist.new_subgroups(1)
    return [
        tensor, own, dist.get_process_group_ranks(both), dist.get_rank(alone), dist.get_world_size(alone), len(every),
        dist.get_global_rank(alone, 0), dist.get_group_rank(both, 1), dist.get_backend(both), both.group_desc,
        both.size(), both.rank(), both.name(), dist.get_process_group_ranks(mine),
        dist.get_world_size(), dist.get_node_local_rank(0) if hasattr(dist, "get_node_local_rank") else 0,
    ]  # fmt: skip


@case
def non_members():
    other = dist.new_group([0])
    tensor = torch.ones(1)
    if rank() == 1:
        return [
            dist.get_rank(other), dist.get_world_size(other), tried(dist.all_reduce, tensor, dist.ReduceOp.SUM, other),
            tried(dist.barrier, other), other == dist.GroupMember.NON_GROUP_MEMBER, tensor,
        ]  # fmt: skip
    return [dist.get_rank(other), dist.get_world_size(other)]


@case
def wrong_calls():
    t, three = torch.ones(2), [torch.ones(2) for _ in range(3)]
    return [
        tried(dist.all_reduce, "a"),
        tried(dist.all_gather, three, t),
        tried(dist.broadcast, t, 5),
        tried(dist.send, t, rank()),
        tried(dist.new_group, [0, 0]),
        tried(dist.new_group, [7]),
        tried(dist.init_process_group, "gloo"),
        tried(dist.all_gather_into_tensor, torch.ones(3), t),
        tried(dist.reduce_scatter_tensor, torch.ones(3), t),
        tried(dist.P2POp, dist.all_reduce, t, 0),
        tried(dist.batch_isend_irecv, [1]),
        tried(dist.scatter, t, None, rank()),
        tried(dist.gather, t, None, rank()),
        tried(dist.Backend, 3),
        tried(dist.new_subgroups, 3),
        tried(dist.get_global_rank, dist.group.WORLD, 9),
        tried(dist.all_gather, [torch.ones(2, dtype=torch.int32) for _ in range(2)], t),
    ]


@case
def questions():
    return [
        dist.is_initialized(), dist.is_available(), dist.is_gloo_available(), dist.is_torchelastic_launched(),
        dist.get_backend(), str(dist.get_backend_config()), repr(dist.ReduceOp.SUM), str(dist.ReduceOp.MAX),
        dist.Backend("GLOO"), dist.Backend.GLOO,
        dist.get_debug_level(), dist.get_default_backend_for_device("cpu"), dist.is_backend_available("gloo"),
        dist.GroupMember.NON_GROUP_MEMBER, dist.get_pg_count(), int(dist.ReduceOp.BXOR), dist.is_mpi_available() or True,
        dist.group.WORLD.name(), dist.distributed_c10d._get_pg_default_device(),
    ]  # fmt: skip


@case
def stores():
    store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
    if rank() == 0:
        store.set("a", "1")
        store.set("bytes", b"\x00\x01")
    first = store.get("a")
    count = store.add("n", 2)
    dist.barrier()
    total = store.add("n", 0)
    exchanged = store.compare_set("c", "", "first") if rank() == 0 else None
    dist.barrier()
    after = store.compare_set("c", "first", "second") if rank() == 1 else None
    dist.barrier()
    results = [
        str(first), count > 0, total, str(exchanged), str(after), str(store.get("c")), str(store.get("bytes")), store.check(["a"]),
        store.check(["no"]), [str(v) for v in store.multi_get(["a", "c"])], tried(store.wait, ["no"], __import__("datetime").timedelta(milliseconds=20)),
    ]  # fmt: skip
    store.multi_set([f"m{rank()}"], ["v"])
    store.append("log", "x")
    dist.barrier()
    deleted = store.delete_key("a") if rank() == 0 else None
    return [*results, str(store.get("log")), deleted, store.has_extended_api()]


@case
def file_and_hash_stores():
    import datetime
    import tempfile

    path = [tempfile.mktemp()]
    dist.broadcast_object_list(path)
    store = dist.FileStore(path[0], 2)
    store.set(f"k{rank()}", str(rank()))
    values = [str(store.get(f"k{i}")) for i in range(2)]
    added = store.add("sum", 1 + rank())
    local = dist.HashStore()
    local.set("x", "1")
    local.set_timeout(datetime.timedelta(milliseconds=30))
    dist.barrier()
    return [
        values,
        added > 0,
        store.add("sum", 0),
        str(local.get("x")),
        tried(local.get, "y"),
        local.num_keys(),
        local.timeout,
    ]


@case
def sparse():
    tensor = torch.sparse_coo_tensor([[rank(), 1]], [1.0, 2.0], (3,))
    dist.all_reduce(tensor)
    return tensor


@case
def process_group_methods():
    pg = dist.group.WORLD
    a = torch.ones(2)
    pg.allreduce(a).wait()
    b = torch.full((1,), float(rank()))
    pg.broadcast(b, 1).wait()
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    c = torch.tensor([float(rank())])
    pg.allreduce([c], options).wait()
    out = [[torch.empty(2), torch.empty(2)]]
    pg.allgather(out, [a]).wait()
    pg.barrier().wait()
    peer = 1 - rank()
    d = torch.empty(1)
    if rank() == 0:
        pg.send([b], 1, 3).wait()
        pg.recv([d], 1, 4).wait()
    else:
        pg.recv([d], 0, 3).wait()
        pg.send([b], 0, 4).wait()
    return [a, b, c, out, d, pg.size(), pg.rank(), peer]


@case
def functional():
    import torch.distributed._functional_collectives as F

    t = torch.arange(4.0).view(2, 2) + rank()
    results = {
        "reduce": F.all_reduce(t, "sum", dist.group.WORLD),
        "gather0": F.all_gather_tensor(t, 0, dist.group.WORLD),
        "gather1": F.all_gather_tensor(t, 1, dist.group.WORLD),
        "scatter0": F.reduce_scatter_tensor(t, "sum", 0, dist.group.WORLD),
        "scatter1": F.reduce_scatter_tensor(t, "sum", 1, dist.group.WORLD),
        "swap": F.all_to_all_single(t, None, None, dist.group.WORLD),
        "broadcast": F.broadcast(t, 1, dist.group.WORLD),
        "coalesced": F.all_reduce_coalesced([t, t * 2], "max", dist.group.WORLD),
        "gathers": F.all_gather_into_tensor_coalesced([t, t * 2], dist.group.WORLD),
        "scatters": F.reduce_scatter_tensor_coalesced([t, t * 2], "sum", [0, 0], dist.group.WORLD),
    }
    pending = results["reduce"]
    kinds = [type(v).__name__ for v in results.values()]
    waited = F.wait_tensor(pending)
    x = torch.ones(2, requires_grad=True)
    (F.all_gather_tensor_autograd(x * (rank() + 1), 0, dist.group.WORLD) * torch.arange(4.0)).sum().backward()
    y = torch.ones(4, requires_grad=True)
    (F.reduce_scatter_tensor_autograd(y * 2, "sum", 0, dist.group.WORLD) * (rank() + 1)).sum().backward()
    z = torch.ones(2, requires_grad=True)
    (F.all_to_all_single_autograd(z, [1, 1], [1, 1], dist.group.WORLD) * (rank() + 1)).sum().backward()
    raw = torch.ops._c10d_functional.wait_tensor(
        torch.ops._c10d_functional.all_reduce(t, "sum", dist.group.WORLD.group_name)
    )
    return [
        {k: v.clone() if isinstance(v, torch.Tensor) else [e.clone() for e in v] for k, v in results.items()},
        kinds,
        waited + 1,
        x.grad,
        y.grad,
        z.grad,
        raw,
    ]


@case
def async_tensor():
    import torch.distributed._functional_collectives as F

    pending = F.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    kind = type(pending).__name__
    view = pending.view(1, 2)
    completed = [pending.completed, type(view).__name__]
    total = (pending + 1).tolist()
    return [
        kind,
        completed[1],
        total,
        type(pending + 1).__name__,
        pending.completed,
        type(pending.wait()).__name__,
        isinstance(pending, torch.Tensor),
    ]


@case
def differentiable():
    import torch.distributed.nn.functional as F

    results = []
    x = torch.arange(4.0, requires_grad=True)
    y = F.all_reduce(x * (rank() + 1))
    (y * (rank() + 1)).sum().backward()
    results += [y, x.grad.clone()]
    x.grad = None
    gathered = F.all_gather(x * (rank() + 1))
    sum((g * (i + 1)).sum() for i, g in enumerate(gathered)).backward()
    results += [list(gathered), x.grad.clone()]
    x.grad = None
    b = F.broadcast(x * (rank() + 2), 0)
    (b * (rank() + 1)).sum().backward()
    results += [b, x.grad.clone()]
    x.grad = None
    results += [list(F.gather(x, 0)) if rank() == 0 else len(F.gather(x, 0))]  # PyTorch leaves its gradient unwritten
    s = F.scatter(list((x * 2).chunk(2)), 0)
    s.sum().backward()
    results += [s, x.grad.clone() if rank() == 0 else None]
    x.grad = None
    r = F.reduce(x * 3, 1)
    (r * 2).sum().backward()
    results += [r if rank() == 1 else None, x.grad.clone()]
    x.grad = None
    a = F.all_to_all([torch.empty(2), torch.empty(2)], list(x.chunk(2)))
    (torch.cat(list(a)) * (rank() + 1)).sum().backward()
    results += [list(a), x.grad.clone()]
    x.grad = None
    single = F.all_to_all_single(torch.empty(4), x)
    (single * (rank() + 1)).sum().backward()
    results += [single, x.grad.clone()]
    x.grad = None
    part = F.reduce_scatter(torch.empty(2), list(x.chunk(2)))
    (part * (rank() + 1)).sum().backward()
    results += [part, x.grad.clone()]
    return results


@case
def debug_detail():
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    t = torch.ones(2)
    dist.all_reduce(t)
    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.OFF)
    return [t, level]


@case
def destroy_and_again():
    import os

    dist.destroy_process_group()
    gone = dist.is_initialized()
    failed = tried(dist.all_reduce, torch.ones(1))
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]) + 7, 2, rank_of() == 0)
    dist.init_process_group("gloo", store=store, rank=rank_of(), world_size=2)
    t = torch.ones(1)
    dist.all_reduce(t)
    return [gone, failed, t, tried(lambda: store.host)]


def rank_of():
    import os

    return int(os.environ["RANK"])


if __name__ == "__main__":
    main()
