"""Groups, handles, stores, objects, functional collectives, meshes and plans beyond the common calls."""
# ranks: 4

import datetime
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from cases import case, filled, main
from meshes import grid, line, rank
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication, local_map, register_sharding
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


def values(*shape):
    return torch.sin(torch.arange(float(torch.Size(shape).numel())) * 0.9 + 0.3).view(*shape)


def mine(*shape):
    return torch.arange(float(torch.Size(shape).numel())).view(*shape) + 10 * rank()


def tried(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return {"raised": [c.__name__ for c in type(error).__mro__]}


@case
def subgroups():
    own, groups = dist.new_subgroups(2)
    listed, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    results = []
    for group in (own, listed):
        x = mine(2)
        dist.all_reduce(x, group=group)
        results += [x, dist.get_process_group_ranks(group), dist.get_rank(group), dist.get_world_size(group)]
        results += [dist.get_group_rank(group, rank()), dist.get_global_rank(group, 1)]
    return [
        *results,
        len(groups),
        tried(lambda: dist.new_subgroups(3)),
        tried(lambda: dist.get_group_rank(listed, (rank() + 1) % 4)),
    ]


@case
def group_ranks():
    group = dist.new_group([1, 2, 3])
    results = []
    if rank():
        x = mine(2)
        dist.broadcast(x, group=group, group_src=1)
        results.append(x)
        x = mine(2)
        dist.reduce(x, group=group, group_dst=2)
        results.append(x if rank() == 3 else None)
        outputs = [torch.empty(2) for _ in range(3)] if rank() == 1 else None
        dist.gather(mine(2), outputs, group=group, group_dst=0)
        results.append(outputs)
        x = torch.empty(2)
        dist.scatter(
            x, [torch.full((2,), float(i)) for i in range(3)] if rank() == 2 else None, group=group, group_src=1
        )
        results.append(x)
        objects = [None] * 3
        dist.all_gather_object(objects, {"rank": rank()}, group=group)
        box = [rank(), "x"] if rank() == 3 else [None, None]
        dist.broadcast_object_list(box, group=group, group_src=2)
        gathered = [None] * 3 if rank() == 1 else None
        dist.gather_object((rank(),), gathered, group=group, group_dst=0)
        received = [None]
        dist.scatter_object_list(
            received, [f"for {i}" for i in range(3)] if rank() == 1 else None, group=group, group_src=0
        )
        results += [objects, box, gathered, received]
        if rank() == 1:
            dist.send(mine(2), group=group, group_dst=2)
            dist.send_object_list([{"a": 1}, [2]], group=group, group_dst=1)
        elif rank() == 3:
            x = torch.empty(2)
            dist.recv(x, group=group, group_src=0)
            results.append(x)
        else:
            box = [None, None]
            dist.recv_object_list(box, group=group, group_src=0)
            results.append(box)
    dist.barrier()
    return results


@case
def points():
    right, left = (rank() + 1) % 4, (rank() - 1) % 4
    a, b = torch.empty(2), torch.empty(3, dtype=torch.int64)
    operations = [
        dist.P2POp(dist.isend, mine(2), right), dist.P2POp(dist.irecv, a, left),
        dist.P2POp(dist.isend, torch.arange(3) + rank(), left), dist.P2POp(dist.irecv, b, right),
    ]  # fmt: skip
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    tagged = [torch.empty(1), torch.empty(1)]
    if rank() == 0:
        handles = [dist.isend(torch.tensor([float(t)]), 1, tag=t) for t in (1, 2)]
    elif rank() == 1:
        handles = [dist.irecv(tagged[0], 0, tag=1), dist.irecv(tagged[1], 0, tag=2)]
    else:
        handles = []
    for work in handles:
        work.wait()
    source = None
    if rank() == 2:
        dist.send(torch.ones(2), 3)
    elif rank() == 3:
        box = torch.empty(2)
        source = dist.recv(box)
    dist.barrier()
    return [
        a,
        b,
        tagged if rank() == 1 else None,
        source,
        tried(lambda: dist.send(mine(1), rank())),
        tried(lambda: dist.batch_isend_irecv([])),
    ]


@case
def handles():
    x = mine(3)
    work = dist.all_reduce(x, async_op=True)
    done = work.wait()
    future = dist.all_reduce(torch.ones(2) * rank(), async_op=True).get_future()
    chained = future.then(lambda f: f.value()[0] * 2).wait()
    broadcast = dist.broadcast(mine(2), 1, async_op=True)
    broadcast.wait(datetime.timedelta(seconds=5))
    return [
        x, done, chained, work.is_completed(), work.is_success(), broadcast.is_completed(), dist.barrier(async_op=True).wait(),
        dist.all_reduce(mine(1)), dist.all_gather([torch.empty(1) for _ in range(4)], mine(1)),
    ]  # fmt: skip


@case
def whole_tensors():
    gathered = torch.empty(8)
    dist.all_gather_into_tensor(gathered, mine(2))
    scattered = torch.empty(2)
    dist.reduce_scatter_tensor(scattered, mine(8))
    averaged = torch.empty(2)
    dist.reduce_scatter_tensor(averaged, mine(8), op=dist.ReduceOp.AVG)
    exchanged = [torch.empty(1) for _ in range(4)]
    dist.all_to_all(exchanged, list(mine(4).split(1)))
    parts = torch.empty(2)
    dist.reduce_scatter(parts, list(mine(8).split(2)), op=dist.ReduceOp.MAX)
    complex_sum = torch.complex(mine(2), mine(2))
    dist.all_reduce(complex_sum)
    flags = torch.tensor([rank() == 0, True])
    dist.broadcast(flags, 0)
    nested = [torch.empty(2, dtype=torch.bfloat16) for _ in range(4)]
    dist.all_gather(nested, mine(2).bfloat16())
    return [gathered, scattered, averaged, exchanged, parts, complex_sum, flags, nested]


@case
def wrong_arguments():
    return [
        tried(lambda: dist.all_reduce([1, 2])), tried(lambda: dist.all_gather(torch.ones(2), torch.ones(2))),
        tried(lambda: dist.broadcast(torch.ones(2), 9)), tried(lambda: dist.gather(mine(1), None, dst=9)),
        tried(lambda: dist.all_gather_into_tensor(torch.empty(3), mine(2))), tried(lambda: dist.reduce_scatter_tensor(torch.empty(3), mine(2))),
        tried(lambda: dist.new_group([0, 9])), tried(lambda: dist.new_group([0, 0])), tried(lambda: dist.P2POp(dist.broadcast, mine(1), 0)),
        tried(lambda: dist.all_reduce(mine(1), op="sum")), tried(lambda: dist.init_process_group("gloo")), tried(lambda: dist.Backend("")),
        tried(lambda: dist.get_backend(3)), tried(lambda: dist.all_gather([torch.empty(1) for _ in range(4)], torch.ones(1, dtype=torch.int64))),
        tried(lambda: dist.scatter(torch.empty(1), [torch.empty(1)] * 4, src=(rank() + 1) % 4)),
    ]  # fmt: skip


@case
def backends():
    group = dist.group.WORLD
    return [
        dist.get_backend(), dist.Backend("GLOO"), dist.Backend.GLOO, dist.Backend.NCCL, dist.is_available(), dist.is_initialized(), dist.is_gloo_available(),
        dist.is_backend_available("gloo"), dist.is_backend_available("none"), group.size(), group.rank(), group.name(), dist.get_pg_count() > 0,
        dist.is_torchelastic_launched(), tried(lambda: dist.get_node_local_rank()), str(dist.get_default_backend_for_device("cpu")),
        str(dist.ReduceOp.SUM), dist.ReduceOp.SUM == dist.ReduceOp.SUM, dist.ReduceOp.SUM == dist.ReduceOp.MAX, str(dist.get_debug_level()).split(".")[-1],
        dist.GroupMember.NON_GROUP_MEMBER is None, dist.group.WORLD is dist.GroupMember.WORLD, isinstance(group, dist.ProcessGroup),
    ]  # fmt: skip


@case
def monitored():
    dist.monitored_barrier()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=10), wait_all_ranks=True)
    group = dist.new_group([0, 1])
    if rank() < 2:
        dist.monitored_barrier(group)
    dist.barrier()
    return "passed"


