"""Distributions held against themselves: moments of samples, densities that sum to one, quantiles, gradients, shapes."""

import math

import pytest

import flambeau as fl
import flambeau.distributions as d


def double(*values):
    return fl.tensor(values, dtype=fl.float64)


CONTINUOUS = {  # on the real line: the distribution and the range that holds nearly all of it
    "normal": (d.Normal(double(0.5), 1.5), -15, 15),
    "laplace": (d.Laplace(double(0.5), 0.8), -25, 25),
    "uniform": (d.Uniform(double(-1.0), 2.0), -1, 2),
    "student": (d.StudentT(double(7.0), 0.3, 1.1), -60, 60),
    "gumbel": (d.Gumbel(double(0.5), 1.0), -8, 40),
    "gamma": (d.Gamma(double(2.5), 1.5), 0, 30),
    "chi2": (d.Chi2(double(5.0)), 0, 80),
    "exponential": (d.Exponential(double(1.5)), 0, 30),
    "beta": (d.Beta(double(2.0), 3.5), 0, 1),
    "kumaraswamy": (d.Kumaraswamy(double(2.0), 3.5), 0, 1),
    "continuous bernoulli": (d.ContinuousBernoulli(double(0.3)), 0, 1),
    "half normal": (d.HalfNormal(double(1.5)), 0, 15),
    "log normal": (d.LogNormal(double(0.1), 0.4), 1e-6, 30),
    "weibull": (d.Weibull(double(1.5), 2.0), 1e-6, 20),
    "generalized pareto": (d.GeneralizedPareto(double(0.0), 1.0, -0.2), 0, 5),
    "inverse gamma": (d.InverseGamma(double(6.0), 3.0), 1e-3, 60),
    "von mises": (d.VonMises(double(0.5), 2.0), -math.pi, math.pi),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_densities_integrate_to_one(name):
    p, low, high = CONTINUOUS[name]
    n = 200_000
    x = (fl.arange(n, dtype=fl.float64) + 0.5) * ((high - low) / n) + low
    density = p.log_prob(x).exp()
    assert density.sum().item() * (high - low) / n == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if name != "von mises"])
def test_moments_of_samples(name):
    p = CONTINUOUS[name][0]
    fl.manual_seed(1)
    sample = p.sample((100_000,))
    spread = p.stddev.item()
    assert sample.mean().item() == pytest.approx(p.mean.item(), abs=0.03 * spread)
    assert sample.var().item() == pytest.approx(p.variance.item(), rel=0.12)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_invert_the_cumulative_distribution(name):
    p = CONTINUOUS[name][0]
    u = fl.linspace(0.05, 0.95, 7, dtype=fl.float64)
    try:
        x = p.icdf(u)
    except NotImplementedError:
        return
    assert fl.allclose(p.cdf(x), u, atol=1e-6)


@pytest.mark.parametrize(
    "p",
    [
        d.Bernoulli(double(0.3)),
        d.Binomial(7, double(0.3)),
        d.Geometric(double(0.4)),
        d.Poisson(double(3.5)),
        d.NegativeBinomial(double(2.5), double(0.4)),
    ],
    ids=lambda p: type(p).__name__,
)
def test_counts(p):
    last = {"Bernoulli": 2, "Binomial": 8}.get(type(p).__name__, 120)
    k = fl.arange(last, dtype=fl.float64)
    mass = p.log_prob(k).exp()
    mean = (mass * k).sum()
    assert mass.sum().item() == pytest.approx(1, abs=1e-6)
    assert mean.item() == pytest.approx(p.mean.item(), rel=1e-5)
    assert (mass * (k - mean) ** 2).sum().item() == pytest.approx(p.variance.item(), rel=1e-4)
    fl.manual_seed(2)
    assert p.sample((50_000,)).mean().item() == pytest.approx(p.mean.item(), rel=0.05)


def test_classes():
    probs = double([0.2, 0.3, 0.5], [0.6, 0.3, 0.1])
    fl.manual_seed(3)
    for p in (d.OneHotCategorical(probs), d.Multinomial(5, probs)):
        assert fl.allclose(p.sample((20_000,)).mean(0), p.mean, atol=0.05)
    assert d.Categorical(probs).sample((4, 5)).shape == (4, 5, 2)


def test_multivariate_samples_have_the_covariance():
    covariance = double([2.0, 0.5], [0.5, 1.0])
    fl.manual_seed(4)
    for p in (
        d.MultivariateNormal(double(1.0, -1.0), covariance),
        d.MultivariateNormal(double(1.0, -1.0), precision_matrix=fl.linalg.inv(covariance)),
        d.LowRankMultivariateNormal(double(1.0, -1.0), double([1.0], [0.5]), double(1.0, 0.75)),
    ):
        assert fl.allclose(p.covariance_matrix, covariance)
        sample = p.sample((50_000,))
        assert fl.allclose(fl.cov(sample.T), covariance, atol=0.06)
    wishart = d.Wishart(4.0, covariance)
    assert fl.allclose(wishart.sample((20_000,)).mean(0), wishart.mean, atol=0.2)


def test_gradients_of_gamma_samples_keep_the_mean():
    """The derivative of the mean by the parameter, from derivatives of samples."""
    fl.manual_seed(5)
    shape = double(0.4, 1.0, 6.0).requires_grad_()
    d.Gamma(shape, 2.0).rsample((40_000,)).mean(0).sum().backward()
    assert fl.allclose(shape.grad, fl.full_like(shape, 0.5), atol=0.03)
    a = double(2.0).requires_grad_()
    d.Beta(a, 3.0).rsample((40_000,)).mean().backward()
    assert a.grad.item() == pytest.approx(3 / 25, abs=0.01)


def test_divergence_of_samples():
    p, q = d.Gamma(double(2.0), 1.5), d.Gamma(double(3.0), 1.0)
    fl.manual_seed(6)
    x = p.sample((50_000,))
    assert (p.log_prob(x) - q.log_prob(x)).mean().item() == pytest.approx(d.kl_divergence(p, q).item(), abs=0.02)


def test_jacobians_by_differentiation():
    x = double(0.3, -0.7, 1.2)
    for transform in (d.StickBreakingTransform(), d.CorrCholeskyTransform()):
        jacobian = fl.autograd.functional.jacobian(lambda v, t=transform: t(v), x).reshape(-1, 3)
        free = jacobian[:3] if isinstance(transform, d.StickBreakingTransform) else jacobian[[3, 6, 7]]
        assert fl.allclose(fl.linalg.slogdet(free).logabsdet, transform.log_abs_det_jacobian(x, transform(x)))


def test_shapes_expand_without_copies():
    p = d.Independent(d.Normal(fl.zeros(4, 3), 1.0), 1)
    assert (p.batch_shape, p.event_shape) == ((4,), (3,))
    wide = p.expand((2, 4))
    assert wide.sample((5,)).shape == (5, 2, 4, 3)
    assert wide.base_dist.loc.data_ptr() == p.base_dist.loc.data_ptr()


def test_validation_can_be_switched_off():
    with pytest.raises(ValueError, match=r"\[Normal\] expected parameter scale"):
        d.Normal(0.0, -1.0)
    d.Normal(0.0, -1.0, validate_args=False)
    try:
        d.Distribution.set_default_validate_args(False)
        d.Normal(0.0, -1.0)
    finally:
        d.Distribution.set_default_validate_args(True)


def test_modules_have_pytorchs_names():
    from flambeau.distributions.normal import Normal

    assert Normal is d.Normal


def test_support_of_counts_is_named_alone():
    assert repr(d.Multinomial(4, fl.ones(3) / 3).support) == "Multinomial()"
