"""Objects, groups of some ranks, stores and rendezvous methods."""
# ranks: 4

import datetime
import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

got = [None] * size
dist.all_gather_object(got, {"rank": rank, "text": "x" * rank, "tensor": torch.full((rank,), 2.0)})
assert [one["rank"] for one in got] == list(range(size)) and got[3]["tensor"].tolist() == [2.0] * 3
got = [None] * size if rank == 2 else None
dist.gather_object(("object", rank), got, dst=2)
if rank == 2:
    assert got == [("object", i) for i in range(size)]
objects = [{"a": 1}, [2, 3], "four"] if rank == 1 else [None] * 3
dist.broadcast_object_list(objects, src=1)
assert objects == [{"a": 1}, [2, 3], "four"]
out = [None]
dist.scatter_object_list(out, [f"for {i}" for i in range(size)] if rank == 0 else None, src=0)
assert out == [f"for {rank}"]
if rank == 0:
    dist.send_object_list([1, "two"], dst=3)
elif rank == 3:
    pair = [None, None]
    assert dist.recv_object_list(pair, src=0) == 0 and pair == [1, "two"]

even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
mine, other = (even, odd) if rank % 2 == 0 else (odd, even)
t = torch.tensor([float(rank)])
dist.all_reduce(t, group=mine)
assert t.item() == (2 if rank % 2 == 0 else 4)
assert dist.get_rank(mine) == rank // 2 and dist.get_world_size(mine) == 2 and dist.get_rank(other) == -1
assert dist.get_process_group_ranks(mine) == ([0, 2] if rank % 2 == 0 else [1, 3])
assert dist.get_global_rank(mine, 1) == (2 if rank % 2 == 0 else 3) and dist.get_group_rank(mine, rank) == rank // 2
t = torch.tensor([float(rank)])
dist.broadcast(t, src=rank % 2 + 2, group=mine)
assert t.item() == rank % 2 + 2
dist.broadcast(t, group=mine, group_src=0)
sub, subs = dist.new_subgroups(2)
t = torch.ones(1)
dist.all_reduce(t, group=sub)
assert t.item() == 2 and len(subs) == 2 and dist.get_process_group_ranks(sub) == [rank // 2 * 2, rank // 2 * 2 + 1]
sub, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
assert dist.get_process_group_ranks(sub) == ([0, 3] if rank in (0, 3) else [1, 2])
if rank in (0, 1):
    local = dist.new_group([0, 1], use_local_synchronization=True)
    dist.barrier(local)
dist.destroy_process_group(sub)
dist.barrier()
for ranks in ([0, 9], [1, 1]):
    try:
        dist.new_group(ranks)
        raise SystemExit("expected an error")
    except (ValueError, RuntimeError):
        pass

# A store of the program's own, and a second world at the same address.
path = os.path.join(tempfile.gettempdir(), f"store-{os.environ['MASTER_PORT']}")
dist.barrier()
dist.destroy_process_group()
dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
assert dist.get_world_size() == size
dist.barrier()
dist.destroy_process_group()
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]) + 1, size, rank == 0, datetime.timedelta(seconds=60))
store.set(f"key{rank}", str(rank))
assert store.get("key2") == b"2" and store.multi_get(["key0", "key3"]) == [b"0", b"3"]
store.add("count", 1)
while int(store.get("count")) < size:
    pass
assert store.add("count", 0) == size
prefixed = dist.PrefixStore("p", store)
if rank == 0:
    prefixed.set("x", b"1")
prefixed.wait(["x"])
assert store.get("p/x") == b"1" and prefixed.check(["x"]) and not prefixed.check(["y"])
try:
    store.wait(["never"], datetime.timedelta(milliseconds=50))
    raise SystemExit("expected a timeout")
except dist.DistStoreError:
    pass
dist.init_process_group("gloo", store=dist.PrefixStore("again", store), rank=rank, world_size=size)
dist.barrier()
dist.destroy_process_group()
store.add("done", 1)
if rank == 0:
    while int(store.get("done")) < size:
        pass