@case
def more_stores():
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    prefix = dist.PrefixStore("a", dist.PrefixStore("b", store))
    prefix.set("key", "value")
    store.set("number", "5")
    store.append("list", "x")
    store.append("list", "y")
    results = [
        store.get("a/key") if tried(lambda: store.check(["a/key"])) is True else "", store.get("b/a/key"), prefix.get("key"), store.add("number", 3), store.get("number"),
        store.get("list"), store.check(["number"]), store.check(["number", "nothing"]), store.num_keys() > 2, store.delete_key("number"), store.delete_key("number"),
        store.compare_set("fresh", "", "first"), store.compare_set("fresh", "wrong", "second"), store.compare_set("fresh", "first", "third"), store.get("fresh"),
        store.has_extended_api(), store.timeout.total_seconds(), type(prefix.underlying_store).__name__, store.host, isinstance(store.port, int),
        tried(lambda: store.wait(["never"], datetime.timedelta(milliseconds=50))), tried(lambda: store.compare_set("other", "x", "y")),
    ]  # fmt: skip
    store.multi_set(["one", "two"], ["1", "2"])
    store.set_timeout(datetime.timedelta(milliseconds=60))
    begin = time.monotonic()
    results += [store.multi_get(["one", "two"]), tried(lambda: store.get("never")), time.monotonic() - begin < 5]
    results += [
        tried(
            lambda: (
                store.queue_push("q", "a"),
                store.queue_push("q", "b"),
                store.queue_len("q"),
                store.queue_pop("q"),
                store.queue_len("q"),
            )
        )
    ]
    results += [
        tried(lambda: store.list_keys() and True),
        tried(lambda: store.clone().get("one")),
        repr(store.get("one")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = dist.FileStore(os.path.join(folder, "store"), 1)
        file.set("a", "b")
        results += [
            file.get("a"),
            file.add("n", 2),
            file.add("n", 2),
            file.num_keys() >= 2,
            file.delete_key("a"),
            file.check(["n"]),
            os.path.basename(file.path),
        ]
    hashed = dist.HashStore()
    hashed.set("a", b"\x00\xff")
    results += [
        list(hashed.get("a")),
        hashed.add("c", -2),
        tried(lambda: hashed.wait(["no"], datetime.timedelta(milliseconds=20))),
    ]
    return results


@case
def functional_collectives():
    group = dist.group.WORLD
    own = mine(4)
    coalesced = funcol.all_reduce_coalesced([own, own * 2], "sum", group)
    gathered = funcol.all_gather_into_tensor_coalesced([own, own * 2], group)
    scattered = funcol.reduce_scatter_tensor_coalesced([own, own * 2], "sum", [0, 0], group)
    return [
        funcol.all_reduce(own, "sum", group) + 0, funcol.all_reduce(own, "max", [0, 1, 2, 3]) + 0, funcol.all_reduce(own, "avg", (line(), 0)) + 0,
        funcol.all_gather_tensor(own, 0, group) + 0, funcol.all_gather_tensor(mine(2, 2), 1, group) + 0,
        funcol.reduce_scatter_tensor(own, "sum", 0, group) + 0, funcol.reduce_scatter_tensor(mine(2, 4), "sum", 1, line()) + 0,
        funcol.broadcast(own, 2, group) + 0, funcol.all_to_all_single(own, None, None, group) + 0,
        funcol.all_to_all_single(mine(4), [1] * 4, [1] * 4, group) + 0, funcol.permute_tensor(own, [1, 2, 3, 0], group) + 0,
        [x + 0 for x in coalesced], [x + 0 for x in gathered], [x + 0 for x in scattered], type(funcol.all_reduce(own, "sum", group)).__name__,
        funcol.all_reduce(own, "sum", (grid(), 1)) + 0, funcol.wait_tensor(funcol.all_reduce(own, "sum", group)),
        tried(lambda: funcol.all_reduce(own, "nothing", group) + 0),
    ]  # fmt: skip


@case
def functional_gradients():
    def gradient(function):
        x = mine(4).requires_grad_()
        out = function(x)
        (out * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum().backward()
        return [out, x.grad]

    group = dist.group.WORLD
    return [
        gradient(lambda x: funcol.all_gather_tensor_autograd(x, 0, group)), gradient(lambda x: funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group)),
        gradient(lambda x: funcol.all_to_all_single_autograd(x, [1] * 4, [1] * 4, group)),
    ]  # fmt: skip


@case
def differentiable_functions():
    import torch.distributed.nn.functional as dnn

    def gradient(function):
        x = mine(4).requires_grad_()
        out = function(x)
        out = torch.cat([o.reshape(-1) for o in out]) if isinstance(out, (tuple, list)) else out
        (out * torch.arange(1.0, out.numel() + 1).view(out.shape) * (rank() + 1)).sum().backward()
        return [out, x.grad]

    return [
        gradient(dnn.all_reduce), gradient(lambda x: dnn.all_reduce(x, op=dist.ReduceOp.MAX)), gradient(dnn.all_gather), gradient(lambda x: dnn.broadcast(x, 1)),
        gradient(lambda x: dnn.reduce_scatter(torch.empty(1), list(x.split(1)))), gradient(lambda x: dnn.all_to_all([torch.empty(1) for _ in range(4)], list(x.split(1)))),
        gradient(lambda x: dnn.all_to_all_single(torch.empty(4), x)), gradient(lambda x: dnn.scatter(list(x.split(1)), 0)), gradient(lambda x: dnn.gather(x, 0)),
    ]  # fmt: skip


@case
def more_meshes():
    three = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("pp", "dp", "tp"))
    flat = three["pp", "dp"]._flatten("both")
    outer = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))
    part = DeviceMesh("cpu", [0, 2])
    grouped = DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh_dim_names=("w",))
    return [
        list(three.shape), three["pp"].mesh, three["pp", "tp"].mesh, three["pp", "tp"].mesh_dim_names, flat.mesh, flat.mesh_dim_names, three.get_local_rank("tp"), three.get_coordinate(),
        tried(lambda: three["tp", "pp"].mesh), tried(lambda: three["nothing"]), tried(lambda: three.get_local_rank()), outer == grid(), hash(outer) == hash(DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))),
        part.get_coordinate(), part.size(), grouped.mesh, grouped.get_group("w").size(), three.size(2), len(three.get_all_groups()), dist.get_process_group_ranks(three.get_group("pp")),
        tried(lambda: init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "a"))), tried(lambda: init_device_mesh("cpu", (2, 2), mesh_dim_names=("a",))), tried(lambda: init_device_mesh("cpu:0", (4,))),
        three["tp"].get_group().size(), three["both"].size(), three.ndim, str(grid()), three.get_rank(), three._get_root_mesh() == three if hasattr(three, "_get_root_mesh") else True,
    ]  # fmt: skip


