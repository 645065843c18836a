"""`jit.freeze`: what stays an attribute, what becomes a constant, and arithmetic that is done once."""

import pytest

import flambeau as torch
from flambeau import Tensor, nn


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.step, self.count = 2, 0

    def forward(self, x: Tensor):
        self.count += self.step
        return x + self.count


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.counter, self.layer, self.scale = Counter(), nn.Linear(3, 3), 1.5

    def forward(self, x: Tensor):
        return self.layer(self.counter(x)) * self.scale

    @torch.jit.export
    def scaled(self, x: Tensor):
        return x * self.scale


def frozen(model, *preserved):
    return torch.jit.freeze(torch.jit.script(model.eval()), list(preserved))


class Configured(nn.Module):
    def __init__(self):
        super().__init__()
        self.options = {"scale": 1.5}

    def forward(self, x):
        for _ in range(2):
            x = x * self.options["scale"]
        return x


def test_dicts_stay_attributes():
    frozen = torch.jit.freeze(torch.jit.script(Configured().eval()))
    assert frozen(torch.ones(1)).tolist() == [2.25]


def test_only_what_is_written_to_stays():
    model = Model()
    made = frozen(model)
    assert not list(made.parameters()) and not made._c.hasattr("scale")
    assert made._c.hasattr("counter") and not made._c.counter.hasattr("step")
    x = torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(made(x), model(x))


def test_methods_and_attributes_of_submodules_are_preserved():
    made = frozen(Model(), "scaled", "counter.step")
    assert made._c.counter.hasattr("step") and torch.equal(made.scaled(torch.ones(1)), torch.tensor([1.5]))
    with pytest.raises(RuntimeError, match="counter"):
        frozen(Model(), "counter.nothing")


class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear, self.last = (
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.Linear(6, 5),
            nn.BatchNorm1d(5),
        )
        self.register_buffer("shift", torch.randn(1, 4, 1, 1))

    def forward(self, x: Tensor):
        x = self.norm(self.conv(x) * 2 + self.shift)
        return self.last(self.linear(x.flatten(2)[:, 0]))


def test_arithmetic_after_layers_becomes_part_of_their_weights():
    model = Folded()
    for norm in (model.norm, model.last):
        norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2)
    made, x = frozen(model), torch.randn(2, 3, 4, 5)
    kinds = [node.kind() for node in made.graph.nodes()]
    assert not {"aten::batch_norm", "aten::mul", "aten::add"} & set(kinds)
    torch.testing.assert_close(made(x), model(x))


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Behind(nn.Module):
    step: Step

    def __init__(self):
        super().__init__()
        self.step = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x)


def test_calls_of_interfaces_are_inlined():
    made = frozen(Behind())
    assert [n.kind() for n in made.graph.nodes()] == ["aten::relu"]


@torch.jit.script
class Scale:
    def __init__(self, factor: float):
        self.factor = factor

    def apply(self, x: Tensor) -> Tensor:
        return x * self.factor


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale(3.0)

    def forward(self, x):
        return self.scale.apply(x)


def test_attributes_of_objects_become_constants():
    frozen = torch.jit.freeze(torch.jit.script(Scaled().eval()))
    assert frozen(torch.ones(1)).tolist() == [3]
    assert frozen.graph.findNode("prim::GetAttr") is None
