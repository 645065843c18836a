"""Modules of a program again: signatures that were preserved, shared and repeatedly called submodules."""

import io

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.export import Dim, export, load, save, unflatten


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, pair, *, scale):
        return {"a": self.layer(x) * scale, "b": (x + pair[0], pair[1])}


class Top(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.sub = Scaled()

    def forward(self, x):
        found = self.sub(self.first(x), [x, x * 2], scale=x.sum())
        return found["a"] + found["b"][0] + found["b"][1]


class Swapped(nn.Module):
    def forward(self, x, pair, *, scale):
        return {"a": x * 100, "b": (pair[0], pair[1])}


@pytest.mark.parametrize("how", ["exported", "loaded", "decomposed"])
def test_a_preserved_signature_is_that_of_the_original(how):
    model, x = Top(), fl.randn(2, 3)
    program = export(model, (x,), preserve_module_call_signature=("sub",))
    if how == "loaded":
        file = io.BytesIO()
        save(program, file)
        file.seek(0)
        program = load(file)
    elif how == "decomposed":
        program = program.run_decompositions()
    (entry,) = (entry for entry in program.module_call_graph if entry.fqn == "sub")
    assert len(entry.signature.inputs) == 4 and len(entry.signature.outputs) == 3
    modules = unflatten(program)
    assert fl.allclose(modules(x), model(x), atol=1e-6)
    arguments, scale = (x, [x * 3, x * 4]), fl.tensor(2.0)
    expected, actual = model.sub(*arguments, scale=scale), modules.sub(*arguments, scale=scale)
    assert fl.allclose(expected["a"], actual["a"], atol=1e-6) and fl.equal(expected["b"][1], actual["b"][1])
    model.sub = modules.sub = Swapped()
    assert fl.allclose(modules(x), model(x), atol=1e-5)


def names(module):
    return [name for name, _ in module.named_modules(remove_duplicate=False)]


def test_shared_and_repeated_modules_are_one():
    shared = nn.Linear(3, 3)
    for model in (
        nn.Sequential(shared, nn.ReLU(), shared),
        nn.Sequential(nn.Sequential(shared), nn.Sequential(shared)),
    ):
        x = fl.randn(2, 3)
        modules = unflatten(export(model, (x,)))
        assert fl.allclose(modules(x), model(x), atol=1e-6)
        assert sorted(modules.state_dict()) == sorted(model.state_dict())
        assert sorted(names(modules)) == sorted(names(model))
    modules = unflatten(export(nn.Sequential(shared, nn.ReLU(), shared), (fl.randn(2, 3),)))
    assert modules.get_submodule("0") is modules.get_submodule("2")


def test_a_module_that_is_called_twice_is_called_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(self.layer(x).relu())

    model, x = Twice(), fl.randn(2, 3)
    modules = unflatten(export(model, (x,)))
    assert fl.allclose(modules(x), model(x), atol=1e-6) and names(modules) == ["", "layer"]
    assert [n.target for n in modules.graph.nodes if n.op == "call_module"] == ["layer", "layer"]


def test_modules_are_in_the_order_of_the_original_with_their_classes():
    model = nn.Sequential(nn.ReLU(), nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4)), nn.Sigmoid())
    modules = unflatten(export(model, (fl.randn(2, 3),), dynamic_shapes=({0: Dim("batch")},)))
    assert names(modules) == names(model)
    assert modules.get_submodule("2.1").type_name() == "torch.nn.modules.linear.Linear"
    assert modules(fl.randn(5, 3)).shape == (5, 4)


class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, *, k):
        return {"out": self.layer(x) * k, "in": x}


class CalledTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Weighed(), Weighed()

    def forward(self, x):
        y = self.first(x, k=fl.ones(1))["out"]
        y = self.second(y, k=fl.ones(1) * 2)["out"]
        return y + self.first(y, k=fl.ones(1))["out"]


@pytest.mark.parametrize("preserved", [(), ("first",)])
def test_modules_that_hold_others_are_shared_between_calls(preserved):
    model, x = CalledTwice(), fl.ones(1, 2)
    program = export(model, (x,), preserve_module_call_signature=preserved)
    parts = unflatten(program)
    assert [name for name, _ in parts.named_modules()] == ["", "first", "first.layer", "second", "second.layer"]
    assert fl.equal(parts(x), model(x))