@case
def maps():
    col, rep = [Shard(1)], [Replicate()]

    @local_map(out_placements=[Partial()], in_placements=(col, [Shard(0)]), device_mesh=line())
    def product(a, b):
        return a @ b

    a, b = distribute_tensor(values(4, 8), line(), col), distribute_tensor(values(8, 4), line(), [Shard(0)])
    out = product(a, b)
    free = local_map(lambda x: x * 2, out_placements=[Shard(0)], device_mesh=line())
    strict = local_map(lambda x: x, out_placements=rep, in_placements=(rep,), device_mesh=line())
    moved = local_map(
        lambda x: x.sum(),
        out_placements=[Partial()],
        in_placements=([Shard(0)],),
        device_mesh=line(),
        redistribute_inputs=True,
    )
    inferred = local_map(lambda x, y: (x + y, x.sum()), out_placements=([Shard(1)], [Partial()]))
    pair = inferred(a, a)
    return [
        out.full_tensor(), str(out.placements), free(distribute_tensor(values(8), line(), [Shard(0)])).full_tensor(), tried(lambda: strict(a)), moved(a).full_tensor(), pair[0].full_tensor(), pair[1].full_tensor(),
    ]  # fmt: skip


@case
def counted():
    x = distribute_tensor(values(8, 8), line(), [Shard(0)])
    mode = CommDebugMode()
    with mode:
        (x @ distribute_tensor(values(8, 8), line(), [Replicate()])).redistribute(placements=[Replicate()])
        x.sum().full_tensor()
        x.redistribute(placements=[Shard(1)])
    common = CommDebugMode()
    with common:
        dist.all_reduce(mine(2))
        dist.broadcast(mine(2), 0)
        dist.all_gather([torch.empty(2) for _ in range(4)], mine(2))
        dist.all_gather_into_tensor(torch.empty(8), mine(2))
        dist.reduce_scatter_tensor(torch.empty(2), mine(8))
        funcol.all_reduce(mine(2), "sum", dist.group.WORLD) + 0
    counts = common.get_comm_counts()
    names = "allreduce_ broadcast_ allgather_ _allgather_base_ _reduce_scatter_base_".split()
    plain_counts = [counts[getattr(torch.ops.c10d, name)] for name in names] + [
        counts[torch.ops.c10d_functional.all_reduce]
    ]
    model = filled(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
    parallelize_module(model, line(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    step = CommDebugMode()
    with step:
        model(values(4, 8)).sum().backward()
    return [
        plain_counts,
        mode.get_total_counts(),
        {str(k).rpartition(".")[2]: v for k, v in mode.get_comm_counts().items()},
        step.get_total_counts(),
        {str(k).rpartition(".")[2]: v for k, v in step.get_comm_counts().items()},
    ]


@case
def plans():
    def run(model, plan, x, mesh=None):
        parallelize_module(filled(model), mesh or line(), plan)
        x = x.clone().requires_grad_()
        out = model(x)
        whole = out.full_tensor() if isinstance(out, DTensor) else out
        whole.square().sum().backward()
        return [
            whole,
            [
                [
                    n,
                    str(p.placements) if isinstance(p, DTensor) else "plain",
                    (p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad),
                ]
                for n, p in model.named_parameters()
            ],
            x.grad.full_tensor() if isinstance(x.grad, DTensor) else x.grad,
        ]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.q, self.k, self.v, self.o = (
                nn.LayerNorm(8),
                nn.Linear(8, 8),
                nn.Linear(8, 8),
                nn.Linear(8, 8),
                nn.Linear(8, 8, bias=False),
            )

        def forward(self, x):
            y = self.norm(x)
            q, k, v = (layer(y).view(*x.shape[:2], -1, 2).transpose(1, 2) for layer in (self.q, self.k, self.v))
            return x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    embedding = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 4))
    parallelize_module(
        filled(embedding),
        line(),
        {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel(output_layouts=Replicate())},
    )
    embedded = embedding(torch.arange(12).view(3, 4))
    columns = nn.Embedding(16, 8)
    parallelize_module(filled(columns), line(), ColwiseParallel(output_layouts=Replicate()))
    normed = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    sequence = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(filled(normed), line(), sequence)
    divided = normed(distribute_tensor(values(2, 4, 8), line(), [Shard(1)]))
    kwargs = nn.Module()
    return [
        run(Attention(), {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "o": RowwiseParallel()}, values(2, 4, 8)),
        run(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), {"*": ColwiseParallel(output_layouts=Replicate())}, values(4, 8)),
        run(nn.Linear(8, 8), ColwiseParallel(use_local_output=False), values(4, 8)),
        run(nn.Linear(8, 8), RowwiseParallel(input_layouts=Replicate()), values(4, 8)),
        run(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), {"0": ColwiseParallel(), "1": RowwiseParallel()}, values(4, 8), grid()["tp"]),
        embedded, columns(torch.arange(5)), divided, tried(lambda: parallelize_module(nn.Linear(2, 2), line(), {"nothing": ColwiseParallel()})), kwargs.training,
    ]  # fmt: skip


