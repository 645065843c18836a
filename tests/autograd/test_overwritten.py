"""A tensor that is overwritten by a constant has the gradient zero, and its history keeps a gradient."""

from __future__ import annotations

import pytest

import flambeau as fl

OVERWRITES = {
    "zero_": lambda y: y.zero_(),
    "fill_": lambda y: y.fill_(2.0),
    "fill_ by a tensor": lambda y: y.fill_(fl.tensor(2.0)),
    "copy_": lambda y: y.copy_(fl.ones(3)),
    "assignment": lambda y: y.__setitem__(slice(None), 1.0),
    "masked_fill_": lambda y: y.masked_fill_(fl.ones(3, dtype=fl.bool), 0.0),
    "normal_": lambda y: y.normal_(),
    "eq_": lambda y: y.eq_(1),
}


@pytest.mark.parametrize("name", OVERWRITES)
@pytest.mark.parametrize("create_graph", [False, True])
def test_history_of_an_overwritten_tensor_gets_zeros(name: str, create_graph: bool) -> None:
    x = fl.ones(3, requires_grad=True)
    y = x * 2
    OVERWRITES[name](y)
    y.sum().backward(create_graph=create_graph)
    assert x.grad is not None and x.grad.tolist() == [0, 0, 0]


def test_a_copied_source_still_gets_its_gradient() -> None:
    x, source = fl.ones(3, requires_grad=True), fl.ones(3, requires_grad=True)
    y = x * 2
    y.copy_(source)
    (y * 3).sum().backward()
    assert x.grad.tolist() == [0, 0, 0] and source.grad.tolist() == [3, 3, 3]


@pytest.mark.parametrize("fast_mode", [False, True])
def test_gradcheck_moves_the_inputs_themselves(fast_mode: bool) -> None:
    """The function below reads its input by another way than its argument."""
    x = fl.randn(3, dtype=fl.double, requires_grad=True)
    assert fl.autograd.gradcheck(lambda ignored: x * x, (x,), fast_mode=fast_mode)
    with pytest.raises(RuntimeError, match="stride 0"):
        fl.autograd.gradcheck(lambda t: t * t, (x.detach().expand(2, 3).requires_grad_(),), fast_mode=fast_mode)
