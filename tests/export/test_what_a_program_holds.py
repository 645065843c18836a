"""Constants under their names, stores that are left out, numbers as results, and programs that are exported again."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau import fx, nn
from flambeau.export import export


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.constant = fl.rand(2, requires_grad=True)

    def forward(self, x):
        return x + self.constant


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.same = self.inner.constant
        self.register_parameter("odd:name", nn.Parameter(fl.ones(2)))

    def forward(self, x):
        return self.inner(x) * self.same + getattr(self, "odd:name")


def test_constants_are_called_after_attributes():
    model, x = Model(), fl.rand(2)
    program = export(model, (x,))
    assert sorted(program.constants) == ["inner.constant", "same"]
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    assert names == ["p_odd_name", "c_same", "x"] or names == ["p_odd_name", "c_inner_constant", "x"]
    fl.testing.assert_close(program.module()(x), model(x))
    assert not any(value.requires_grad for value in program.constants.values())


def test_stores_of_plain_values_are_left_out_with_a_warning():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.last, self.table = 1, None, {"k": 2}

        def forward(self, x):
            self.calls = self.calls + 4
            self.table["k"] = self.table["k"] + 5
            self.last = x.shape
            return x + self.calls + self.table["k"]

    model = Counts()
    with pytest.warns(UserWarning, match="'calls' of Counts is not part of the program"):
        program = export(model, (fl.rand(2),))
    assert model.calls == 1 and model.last is None and model.table == {"k": 2}
    assert fl.equal(program.module()(fl.zeros(2)), fl.full((2,), 12.0))


def test_programs_know_that_they_are_exported_and_return_numbers():
    class Reads(nn.Module):
        def forward(self, x):
            return x.sum().item() if fl.compiler.is_exporting() else None

    assert export(Reads(), (fl.ones(3),)).module()(fl.full((3,), 2.0)) == 6.0
    assert not fl.compiler.is_exporting()


def test_arguments_by_keyword_only_and_any_number():
    class Sums(nn.Module):
        def forward(self, x, *more, scale, **rest):
            return (x + sum(more)) * scale + rest["shift"]

    args, kwargs = (fl.ones(2), fl.ones(2), fl.ones(2)), {"scale": fl.tensor(2.0), "shift": fl.tensor(1.0)}
    assert fl.equal(export(Sums(), args, kwargs).module()(*args, **kwargs), fl.full((2,), 7.0))


@pytest.mark.parametrize("strict", [False, True])
def test_graph_modules_are_captured(strict):
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), fl.rand(3, 2)
    traced = fx.symbolic_trace(model)
    assert fl.equal(export(traced, (x,), strict=strict).module()(x), model(x))
    again = export(export(model, (x,)).module(), (x,), strict=strict)
    fl.testing.assert_close(again.module()(x), model(x))
    fl.testing.assert_close(fl.compile(fx.symbolic_trace(model), fullgraph=True)(x), model(x))