@case
def parallel_losses():
    labels = torch.arange(8) % 16

    def run(**options):
        logits = distribute_tensor(values(8, 16), line(), [Shard(1)]).requires_grad_()
        with loss_parallel():
            loss = F.cross_entropy(logits, labels, **options)
            loss.sum().backward()
        return [loss.full_tensor() if isinstance(loss, DTensor) else loss, logits.grad.full_tensor()]

    return [run(), run(reduction="sum"), run(reduction="none"), run(ignore_index=3)]


@case
def implicit():
    x = distribute_tensor(values(8, 4), line(), [Shard(0)])
    with implicit_replication():
        out = [x + torch.ones(8, 4), x @ torch.ones(4, 2), x * values(4)]
    return [[o.full_tensor() for o in out], tried(lambda: x + torch.ones(8, 4)), (x + 1).full_tensor()]


@case
def own_rules():
    @register_sharding(torch.ops.aten.cummax.default)
    def rule(x, dim):
        return [
            ([Replicate(), Replicate()], [Replicate(), None]),
            ([Shard(1 - dim), Shard(1 - dim)], [Shard(1 - dim), None]),
        ]

    out = torch.cummax(distribute_tensor(values(8, 4), line(), [Shard(0)]), 1)
    return [out[0].full_tensor(), out[1].full_tensor(), str(out[0].placements)]


