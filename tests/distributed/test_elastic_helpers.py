"""Helpers of jobs whose number of processes changes."""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import flambeau as fl
from flambeau.distributed.elastic import metrics, utils
from flambeau.distributed.elastic.utils.data import CyclingIterator, ElasticDistributedSampler


def test_iterators_follow_each_other_for_some_epochs():
    assert list(CyclingIterator(3, lambda epoch: iter([epoch, 10 + epoch]))) == [0, 10, 1, 11, 2, 12]
    assert list(CyclingIterator(3, lambda epoch: iter([epoch]), start_epoch=1)) == [1, 2]


def test_samplers_divide_what_is_left_of_a_dataset():
    samplers = [ElasticDistributedSampler(range(10), 2, rank, start_index=3) for rank in range(2)]
    assert [len(list(sampler)) for sampler in samplers] == [4, 4] == [len(sampler) for sampler in samplers]
    assert {index for sampler in samplers for index in sampler} == set(range(3, 10))
    first = list(samplers[0])
    samplers[0].set_epoch(1)
    assert list(samplers[0]) != first
    with pytest.raises(ValueError, match="below 10"):
        ElasticDistributedSampler(range(10), 2, 0, start_index=10)


def test_arguments_take_the_rank_of_the_worker(monkeypatch):
    assert utils.macros.substitute(["--rank", utils.macros.local_rank, 3], "1") == ["--rank", "1", 3]
    monkeypatch.setenv("SOME_NAME", "here")
    assert utils.get_env_variable_or_raise("SOME_NAME") == "here"
    monkeypatch.delenv("SOME_NAME")
    with pytest.raises(ValueError, match="SOME_NAME"):
        utils.get_env_variable_or_raise("SOME_NAME")


def test_metrics_reach_the_handler_of_their_group():
    received = []

    class Keeper(metrics.MetricHandler):
        def emit(self, metric_data):
            received.append((metric_data.group_name, metric_data.name, metric_data.value))

    metrics.configure(Keeper(), "own group")
    metrics.publish_metric("own group", "restarts", 2)
    assert received == [("own group", "restarts", 2)]


def test_modules_are_found_under_the_paths_of_their_parts():
    import importlib

    for path, name in {
        "elastic.rendezvous.api": "RendezvousInfo", "elastic.events.api": "Event",
        "_tensor.api": "DTensor", "elastic.multiprocessing.errors.error_handler": "ErrorHandler",
    }.items():  # fmt: skip
        assert hasattr(importlib.import_module(f"{fl.__name__}.distributed.{path}"), name)


def sleeps_after_its_deadline(queue, path):
    from flambeau.distributed.elastic import timer

    timer.configure(timer.LocalTimerClient(queue))
    with timer.expires(after=30):
        pass
    with timer.expires(after=0.2, scope="too long"):
        time.sleep(60)


def test_a_worker_that_is_late_is_ended():
    from flambeau.distributed.elastic import timer

    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    server = timer.LocalTimerServer(queue, max_interval=0.05)
    server.start()
    worker = context.Process(target=sleeps_after_its_deadline, args=(queue, None))
    worker.start()
    worker.join(60)
    server.stop()
    assert worker.exitcode == -signal.SIGKILL
    with pytest.raises(RuntimeError, match="configure timer client"), timer.expires(after=1):
        pass


def test_deadlines_over_a_named_pipe(tmp_path):
    from flambeau.distributed.elastic import timer

    path = str(tmp_path / "timers")
    server = timer.FileTimerServer(path, "run", max_interval=0.05)
    server.start()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    client = timer.FileTimerClient(path)
    with timer.expires(after=30, client=client):
        server.register_timers([timer.FileTimerRequest(sleeper.pid, "scope", time.time() - 1)])
        assert sleeper.wait(20) == -signal.SIGKILL
    server.stop()
    with pytest.raises(BrokenPipeError):
        client.acquire("scope", time.time() + 1)


def doubled_rank(factor):
    return factor * int(os.environ["RANK"])


