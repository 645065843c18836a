"""Programs for many processes run alone: a world of one, where collectives are copies."""

import datetime

import pytest

import flambeau as fl
from flambeau import distributed as dist


@pytest.fixture
def world():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_without_a_group_programs_are_told():
    assert dist.is_available() and not dist.is_initialized()
    with pytest.raises(ValueError, match="init_process_group"):
        dist.get_rank()


def test_a_world_of_one(world):
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "gloo")
    assert dist.group.WORLD is dist.GroupMember.WORLD
    with pytest.raises(ValueError):
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_collectives_copy(world):
    x = fl.arange(4.0)
    dist.all_reduce(x, op=dist.ReduceOp.SUM)
    dist.broadcast(x, src=0)
    assert x.tolist() == [0, 1, 2, 3]
    outputs = [fl.zeros(4)]
    dist.all_gather(outputs, x)
    assert outputs[0].tolist() == x.tolist()
    into = fl.zeros(4)
    work = dist.all_gather_into_tensor(into, x, async_op=True)
    assert work.wait() and work.is_completed() and into.tolist() == x.tolist()
    scattered = fl.zeros(4)
    dist.reduce_scatter_tensor(scattered, x)
    assert scattered.tolist() == x.tolist()


def test_objects_are_copied(world):
    given = {"a": [1]}
    got = [None]
    dist.all_gather_object(got, given)
    assert got[0] == given and got[0] is not given


def test_what_needs_others_is_refused(world, monkeypatch):
    with pytest.raises(ValueError):
        dist.send(fl.ones(1), dst=0)
    with pytest.raises(RuntimeError):
        dist.all_gather([fl.zeros(1), fl.zeros(1)], fl.ones(1))
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="Timed out"):
        limit = datetime.timedelta(milliseconds=100)
        dist.init_process_group("gloo", rank=0, world_size=2, store=dist.HashStore(), timeout=limit)
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    dist.init_process_group()
    assert dist.get_world_size() == 1


def test_futures():
    from flambeau.futures import Future, collect_all, wait_all

    first, second = Future(), Future()
    both = collect_all([first, second])
    following = first.then(lambda future: future.value() + 1)
    first.set_result(1)
    assert following.wait() == 2 and not both.done()
    second.set_exception(KeyError("x"))
    assert both.done()
    with pytest.raises(KeyError):
        wait_all([first, second])
    with pytest.raises(RuntimeError):
        first.set_result(2)


def test_parameters_events_and_metrics_of_launchers(capsys):
    from flambeau.distributed.elastic import events, metrics
    from flambeau.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
    from flambeau.distributed.elastic.utils.distributed import get_free_port

    params = RendezvousParameters("mine", "localhost:0", "job", 1, 2, timeout="5", flag="no")
    assert params.get_as_int("timeout") == 5 and params.get_as_bool("flag") is False and params.get("none", 3) == 3
    with pytest.raises(ValueError, match="mine"):
        rendezvous_handler_registry.create_handler(params)
    with pytest.raises(ValueError, match="greater than zero"):
        RendezvousParameters("mine", "localhost:0", "job", 0, 2)
    event = events.Event("started", events.EventSource.AGENT, metadata={"rank": 1})
    assert events.Event.deserialize(event.serialize()) == event
    events.record(event)
    metrics.configure(metrics.ConsoleMetricHandler(), "here")
    assert metrics.prof(group="here")(lambda: 7)() == 7
    assert ".success=1" in capsys.readouterr().out
    assert get_free_port() > 0


@pytest.mark.parametrize("rank", [-1, 1, 7])
def test_ranks_that_no_process_has_are_refused(world, rank):
    group, x = dist.group.WORLD, fl.ones(2)
    options = dist.BroadcastOptions()
    options.rootRank = rank
    for call in (
        lambda: group.broadcast([x], options),
        lambda: group.reduce([x], rank),
        lambda: group.gather([[x]], [x], rank),
        lambda: group.scatter([x], [[x]], rank),
        lambda: group.send([x], rank),
    ):
        with pytest.raises(RuntimeError, match=f"rank: {rank}"):
            call()


