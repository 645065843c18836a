"""Meetings of agents that programs arrange themselves: backends, handlers, the registry."""

import datetime
import threading

import pytest

from flambeau.distributed import HashStore, TCPStore
from flambeau.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    get_rendezvous_handler,
)
from flambeau.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend, create_backend
from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout


def handlers(count, at_least, at_most, **seconds):
    store = HashStore()
    timeout = RendezvousTimeout(**{name: datetime.timedelta(seconds=value) for name, value in seconds.items()})
    return [
        DynamicRendezvousHandler.from_backend(
            "job", store, C10dRendezvousBackend(store, "job"), at_least, at_most, "localhost", timeout
        )
        for _ in range(count)
    ]


def together(calls):
    """The results of calls in threads of their own, or what they raised."""
    results = [None] * len(calls)

    def run(index):
        try:
            results[index] = calls[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_states_change_for_those_who_know_the_latest():
    backend = C10dRendezvousBackend(HashStore(), "job")
    assert backend.get_state() is None
    state, first, changed = backend.set_state(b"one")
    assert (state, changed) == (b"one", True)
    state, second, changed = backend.set_state(b"two", first)
    assert (state, changed) == (b"two", True)
    assert backend.set_state(b"three", first) == (b"two", second, False)
    assert backend.get_state() == (b"two", second)


def test_nodes_meet_and_meet_again():
    three = handlers(3, 3, 3)
    for _ in range(2):
        rounds = together([handler.next_rendezvous for handler in three])
        assert sorted(info.rank for info in rounds) == [0, 1, 2]
        assert {info.world_size for info in rounds} == {3}
        assert len({info.bootstrap_store_info.master_port for info in rounds}) == 1
        rounds[0].store.set("key", "value")
        assert rounds[1].store.get("key") == b"value"


def test_a_late_node_waits_for_the_next_round():
    first, late = handlers(2, 1, 2, last_call=0.1)
    assert first.next_rendezvous().world_size == 1
    waiting = threading.Thread(target=late.next_rendezvous)
    waiting.start()
    while first.num_nodes_waiting() == 0:
        pass
    assert first.next_rendezvous().world_size == 2
    waiting.join(60)
    assert first.num_nodes_waiting() == 0


def test_meetings_end():
    (lonely,) = handlers(1, 2, 2, join=0.2)
    with pytest.raises(RendezvousTimeoutError, match="expected 2 nodes"):
        lonely.next_rendezvous()
    assert not lonely.is_closed() and lonely.shutdown() and lonely.is_closed()
    with pytest.raises(RendezvousClosedError):
        lonely.next_rendezvous()
    with pytest.raises(ValueError, match="must be positive"):
        RendezvousTimeout(join=datetime.timedelta(0))


def test_the_registry_makes_handlers_by_backend():
    parameters = RendezvousParameters("c10d", "localhost:0", "job", 1, 1, is_host="true")
    handler = get_rendezvous_handler(parameters)
    info = handler.next_rendezvous()
    assert (handler.get_backend(), handler.get_run_id(), info.rank, info.world_size) == ("c10d", "job", 0, 1)
    _, store = create_backend(parameters)
    assert isinstance(store, TCPStore)
    static = RendezvousParameters("static", f"localhost:{store.port}", "job", 1, 1, rank=0)
    assert get_rendezvous_handler(static).get_backend() == "static"
    for endpoint, options in (("localhost:x", {}), ("localhost:0", {"store_type": "dummy"})):
        with pytest.raises(ValueError, match="expected"):
            create_backend(RendezvousParameters("c10d", endpoint, "job", 1, 1, **options))


def test_the_first_node_says_where_workers_meet():
    store = HashStore()
    first = RendezvousStoreInfo.build(0, store, "host", server_port=1234)
    assert first == RendezvousStoreInfo.build(1, store) == RendezvousStoreInfo("host", 1234)


def value_of_rank(factor):
    import os

    return factor * int(os.environ["RANK"])


def test_agents_run_functions_under_handlers_of_the_registry():
    from flambeau.distributed.elastic.agent.server import LocalElasticAgent, WorkerSpec
    from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs

    handler = get_rendezvous_handler(RendezvousParameters("c10d", "localhost:0", "job", 1, 1, is_host=True))
    spec = WorkerSpec("trainer", 2, handler, entrypoint=value_of_rank, args=(3,), monitor_interval=0.05)
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(), start_method="spawn")
    result = agent.run()
    assert not result.is_failed() and result.return_values == {0: 0, 1: 3}
    group = agent.get_worker_group()
    assert (group.group_world_size, [worker.world_size for worker in group.workers]) == (1, [2, 2])

    class Other(RendezvousHandler):
        get_backend = next_rendezvous = is_closed = set_closed = num_nodes_waiting = get_run_id = shutdown = None

    with pytest.raises(NotImplementedError, match="expected a handler of the registry"):
        LocalElasticAgent(WorkerSpec("trainer", 1, Other(), entrypoint=value_of_rank)).run()
