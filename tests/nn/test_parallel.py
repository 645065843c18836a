"""Dividing batches among devices and putting results together, on one device."""

from collections import namedtuple

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn.parallel import gather, parallel_apply, replicate, scatter
from flambeau.nn.parallel.scatter_gather import scatter_kwargs

Pair = namedtuple("Pair", "a b")


def test_scatter_divides_tensors_and_repeats_the_rest():
    x = fl.arange(6.0).reshape(3, 2)
    first, second = scatter({"x": [x, Pair(x, 1)], "y": "text"}, ["cpu", "cpu"])
    assert first["x"][0].tolist() == [[0, 1], [2, 3]] and second["x"][0].tolist() == [[4, 5]]
    assert isinstance(second["x"][1], Pair) and second["x"][1].b == 1 and second["y"] == "text"


def test_scatter_kwargs_fills_up():
    positional, named = scatter_kwargs((), {"x": fl.ones(4)}, ["cpu", "cpu"])
    assert positional == ((), ()) and [part["x"].shape for part in named] == [(2,), (2,)]


def test_gather_joins():
    parts = [{"x": fl.ones(2), "y": (fl.tensor(1.0), None)}, {"x": fl.zeros(1), "y": (fl.tensor(2.0), None)}]
    joined = gather(parts, "cpu")
    assert joined["x"].tolist() == [1, 1, 0] and joined["y"][0].tolist() == [1, 2] and joined["y"][1] is None


@pytest.mark.host
def test_replicas_compute_alike_and_their_gradients_reach_the_original():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False))
    x = fl.randn(8, 3)
    replicas = replicate(model, ["cpu", "cpu"])
    outputs = parallel_apply(replicas, scatter(x, ["cpu", "cpu"]))
    fl.testing.assert_close(gather(outputs, "cpu")[:4], model(x[:4]))
    (gather(outputs, "cpu") ** 3).sum().backward()
    assert model[0].weight.grad is not None and list(replicas[0].parameters()) == []
    with pytest.raises(AssertionError):
        parallel_apply(replicas, [x])