def test_groups_refuse_empty_lists(world):
    with pytest.raises(RuntimeError, match="requires non-empty tensor list"):
        dist.group.WORLD.allreduce([])


def test_results_of_handles_are_flat_lists(world):
    x, parts = fl.ones(2), [fl.zeros(2)]
    group = dist.group.WORLD
    for work in (
        dist.all_gather(parts, x, async_op=True),
        group.allgather([parts], [x]),
        group.gather([parts], [x], dist.GatherOptions()),
        group.alltoall_base(x, x, [], []),
    ):
        assert [value.tolist() for value in work.get_future().wait()] == [[1, 1]]
    assert dist.all_reduce_coalesced([x, x], op=dist.ReduceOp.SUM, async_op=True).wait() == [x, x]


def test_groups_end_with_the_last_callback():
    """The reference that a future's callback holds may be the last one: it goes on the group's own thread."""
    for _ in range(20):
        group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
        futures = [group.allreduce([fl.ones(1000)]).get_future() for _ in range(4)]
        del group
        for future in futures:
            future.wait()


def test_groups_are_made_of_a_store_alone():
    options = dist.ProcessGroupGloo._Options()
    options._timeout = 7.0
    options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
    group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, options)
    x = fl.ones(2)
    group.allreduce([x]).wait()
    assert (x.tolist(), group.options._timeout) == ([1, 1], datetime.timedelta(seconds=7))


def test_collective_operators_that_write_or_take_lists(world):
    ops, name = fl.ops._c10d_functional, dist.group.WORLD.group_name
    from flambeau.distributed import _functional_collectives  # noqa: F401

    x, out = fl.arange(4.0), fl.zeros(4)
    assert ops.all_reduce_(x, "sum", name) is x and ops.broadcast_(x, 0, name) is x
    for results in (
        ops.all_reduce_coalesced([x, x], "sum", name),
        ops.all_gather_into_tensor_coalesced([x, x], 1, name),
        ops.reduce_scatter_tensor_coalesced([x, x], "sum", 1, name),
    ):
        assert [result.tolist() for result in results] == [x.tolist()] * 2
    ops.all_gather_into_tensor_out(x, 1, name, out=out)
    assert out.tolist() == x.tolist()

    @fl.compile(fullgraph=True)
    def step(x):
        doubled = x * 2
        ops.all_reduce_(doubled, "sum", name)
        return ops.wait_tensor(doubled) + 1

    assert step(x).tolist() == [1, 3, 5, 7]


def test_a_store_takes_over_a_bound_socket():
    import socket

    bound = socket.socket()
    bound.bind(("localhost", 0))
    host, port = bound.getsockname()
    store = dist.TCPStore(host, port, 1, is_master=True, master_listen_fd=bound.detach())
    store.set("key", "value")
    assert store.get("key") == b"value"
    with pytest.raises(dist.DistNetworkError, match="local network address"):
        dist.TCPStore("localhost", port, 1, is_master=True)
    with pytest.raises(ValueError, match="world size cannot be 0"):
        dist.TCPStore("localhost", 0, world_size=0)


def test_two_ranks_of_one_process_meet_in_a_file(tmp_path):
    url = f"file://{tmp_path}/meeting?world_size=2"
    (first, *_), (second, *_) = (next(dist.rendezvous(f"{url}&rank={rank}")) for rank in (0, 1))
    first.set("a", "0")
    assert second.get("a") == b"0"


def test_communication_is_counted_for_modules(world, tmp_path):
    from flambeau import nn
    from flambeau.distributed.tensor.debug import CommDebugMode
    from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    with CommDebugMode() as counter:
        model(fl.ones(2, 4)).sum().backward()
    reduced = fl.ops.c10d_functional.all_reduce
    assert counter.comm_module_counts["Sequential.1"] == {"forward": {reduced: 1}, "backward": {}}
    assert counter.comm_module_counts["Global"]["forward"] == {reduced: 1}
    assert str(counter.get_sharding_info()["Sequential.0.weight"]) == "(Shard(dim=0),)"
    table = counter.generate_comm_debug_tracing_table(noise_level=1)
    assert "Sequential.1" in table and "c10d_functional.all_reduce: 1" in table
    counter.generate_json_dump(str(tmp_path / "counts.json"))
    assert "Sequential.0" in (tmp_path / "counts.json").read_text()


