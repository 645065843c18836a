"""The methods of process groups with lists of tensors, what they refuse, and what a profile tells of collectives."""
# ranks: 2

import torch
import torch.distributed as dist
from cases import case, main


def rank():
    return dist.get_rank()


def group():
    return dist.distributed_c10d._get_default_group()


def filled(value, count=2):
    return torch.full((count,), float(value))


def refused(function):
    try:
        function()
    except (RuntimeError, ValueError, TypeError):
        return True
    return False


def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


@case
def lists_of_contributions():
    pair = [filled(rank() + 1), filled(10 * (rank() + 1))]
    group().allreduce(pair).wait()
    largest = [filled(rank() + 1), filled(10 * (rank() + 1))]
    group().allreduce(largest, options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.MAX)).wait()
    chosen = [filled(rank() + 1), filled(10 * (rank() + 1))]
    group().broadcast(chosen, options(dist.BroadcastOptions, rootRank=1, rootTensor=1)).wait()
    gathered = [[filled(0) for _ in range(4)] for _ in range(2)]
    group().allgather(gathered, [filled(rank() + 1), filled(10 * (rank() + 1))]).wait()
    each = [[filled(0), filled(0, 3)] for _ in range(2)]
    group().allgather_coalesced(each, [filled(rank() + 1), filled(rank() + 5, 3)]).wait()
    return [pair, largest, chosen, gathered, each]


@case
def lists_that_are_refused():
    both = [filled(1), filled(2)]
    other = [filled(1), torch.ones(2, dtype=torch.long)]
    calls = {
        "root tensor": lambda: group().broadcast([filled(1)], options(dist.BroadcastOptions, rootRank=0, rootTensor=5)),
        "dtypes": lambda: group().allreduce(other),
        "shapes": lambda: group().allreduce([filled(1), filled(1, 3)]),
        "nothing": lambda: group().allreduce([]),
        "coalesced dtypes": lambda: group().allreduce_coalesced(other),
        "reduce of two": lambda: group().reduce(both),
        "gather of nothing": lambda: group().gather([], [], dist.GatherOptions()),
        "scatter of two": lambda: group().scatter(both, [], dist.ScatterOptions()),
        "no lists": lambda: group().allgather([], [filled(1)]),
        "long list": lambda: group().allgather([[filled(1)] * 3], [filled(1)]),
    }
    return {name: refused(call) for name, call in calls.items()}


@case
def sparse_by_a_method():
    places = torch.tensor([[0, 1, 1], [0, 2, 2]])
    tensor = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0, 3.0]) * (rank() + 1), (2, 3))
    work = group().allreduce([tensor])
    work.wait()
    return [value.to_dense() for value in work.result()]


@case
def profiled():
    """Ranges of collectives, with the shapes of what is exchanged, blocking and in the background."""
    value, rows = torch.ones(4, 2), torch.ones(2)
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(value)
        dist.all_reduce(value, async_op=True).wait()
        dist.broadcast(rows, src=0)
        dist.barrier()
        dist.all_gather([torch.empty(2), torch.empty(2)], rows)
        if rank() == 0:
            dist.send(rows, 1)
        else:
            dist.recv(rows, 0)
    kept = [event for event in profile.events() if event.name.startswith("gloo:")]
    names = sorted((event.name, str(event.input_shapes)) for event in kept if "barrier" not in event.name)
    operators = sorted(event.name for event in profile.events() if event.name in ("c10d::allreduce_", "c10d::barrier"))
    return [names, operators, all(event.is_async and event.cpu_parent is None for event in kept)]


if __name__ == "__main__":
    main()
