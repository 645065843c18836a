"""Operators over functions that programs derive."""

import pytest

import flambeau as fl
from flambeau._ops import HigherOrderOperator


class Total(HigherOrderOperator):
    def __init__(self):
        super().__init__("total")

    def __call__(self, x, dim):
        return super().__call__(x, dim)


def test_an_own_operator_is_differentiated_and_batched_as_it_stands():
    total = Total()
    with pytest.raises(NotImplementedError, match="total"):
        total(fl.ones(2), 0)

    @total.py_impl(fl._C.DispatchKey.AutogradCPU)
    def run(x, dim):
        return fl.sum(x, dim)

    x = fl.randn(2, 3)
    assert fl.equal(total(x, 1), x.sum(1))
    assert fl.equal(fl.func.grad(total)(fl.randn(3), 0), fl.ones(3))
    assert fl.equal(fl.vmap(total, (0, None))(x, 0), x.sum(1))