@case
def local_tensors():
    x = DTensor.from_local(mine(2, 3), line(), [Shard(0)], run_check=False, shape=torch.Size([8, 3]), stride=(3, 1))
    y = DTensor.from_local(mine(2, 3), line(), [Replicate()], run_check=True)
    leaf = mine(2, 3).requires_grad_()
    d = DTensor.from_local(leaf, line(), [Shard(0)])
    d.redistribute(placements=[Replicate()]).to_local().sum().backward()
    hinted = distribute_tensor(values(8, 3), line(), [Shard(0)]).requires_grad_()
    hinted.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]).sum().backward()
    full = distribute_tensor(values(8, 3), line(), [Shard(0)]).requires_grad_()
    full.full_tensor(grad_placements=[Partial()]).sum().backward()
    uneven = DTensor.from_local(mine(rank() + 1, 2), line(), [Shard(0)], shape=(10, 2), stride=(2, 1))
    return [
        list(x.shape), x.full_tensor(), y.full_tensor(), leaf.grad, hinted.grad.to_local(), full.grad.to_local(), list(uneven.shape), list(uneven.to_local().shape),
        str(x.placements), x.device_mesh == line(), repr(x.redistribute(placements=[Replicate()]).placements), tried(lambda: x.redistribute(placements=[Shard(5)])),
        tried(lambda: distribute_tensor(values(4), line(), [Shard(0), Shard(1)])), tried(lambda: distribute_tensor(x, line(), [Shard(1)])), x.requires_grad, d.grad_fn is not None,
    ]  # fmt: skip


