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
