"""Functions that are recorded without writes."""

import pytest

import flambeau as fl
from flambeau.func import functionalize
from flambeau.fx.experimental.proxy_tensor import make_fx


def adds_to_a_view(x):
    x.view(-1).add_(fl.ones(4))
    return x * 2


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_a_recorded_call_writes_to_its_argument_at_the_end_alone(remove):
    x, y = fl.zeros(2, 2), fl.zeros(2, 2)
    graph_module = make_fx(functionalize(adds_to_a_view, remove=remove))(x)
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    written = [str(node.target) for node in graph_module.graph.nodes if str(node.target).split(".")[1:2] == ["copy_"]]
    assert written == ["aten.copy_.default"] and "add_" not in graph_module.code
    assert graph_module(y).tolist() == [[2.0, 2.0], [2.0, 2.0]] and y.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_arguments_may_change_their_size():
    def fill(x):
        x.resize_(3)
        x.fill_(2)

    graph_module, x = make_fx(functionalize(fill))(fl.zeros(0)), fl.zeros(0)
    graph_module(x)
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_containers_go_in_and_come_out():
    def swap(pair, *, scale):
        pair["a"].mul_(scale)
        return {"b": pair["a"] + pair["b"]}

    pair = {"a": fl.ones(2), "b": fl.ones(2)}
    graph_module = make_fx(lambda pair: functionalize(swap)(pair, scale=3))(pair)
    assert pair["a"].tolist() == [3.0, 3.0]
    assert graph_module({"a": fl.ones(2), "b": fl.ones(2)})["b"].tolist() == [4.0, 4.0]