@case
def moved_on_a_grid():
    results = []
    for source in (
        (Shard(0), Shard(1)),
        (Shard(0), Replicate()),
        (Replicate(), Shard(0)),
        (Shard(1), Shard(1)),
        (Shard(0), Shard(0)),
    ):
        for target in ((Replicate(), Replicate()), (Shard(1), Shard(0)), (Shard(0), Shard(0)), (Replicate(), Shard(1))):
            moved = distribute_tensor(values(8, 8), grid(), source).redistribute(placements=target)
            results.append([str(moved.placements), moved.to_local(), moved.full_tensor().sum()])
    return results


@case
def module_functions():
    model = filled(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))

    def divide(name, module, mesh):
        for key, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))

    def enter(module, inputs, mesh):
        return (distribute_tensor(inputs[0], mesh, [Shard(0)]),)

    def leave(module, outputs, mesh):
        return outputs.full_tensor()

    distributed = distribute_module(model, line(), divide, enter, leave)
    out = distributed(values(8, 4))
    out.sum().backward()
    plain = distribute_module(filled(nn.Linear(3, 3)), line())
    return [
        out,
        [p.grad.full_tensor() for p in model.parameters()],
        [str(p.placements) for p in plain.parameters()],
        [n for n, _ in model.named_parameters()],
    ]