def test_sharded_tensors_are_gathered_saved_and_loaded(world, tmp_path):
    import flambeau.distributed.checkpoint as checkpoint
    from flambeau.distributed._shard import _shard_tensor, sharded_tensor
    from flambeau.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec, ShardMetadata

    whole = fl.arange(12.0).view(4, 3)
    tensor = _shard_tensor(whole, ChunkShardingSpec(0, ["rank:0/cpu"]))
    assert [shard.metadata.shard_sizes for shard in tensor.local_shards()] == [[4, 3]]
    out = fl.zeros(4, 3)
    tensor.gather(0, out)
    assert out.tolist() == whole.tolist()
    halves = [ShardMetadata([0, 0], [4, 1], "rank:0/cpu"), ShardMetadata([0, 1], [4, 2], "rank:0/cpu")]
    other = sharded_tensor.zeros(EnumerableShardingSpec(halves), 4, 3)
    checkpoint.save({"x": tensor}, checkpoint_id=tmp_path)
    checkpoint.load({"x": other}, checkpoint_id=tmp_path)
    assert other.local_shards()[1].tensor.tolist() == whole[:, 1:].tolist()
    with pytest.raises(RuntimeError, match="not supported for ShardedTensor"):
        tensor + 1
    with pytest.raises(ValueError, match="overlap"):
        EnumerableShardingSpec([ShardMetadata([0], [3], "rank:0/cpu"), ShardMetadata([2], [3], "rank:0/cpu")])


def test_zero_optimizers_have_the_settings_of_theirs(world):
    from flambeau.distributed.optim import ZeroRedundancyOptimizer

    class Noting(fl.optim.SGD):
        def step(self, closure=None):
            super().step()
            self.param_groups[0]["noted"] = 1

    x = fl.ones(2, requires_grad=True)
    optimizer = ZeroRedundancyOptimizer([x], Noting, lr=0.1)
    assert optimizer.param_groups[0]["nesterov"] is False
    x.sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["noted"] == 1
    for refused in (fl.ones(1), 1.2, [x, 42]):
        with pytest.raises(TypeError, match="iterable of Tensors"):
            ZeroRedundancyOptimizer(refused, fl.optim.SGD, lr=0.1)
    with pytest.raises(ValueError, match="same dense type"):
        ZeroRedundancyOptimizer([x, x.detach().double()], fl.optim.SGD, lr=0.1)


def test_slices_of_a_mesh_take_flattened_dimensions_also_without_data(world):
    from flambeau._subclasses.fake_tensor import FakeTensorMode

    mesh = dist.device_mesh.init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("a", "b", "c"))
    mesh["b", "c"]._flatten()
    with FakeTensorMode():
        both = mesh["a", "b_c"]
    assert both.mesh_dim_names == ("a", "b_c") and both.mesh.tolist() == [[0]]
    with pytest.raises(KeyError, match="order"):
        mesh["b", "b_c"]
    with pytest.raises(RuntimeError, match="redundant dim index 0 and name a"):
        dist.device_mesh.init_device_mesh("cpu", (1,), mesh_dim_names=("a",), backend_override={"a": "gloo", 0: "gloo"})


def test_a_world_that_ended_is_followed_by_another_meeting(tmp_path):
    from flambeau.distributed.rendezvous import end_meetings

    url = f"file://{tmp_path}/meeting?world_size=2"
    names = []
    for first, second in ((0, 1), (1, 0)):  # whichever rank it is then
        for rank in (first, second):
            names.append(next(dist.rendezvous(f"{url}&rank={rank}"))[0]._prefix)
        end_meetings()
    assert names == ["meeting1", "meeting1", "meeting2", "meeting2"]
