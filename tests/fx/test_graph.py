"""Graphs, nodes, graph modules and interpreters."""

import copy
import operator
import pickle

import pytest

import flambeau as fl
from flambeau import fx
from flambeau.fx.verifier import GraphError


def chain():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(fl.relu, (x,))
    b = graph.call_method("neg", (a,))
    graph.output(b)
    return graph, x, a, b


class Model(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = fl.nn.Parameter(fl.arange(3.0))
        self.register_buffer("shift", fl.ones(3))

    def forward(self, x, scale: int = 2):
        first, second = x.split(2)
        y = fl.relu(self.weight * scale + x.sum()) + self.shift
        y += 1
        return {"y": y.view(-1)[0:2], "parts": (first, second), "power": 2**y}


def same(a, b):
    if isinstance(a, fl.Tensor):
        return bool((a == b).all())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


@pytest.fixture
def traced():
    model = Model()
    return model, fx.symbolic_trace(model)


def test_traced_module_computes_what_the_module_does(traced):
    model, module = traced
    x = fl.randn(4)
    assert same(module(x), model(x))
    assert same(module(x, 3), model(x, 3))
    module.graph.lint()


def test_printed_code_is_what_runs(traced):
    model, module = traced
    scope = {"torch": fl}
    exec(module.code, scope)
    x = fl.randn(4)
    assert same(scope["forward"](module, x), model(x))


def test_copies_and_pickles_compute_the_same(traced):
    model, module = traced
    x = fl.randn(4)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), fx.Transformer(module).transform()):
        assert twin is not module
        assert twin.graph is not module.graph
        twin.graph.lint()
        assert same(twin(x), model(x))
        assert twin.code == module.code


def test_interpreter_agrees_and_frees_values(traced):
    model, module = traced
    x = fl.randn(4)
    interpreter = fx.Interpreter(module)
    assert same(interpreter.run(x), model(x))
    assert len(interpreter.env) == 5  # what the output holds, and the output
    arguments = [x, 2]
    assert same(interpreter.boxed_run(arguments), model(x))
    assert arguments == []


def test_interpreter_says_which_node_failed():
    module = fx.symbolic_trace(lambda x: fl.relu(x).view(3, 3))
    with pytest.raises(RuntimeError) as caught:
        fx.Interpreter(module).run(fl.ones(4))
    assert any("%view" in note for note in caught.value.__notes__)


def test_users_follow_changes_of_arguments():
    graph, x, a, b = chain()
    assert list(x.users) == [a]
    b.args = (x,)
    assert list(x.users) == [a, b]
    assert not a.users
    graph.erase_node(a)
    assert [n.name for n in graph.nodes] == ["x", "neg", "output"]
    graph.lint()


def test_erasing_a_used_node_is_refused():
    graph, _, a, _ = chain()
    with pytest.raises(RuntimeError, match="without users"):
        graph.erase_node(a)


def test_insertion_points():
    graph, x, a, b = chain()
    with graph.inserting_before(a):
        first = graph.call_function(fl.sin, (x,))
    with graph.inserting_after(a):
        second = graph.call_function(fl.cos, (a,))
    assert [n.name for n in graph.nodes] == ["x", "sin", "relu", "cos", "neg", "output"]
    assert first < a < second < b
    a.replace_all_uses_with(second, delete_user_cb=lambda user: user is not second)
    assert b.args == (second,)
    assert second.args == (a,)


def test_arguments_cannot_be_changed_in_place():
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(fl.cat, ([x, x],), {"dim": 0})
    with pytest.raises(TypeError, match="in place"):
        node.args[0].append(x)
    with pytest.raises(TypeError):
        node.kwargs["dim"] = 1


def test_names_are_legal_and_fresh():
    graph = fx.Graph()
    names = [
        graph.placeholder(wish).name for wish in ("x", "x", "sum", "class", "a.b", "layers.0", "layers.0", "*args")
    ]
    assert names == ["x", "x_1", "sum_1", "class_1", "a_b", "layers_0", "layers_1", "_args"]


def test_dead_code_goes_and_effects_stay():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(fl.relu, (x,))
    written = graph.call_method("add_", (x, 1))
    graph.call_function(operator.setitem, (x, 0, 1.0))
    graph.output(x)
    assert graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "add_", "setitem", "output"]
    assert not written.users


@pytest.mark.parametrize(
    "breach, rule",
    [
        (lambda g, x, a, b: b._input_nodes.clear(), "users_are_recorded"),
        (lambda g, x, a, b: x.prepend(a), "values_are_defined_before_use"),
        (lambda g, x, a, b: setattr(a, "name", "x"), "names_are_unique"),
        (lambda g, x, a, b: setattr(a, "target", "relu"), "targets_fit_kinds"),
        (lambda g, x, a, b: setattr(a, "op", "call"), "kinds_are_known"),
        (lambda g, x, a, b: g.call_function(fl.sin, (b,)), "output_is_last"),
        (lambda g, x, a, b: setattr(a, "graph", fx.Graph()), "nodes_belong_to_graph"),
        (lambda g, x, a, b: setattr(g, "_len", 7), "list_is_linked"),
    ],
)
def test_verifier_names_the_rule(breach, rule):
    graph, x, a, b = chain()
    graph.lint()
    breach(graph, x, a, b)
    with pytest.raises(GraphError) as caught:
        graph.lint()
    assert rule in {name for name, _ in caught.value.breaches}


def test_verifier_finds_missing_modules(traced):
    _, module = traced
    with module.graph.inserting_before(module.graph.output_node()):
        module.graph.create_node("call_module", "nowhere.at_all", (module.graph.find_nodes(op="placeholder")[0],))
    with pytest.raises(GraphError, match="paths_lead_somewhere"):
        module.graph.lint()


def test_powers_of_negative_numbers_keep_their_brackets():
    assert fx.symbolic_trace(lambda n: (-2) ** n)(2) == 4


@pytest.mark.parametrize("value", [complex(-0.0, 1), complex(1, -0.0), complex(0, float("inf")), complex(float("nan"), -float("inf")), 2 - 1j])  # fmt: skip
def test_complex_constants_are_printed_as_they_are(value):
    graph = fx.Graph()
    graph.output(graph.call_function(complex, (value,)))
    assert repr(fx.GraphModule({}, graph)()) == repr(value)


def test_in_place_on_a_number_leaves_the_number():
    def f(x):
        y = x
        y += 1
        return x, y

    assert fx.symbolic_trace(f)(5) == (5, 6)


def test_graph_module_from_a_dict():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(operator.add, (x, graph.get_attr("inner.shift"))))
    module = fx.GraphModule({"inner.shift": fl.ones(2)}, graph)
    assert module(fl.zeros(2)).tolist() == [1, 1]
    assert "inner.shift" in module.state_dict()


def test_rewriting_relu_to_gelu_by_hand():
    module = fx.symbolic_trace(lambda x: fl.relu(x) + 1)
    for node in module.graph.nodes:
        if node.target is fl.relu:
            node.target = fl.nn.functional.gelu
    module.recompile()
    x = fl.randn(5)
    assert same(module(x), fl.nn.functional.gelu(x) + 1)
    assert "torch.nn.functional.gelu" in module.code