@case
def optimizers():
    results = {}
    for name in "SGD Adam AdamW Adagrad Adadelta NAdam RAdam Adamax ASGD RMSprop".split():
        for foreach in (False, True):
            model = filled(nn.Linear(4, 4))
            distribute_module(
                model,
                line(),
                lambda n, m, mesh: [
                    m.register_parameter(k, nn.Parameter(distribute_tensor(p, mesh, [Shard(0)])))
                    for k, p in list(m.named_parameters(recurse=False))
                ],
            )
            optimizer = getattr(torch.optim, name)(
                model.parameters(), lr=0.1, foreach=foreach, **({"momentum": 0.9} if name == "SGD" else {})
            )
            for _ in range(3):
                optimizer.zero_grad()
                model(distribute_tensor(values(8, 4), line(), [Replicate()])).square().sum().backward()
                optimizer.step()
            results[f"{name} {foreach}"] = [p.full_tensor() for p in model.parameters()]
    return results


@case
def draws():
    def first(function):
        try:
            x = function()
        except AssertionError as error:  # PyTorch draws some of them on GPUs only
            return {"refused": str(error)}
        whole = x.full_tensor()
        gathered = [torch.empty_like(whole) for _ in range(4)]
        dist.all_gather(gathered, whole)
        return [
            list(x.shape),
            all(torch.equal(gathered[0], g) for g in gathered),
            bool(whole.unique().numel() > 1),
            str(x.placements),
        ]

    from torch.distributed.tensor import rand, randn

    torch.manual_seed(3)
    return [
        first(lambda: rand(8, 4, device_mesh=line(), placements=[Shard(0)])), first(lambda: randn(8, 4, device_mesh=line(), placements=[Replicate()])),
        first(lambda: F.dropout(distribute_tensor(torch.ones(8, 8), line(), [Shard(0)]), 0.5)),
        first(lambda: nn.init.normal_(distribute_tensor(torch.ones(8, 8), line(), [Shard(0)]))), first(lambda: nn.init.kaiming_uniform_(distribute_tensor(torch.ones(8, 8), line(), [Shard(0)]))),
    ]  # fmt: skip


@case
def split_groups():
    named = dist.new_group([0, 1, 2, 3], group_desc="named", timeout=datetime.timedelta(seconds=20))
    x = mine(1)
    dist.all_reduce(x, group=named)
    description = named.group_desc
    dist.destroy_process_group(named)
    local = dist.new_group([rank()], use_local_synchronization=True)
    dist.all_reduce(x, group=local)
    return [x, description, local.size()]


if __name__ == "__main__":
    main()
