"""Derivatives of derivatives that do not depend on the input are zero, not absent."""

import pytest

import flambeau as fl

F = fl.nn.functional
CASES = [
    lambda x: F.max_pool2d(x, 2),
    lambda x: F.avg_pool2d(x, 2),
    lambda x: F.adaptive_avg_pool2d(x, 3),
    lambda x: F.adaptive_max_pool2d(x, 3),
    lambda x: F.nll_loss(x.flatten(1), fl.tensor([1, 2])),
]


@pytest.mark.parametrize("function", CASES)
def test_gradients_of_choices_have_zero_derivatives(function):
    x = fl.arange(32.0).view(2, 1, 4, 4).requires_grad_()
    (first,) = fl.autograd.grad(function(x).sum(), x, create_graph=True)
    assert first.requires_grad
    (second,) = fl.autograd.grad(first.sum(), x)
    assert second.shape == x.shape and not second.any()


def test_what_follows_is_differentiated():
    x = fl.arange(16.0).view(1, 1, 4, 4).requires_grad_()
    (first,) = fl.autograd.grad((F.avg_pool2d(x, 2) ** 2).sum(), x, create_graph=True)
    (second,) = fl.autograd.grad(first.sum(), x)
    assert fl.allclose(second, fl.full_like(x, 0.5))
    assert fl.autograd.gradgradcheck(lambda x: F.max_pool2d(x, 2).sin(), x.double().detach().requires_grad_())


def test_nothing_is_recorded_without_need():
    x = fl.ones(1, 1, 4, 4, requires_grad=True)
    (first,) = fl.autograd.grad(F.avg_pool2d(x, 2).sum(), x)
    assert not first.requires_grad and first.grad_fn is None
