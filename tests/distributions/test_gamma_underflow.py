"""Draws whose gamma variables underflow in single precision."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
def test_beta_samples_stay_inside(dtype):
    concentration = fl.tensor(1e-2, dtype=dtype)
    sample = fl.distributions.Beta(concentration, concentration).sample([5000])
    assert sample.min() > 0 and sample.max() < 1
    assert abs((sample < 0.1).float().mean() - 0.5) < 0.05
    drawn = fl._sample_dirichlet(concentration.expand(5000, 2))
    assert drawn.min() > 0 and drawn.max() < 1
