"""Draws whose gamma variables underflow in single precision."""

from __future__ import annotations

import flambeau as fl
from flambeau.distributions import Beta, Dirichlet


def test_beta_of_tiny_concentrations_is_almost_always_near_a_bound() -> None:
    fl.manual_seed(0)
    draws = Beta(0.01, 0.01).sample((10000,))
    assert (draws == 0.5).sum() == 0
    assert abs((draws > 0.5).double().mean().item() - 0.5) < 0.03
    # P(0.01 < x < 0.99) = 0.045 for this density.
    assert ((draws > 0.01) & (draws < 0.99)).double().mean() < 0.07


def test_dirichlet_operator_sums_to_one_where_draws_underflow() -> None:
    fl.manual_seed(0)
    rows = fl._sample_dirichlet(fl.full((1000, 3), 1e-3))
    fl.testing.assert_close(rows.sum(-1), fl.ones(1000))
    assert (rows.amax(-1) > 0.9).double().mean() > 0.9


def test_gradients_flow_through_small_and_large_concentrations() -> None:
    fl.manual_seed(0)
    concentration = fl.tensor([0.5, 1.0, 3.0], requires_grad=True)
    draws = Dirichlet(concentration).rsample((20000,))
    draws[:, 0].mean().backward()
    # The mean of the first is a0 / total.
    total = 4.5
    expected = fl.tensor([(total - 0.5) / total**2, -0.5 / total**2, -0.5 / total**2])
    fl.testing.assert_close(concentration.grad, expected, atol=0.01, rtol=0.1)
