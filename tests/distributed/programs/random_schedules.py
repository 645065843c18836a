"""Random schedules of collectives and messages over several groups agree with a reference that every rank computes alone."""
# ranks: 3 4

import os
import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
member_lists = [list(range(size)), [0, 1], [1, 2], list(range(1, size)), [0, size - 1]]
groups = [None] + [dist.new_group(ranks) for ranks in member_lists[1:]]
pending = []


def value(step, owner, count):
    return ((torch.arange(count) * 7 + owner * 13 + step * 3) % 17).to(torch.float64)


def settle():
    for work, got, expected, what in pending:
        if work is not None:
            work.wait()
        assert all(torch.equal(a, b) for a, b in zip(got, expected)), what
    pending.clear()


def run_schedule(seed, steps):
    draws = random.Random(seed)
    for step in range(steps):
        index = draws.randrange(len(groups))
        ranks, group = member_lists[index], groups[index]
        kind = draws.choice(
            [
                "all_reduce",
                "max",
                "broadcast",
                "all_gather",
                "reduce_scatter",
                "all_to_all",
                "reduce",
                "scatter",
                "gather",
                "send",
                "barrier",
            ]
        )
        count = draws.choice([0, 1, 5, 1000, 20_000, 300_000])
        root, other, is_async = draws.randrange(len(ranks)), draws.randrange(len(ranks)), draws.random() < 0.4
        if draws.random() < 0.1:
            settle()
        if rank not in ranks:
            continue
        own, n = ranks.index(rank), len(ranks)
        inputs = [value(step, member, count) for member in ranks]
        options = {"group": group, "async_op": is_async}
        mine = inputs[own].clone()
        work, got, expected = None, [mine], []
        if kind == "all_reduce":
            work, expected = dist.all_reduce(mine, **options), [sum(inputs)]
        elif kind == "max":
            work = dist.all_reduce(mine, op=dist.ReduceOp.MAX, **options)
            expected = [torch.stack(inputs).amax(0) if count else inputs[0]]
        elif kind == "broadcast":
            work, expected = dist.broadcast(mine, src=ranks[root], **options), [inputs[root]]
        elif kind == "all_gather":
            got = [torch.empty_like(mine) for _ in ranks]
            work, expected = dist.all_gather(got, mine, **options), inputs
        elif kind == "reduce_scatter":
            got = [torch.empty_like(mine)]
            parts = [inputs[own] + place for place in range(n)]
            work, expected = dist.reduce_scatter(got[0], parts, **options), [sum(inputs) + n * own]
        elif kind == "all_to_all":
            got = [torch.empty_like(mine) for _ in ranks]
            work = dist.all_to_all(got, [inputs[own] + place for place in range(n)], **options)
            expected = [one + own for one in inputs]
        elif kind == "reduce":
            work = dist.reduce(mine, dst=ranks[root], **options)
            got, expected = ([mine], [sum(inputs)]) if own == root else ([], [])
        elif kind == "scatter":
            got = [torch.empty_like(mine)]
            parts = [inputs[root] + place for place in range(n)] if own == root else None
            work, expected = dist.scatter(got[0], parts, src=ranks[root], **options), [inputs[root] + own]
        elif kind == "gather":
            got = [torch.empty_like(mine) for _ in ranks] if own == root else []
            work = dist.gather(mine, got or None, dst=ranks[root], **options)
            expected = inputs if own == root else []
        elif kind == "send" and root != other and own in (root, other):
            if own == root:
                work, got = dist.isend(mine, dst=ranks[other], group=group, tag=step), []
            else:
                got = [torch.empty_like(mine)]
                work, expected = dist.irecv(got[0], src=ranks[root], group=group, tag=step), [inputs[root]]
        elif kind == "barrier":
            work, got = dist.barrier(**options), []
        pending.append((work, got, expected, (step, kind, ranks, count)))
    settle()
    dist.barrier()


first = int(os.environ.get("SEED", "11"))
for seed in range(first, first + int(os.environ.get("SCHEDULES", "5"))):
    run_schedule(seed, int(os.environ.get("STEPS", "50")))
dist.destroy_process_group()
