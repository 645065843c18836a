"""Models and inputs without data are exported as tensors of the same geometry."""

import pytest

import flambeau as fl
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.ops.symbolic import ShapeEnv


class Scaled(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = fl.nn.Parameter(fl.randn(4, 4))
        self.shift = fl.nn.Buffer(fl.randn(4), persistent=False)

    def forward(self, x):
        return x @ self.weight + self.shift


def test_a_model_of_fakes_keeps_them_as_its_state():
    with FakeTensorMode(shape_env=ShapeEnv(tracked_fakes=[])):
        model = Scaled()
    program = fl.export.export(model, (fl.randn(2, 4),))
    assert isinstance(program.state_dict["weight"], FakeTensor)
    assert isinstance(model.weight, FakeTensor)


@pytest.mark.parametrize("inside", [True, False])
def test_inputs_may_be_fakes(inside):
    mode = FakeTensorMode()
    with mode:
        model, x = Scaled(), fl.randn(2, 4)
        if inside:
            program = fl.export.export(model, (x,))
    if not inside:
        program = fl.export.export(model, (x,))
    program = program.run_decompositions()
    assert [spec.arg.name for spec in program.graph_signature.input_specs] == ["p_weight", "b_shift", "x"]


def test_a_program_gets_another_graph():
    program = fl.export.export(Scaled(), (fl.randn(2, 4),))
    other = program._update(program.graph_module, program.graph_signature)
    x = fl.randn(2, 4)
    assert other is not program
    assert fl.equal(other.module()(x), program.module()(x))
