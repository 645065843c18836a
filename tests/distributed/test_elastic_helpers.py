"""Helpers of jobs whose number of processes changes."""

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
