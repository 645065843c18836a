"""Second derivatives of operators that wrote to a view and saved their result."""

import pytest

import flambeau as fl
from flambeau.autograd import gradcheck, gradgradcheck

VIEWS = {
    "view": lambda x: x.view(-1),
    "select": lambda x: x[0],
    "transpose": lambda x: x.t(),
    "twice": lambda x: x.t()[1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["relu_", "exp_", "sigmoid_", "tanh_"])
def test_a_result_that_was_saved_has_the_history_of_the_view(name, view):
    x = fl.randn(2, 3, dtype=fl.float64, requires_grad=True)

    def written(x):
        y = VIEWS[view](x * 1)
        getattr(y, name)()
        return y.pow(2)

    assert gradcheck(written, (x,)) and gradgradcheck(written, (x,))


def test_the_graph_is_freed_by_its_last_pass_alone():
    layers = fl.nn.Sequential(fl.nn.InstanceNorm2d(2), fl.nn.ReLU(True))
    x = fl.randn(2, 2, 3, 3, requires_grad=True)
    (gradient,) = fl.autograd.grad(layers(x).pow(2).sum(), x, create_graph=True)
    assert fl.autograd.grad(gradient.sum(), x)[0].shape == x.shape
    with pytest.raises(RuntimeError, match="second time"):
        fl.autograd.grad(gradient.sum(), x)
