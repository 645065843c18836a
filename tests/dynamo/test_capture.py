"""compile(): the first things a user tries."""

import pytest

import flambeau as fl


def compiled(function, **options):
    return fl.compile(function, backend="eager", **options)


def test_a_function_of_tensors():
    def f(x, y):
        return fl.relu(x + 1) * y

    x, y = fl.randn(3, 4), fl.randn(3, 4)
    assert fl.equal(compiled(f, fullgraph=True)(x, y), f(x, y))


def test_a_module_keeps_its_state_dict_keys():
    model = fl.nn.Sequential(fl.nn.Linear(4, 5), fl.nn.ReLU(), fl.nn.Linear(5, 2))
    fast = compiled(model, fullgraph=True)
    x = fl.randn(3, 4)
    assert fl.equal(fast(x), model(x))
    assert list(fast.state_dict()) == list(model.state_dict())
    assert isinstance(fast, fl.nn.Sequential)


def test_a_branch_on_a_tensor_breaks_the_graph():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y.sin()
        return y.cos()

    fast = compiled(f)
    for x in (fl.ones(3), -fl.ones(3)):
        assert fl.equal(fast(x), f(x))
    with pytest.raises(fl._dynamo.breaks.GraphBreakError, match="GB0001"):
        compiled(f, fullgraph=True)(fl.ones(3))


def test_explain_counts():
    def f(x):
        y = x + 1
        fl._dynamo.graph_break()
        return y * 2

    told = fl._dynamo.explain(f)(fl.ones(2))
    assert (told.graph_count, told.graph_break_count, told.op_count) == (2, 1, 2)
