"""Transformations called while no_grad is on: nothing of theirs is recorded for the levels around them."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.func import grad, grad_and_value, jacrev, jvp, vjp


def square_sum(y: fl.Tensor) -> fl.Tensor:
    return (y**2).sum()


TRANSFORMED = {
    "grad": lambda x: grad(square_sum)(x).sum(),
    "grad_and_value": lambda x: sum(t.sum() for t in grad_and_value(square_sum)(x)),
    "vjp": lambda x: vjp(square_sum, x)[1](fl.tensor(1.0))[0].sum(),
    "vjp value": lambda x: vjp(square_sum, x)[0],
    "jvp": lambda x: sum(t.sum() for t in jvp(square_sum, (x,), (fl.ones_like(x),))),
    "jacrev": lambda x: jacrev(square_sum)(x).sum(),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_no_grad_around_an_inner_transformation_hides_it_from_the_outer_one(name: str) -> None:
    def outer(x: fl.Tensor) -> fl.Tensor:
        with fl.no_grad():
            hidden = TRANSFORMED[name](x)
        return hidden + 3 * x.sum()

    assert grad(outer)(fl.ones(3)).tolist() == [3, 3, 3]


@pytest.mark.parametrize("name", TRANSFORMED)
def test_results_under_no_grad_do_not_require_grad(name: str) -> None:
    x = fl.ones(3, requires_grad=True)
    with fl.no_grad():
        assert not TRANSFORMED[name](x).requires_grad
    assert TRANSFORMED[name](x).requires_grad