def fails_once(folder):
    path = pathlib.Path(folder) / "tried"
    if int(os.environ["RANK"]) == 0 and not path.exists():
        path.write_text("")
        raise ValueError("not yet")
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def test_an_agent_runs_workers_and_restarts_them(tmp_path):
    from flambeau.distributed.elastic.agent.server import LocalElasticAgent, WorkerSpec, WorkerState

    spec = WorkerSpec(role="trainer", local_world_size=2, rdzv_handler=None, entrypoint=doubled_rank, args=(2,))
    agent = LocalElasticAgent(spec)
    result = agent.run()
    assert result.state == WorkerState.SUCCEEDED and not result.is_failed() and result.return_values == {0: 0, 1: 2}
    assert [worker.global_rank for worker in agent.get_worker_group().workers] == [0, 1]
    spec = WorkerSpec("trainer", 2, None, entrypoint=fails_once, args=(str(tmp_path),), max_restarts=1)
    assert LocalElasticAgent(spec).run().return_values == {0: 1, 1: 1}
    (tmp_path / "tried").unlink()
    spec = WorkerSpec("trainer", 2, None, entrypoint=fails_once, args=(str(tmp_path),), max_restarts=0)
    failed = LocalElasticAgent(spec).run()
    assert failed.is_failed() and 0 in failed.failures


def test_streams_of_the_process_go_to_files(tmp_path):
    from flambeau.distributed.elastic.multiprocessing.redirects import redirect_stdout

    with redirect_stdout(str(tmp_path / "out")):
        os.write(1, b"from below\n")
        subprocess.run(["echo", "from a child"], check=True)
    assert (tmp_path / "out").read_text() == "from below\nfrom a child\n"


def test_state_dicts_are_copied_and_compared():
    from flambeau.distributed import _state_dict_utils as utils

    state = {"w": fl.arange(4.0), "inner": [{"n": 3, "v": fl.ones(2)}]}
    fresh = utils._create_cpu_state_dict(state)
    assert utils._check_state_dict_similarity(state, fresh) and fresh["w"].data_ptr() != state["w"].data_ptr()
    copied = utils._copy_state_dict(state, fresh)
    assert copied["w"] is fresh["w"] and fl.equal(fresh["inner"][0]["v"], fl.ones(2))
    with pytest.raises(utils.CompanionMismatch):
        utils._copy_state_dict(state, {"w": fl.ones(4)})


def test_tables_of_schedules_are_read():
    from flambeau.distributed.pipelining import schedules

    action = schedules._Action.from_str("1F0")
    assert action == schedules._Action(1, schedules.FORWARD, 0) and str(action) == "1F0"
    assert schedules._Action.from_str("2SEND_B3") == schedules._Action(2, schedules.SEND_B, 3)
    assert schedules._Action.from_str("0UNSHARD").microbatch_index is None and schedules._Action.from_str("") is None
    with pytest.raises(RuntimeError, match="Invalid action string"):
        schedules._Action.from_str("F")


def test_values_are_exchanged_through_a_store():
    from flambeau.distributed import HashStore
    from flambeau.distributed.elastic.utils import store as exchange

    store = HashStore()
    results = [None] * 3

    def member(rank):
        results[rank] = exchange.synchronize(store, f"{rank}".encode(), rank, 3, "all", 20)
        exchange.barrier(store, 3, "end", 20, rank)

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[b"0", b"1", b"2"]] * 3
    with pytest.raises(RuntimeError, match=r"missing ranks: \[1\]"):
        exchange.barrier(store, 2, "alone", 0.05, rank=0)


def test_options_have_their_defaults_in_the_environment(monkeypatch):
    from argparse import ArgumentParser

    from flambeau.distributed.argparse_util import check_env, env

    monkeypatch.setenv("PET_COUNT", "3")
    monkeypatch.setenv("PET_LOUD", "1")
    parser = ArgumentParser()
    parser.add_argument("--count", action=env, type=int, required=True)
    parser.add_argument("--loud", action=check_env)
    parsed = parser.parse_args([])
    assert (parsed.count, parsed.loud, parser.parse_args(["--count", "4"]).count) == (3, True, 4)


def test_events_of_a_rendezvous_are_written_and_read():
    from flambeau.distributed.elastic.events import NodeState, RdzvEvent

    event = RdzvEvent("name", "job", "joined", "host", 1, NodeState.RUNNING, rank=2)
    assert RdzvEvent.deserialize(event.serialize()) == event


def test_reports_are_passed_on(tmp_path, monkeypatch):
    from flambeau.distributed.elastic.multiprocessing.errors import ErrorHandler

    (tmp_path / "worker.json").write_text('{"message": "boom"}')
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "own.json"))
    ErrorHandler().dump_error_file(str(tmp_path / "worker.json"))
    assert (tmp_path / "own.json").read_text() == '{"message": "boom"}'


def test_reentrant_checkpoints_take_keyword_arguments():
    import flambeau as fl
    from flambeau.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

    class Sum(fl.nn.Module):
        def forward(self, a, *, b):
            return a + 2 * b

    x = fl.ones(2, requires_grad=True)
    checkpoint_wrapper(Sum(), CheckpointImpl.REENTRANT)(x, b=x).sum().backward()
    assert x.grad.tolist() == [3, 3]
