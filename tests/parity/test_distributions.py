"""Distributions held against PyTorch's: densities, moments, quantiles, entropies, divergences, supports, gradients."""

import math
import pickle

import pytest

import flambeau as fl
import flambeau.distributions as ours

torch = pytest.importorskip("torch")
theirs = torch.distributions

MATRIX = [[2.0, 0.5, 0.1], [0.5, 1.5, 0.2], [0.1, 0.2, 1.0]]
FACTOR = [[1.0, 0.0, 0.0], [0.5, 1.5, 0.0], [0.1, -0.2, 0.7]]
SIMPLEX = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
LOGITS = [[0.5, -1.0, 2.0], [0.0, 0.1, 0.2]]
POSITIVE = [0.3, 1.0, 2.5]
REAL = [-1.0, 0.4, 2.0]

# Name, parameters (lists become tensors), values.
CASES = [
    ("Bernoulli", {"probs": [0.2, 0.5, 0.9]}, [0.0, 1.0, 1.0]),
    ("Bernoulli", {"logits": REAL}, [0.0, 1.0, 1.0]),
    ("Bernoulli", {"probs": 0.3}, [0.0, 1.0]),
    ("Beta", {"concentration1": POSITIVE, "concentration0": [2.0, 1.5, 0.7]}, [0.1, 0.5, 0.9]),
    ("Beta", {"concentration1": 2.0, "concentration0": 3.0}, 0.25),
    ("Binomial", {"total_count": 5, "probs": [0.2, 0.5, 0.9]}, [0.0, 3.0, 5.0]),
    ("Binomial", {"total_count": [3.0, 4.0, 5.0], "logits": REAL}, [0.0, 3.0, 5.0]),
    ("Categorical", {"probs": SIMPLEX}, [2, 0]),
    ("Categorical", {"logits": LOGITS}, [2, 0]),
    ("Cauchy", {"loc": REAL, "scale": POSITIVE}, [0.1, -3.0, 5.0]),
    ("Chi2", {"df": POSITIVE}, [0.5, 1.0, 4.0]),
    ("ContinuousBernoulli", {"probs": [0.2, 0.5, 0.9]}, [0.1, 0.5, 0.8]),
    ("ContinuousBernoulli", {"logits": [-1.0, 0.001, 2.0]}, [0.1, 0.5, 0.8]),
    ("Dirichlet", {"concentration": [POSITIVE, [1.0, 2.0, 3.0]]}, SIMPLEX),
    ("Dirichlet", {"concentration": [0.3, 0.4, 0.5]}, SIMPLEX[0]),
    ("Exponential", {"rate": POSITIVE}, [0.1, 1.0, 3.0]),
    ("FisherSnedecor", {"df1": [1.0, 3.0, 5.0], "df2": [1.0, 3.0, 7.0]}, [0.1, 1.0, 3.0]),
    ("Gamma", {"concentration": POSITIVE, "rate": [1.0, 2.0, 0.5]}, [0.1, 1.0, 3.0]),
    ("GeneralizedPareto", {"loc": 1.0, "scale": POSITIVE, "concentration": [0.2, 0.0, -0.3]}, [1.5, 2.0, 3.0]),
    ("GeneralizedPareto", {"loc": 0.0, "scale": 1.0, "concentration": [0.7, 1.5]}, [1.5, 2.0]),
    ("Geometric", {"probs": [0.2, 0.5, 1.0]}, [0.0, 3.0, 0.0]),
    ("Geometric", {"logits": REAL}, [0.0, 3.0, 1.0]),
    ("Gumbel", {"loc": REAL, "scale": POSITIVE}, [0.1, -1.0, 5.0]),
    ("HalfCauchy", {"scale": POSITIVE}, [0.1, 1.0, 3.0]),
    ("HalfNormal", {"scale": POSITIVE}, [0.1, 1.0, 3.0]),
    ("InverseGamma", {"concentration": POSITIVE, "rate": [1.0, 2.0, 0.5]}, [0.1, 1.0, 3.0]),
    ("Kumaraswamy", {"concentration1": POSITIVE, "concentration0": [2.0, 1.5, 3.0]}, [0.1, 0.5, 0.9]),
    ("LKJCholesky", {"dim": 3, "concentration": [0.5, 2.0]}, "corr"),
    ("LKJCholesky", {"dim": 3}, "corr"),
    ("Laplace", {"loc": REAL, "scale": POSITIVE}, [0.1, -1.0, 5.0]),
    ("LogNormal", {"loc": REAL, "scale": POSITIVE}, [0.1, 1.0, 5.0]),
    ("LogisticNormal", {"loc": [0.5, -0.5], "scale": [1.0, 2.0]}, SIMPLEX),
    ("LogisticNormal", {"loc": 0.0, "scale": 1.0}, [0.3, 0.7]),
    ("LowRankMultivariateNormal", {"loc": REAL, "cov_factor": [[1.0], [0.5], [-1.0]], "cov_diag": POSITIVE}, [REAL, POSITIVE]),
    ("Multinomial", {"total_count": 4, "probs": SIMPLEX}, [[1.0, 1.0, 2.0], [0.0, 4.0, 0.0]]),
    ("Multinomial", {"total_count": 4, "logits": LOGITS}, [[1.0, 1.0, 2.0], [0.0, 4.0, 0.0]]),
    ("MultivariateNormal", {"loc": REAL, "covariance_matrix": MATRIX}, [REAL, POSITIVE]),
    ("MultivariateNormal", {"loc": REAL, "precision_matrix": MATRIX}, [REAL, POSITIVE]),
    ("MultivariateNormal", {"loc": [REAL, POSITIVE], "scale_tril": FACTOR}, [POSITIVE, POSITIVE]),
    ("MultivariateNormal", {"loc": REAL, "scale_tril": [FACTOR, FACTOR]}, [POSITIVE, POSITIVE]),
    ("NegativeBinomial", {"total_count": [1.0, 2.5, 4.0], "probs": [0.2, 0.5, 0.9]}, [0.0, 3.0, 5.0]),
    ("NegativeBinomial", {"total_count": 3, "logits": REAL}, [0.0, 3.0, 5.0]),
    ("Normal", {"loc": REAL, "scale": POSITIVE}, [0.1, -1.0, 5.0]),
    ("Normal", {"loc": 0.0, "scale": 1.0}, 0.3),
    ("OneHotCategorical", {"probs": SIMPLEX}, [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    ("OneHotCategoricalStraightThrough", {"logits": LOGITS}, [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    ("Pareto", {"scale": POSITIVE, "alpha": [0.5, 1.5, 3.0]}, [0.5, 2.0, 3.0]),
    ("Poisson", {"rate": POSITIVE}, [0.0, 1.0, 4.0]),
    ("RelaxedBernoulli", {"temperature": [0.7], "probs": [0.2, 0.5, 0.9]}, [0.1, 0.5, 0.7]),
    ("RelaxedBernoulli", {"temperature": [0.7], "logits": REAL}, [0.1, 0.5, 0.7]),
    ("RelaxedOneHotCategorical", {"temperature": [0.7], "probs": SIMPLEX}, SIMPLEX),
    ("StudentT", {"df": [0.5, 1.5, 4.0], "loc": REAL, "scale": POSITIVE}, [0.1, -1.0, 5.0]),
    ("Uniform", {"low": REAL, "high": [0.0, 0.9, 5.0]}, [-0.5, 0.5, 4.0]),
    ("VonMises", {"loc": REAL, "concentration": [0.3, 1.0, 20.0]}, [0.1, -1.0, 3.0]),
    ("Weibull", {"scale": POSITIVE, "concentration": [0.7, 1.5, 3.0]}, [0.5, 2.0, 3.0]),
    ("Wishart", {"df": [3.0, 5.0], "covariance_matrix": MATRIX}, MATRIX),
    ("Wishart", {"df": 4.5, "scale_tril": FACTOR}, MATRIX),
    ("Wishart", {"df": 4.5, "precision_matrix": MATRIX}, MATRIX),
]  # fmt: skip
IDS = [f"{name}-{'-'.join(parameters)}-{index}" for index, (name, parameters, _) in enumerate(CASES)]


def as_tensor(lib, value, grad=False, dtype="float64"):
    if isinstance(value, list):
        tensor = lib.tensor(value, dtype=getattr(lib, dtype) if not isinstance(value[0], int) else None)
        return tensor.requires_grad_() if grad and tensor.is_floating_point() else tensor
    return value


def make(lib, namespace, case, grad=False):
    name, parameters, _ = case
    dtype = "float32" if name == "GeneralizedPareto" else "float64"  # PyTorch's takes no other
    given = {key: as_tensor(lib, value, grad, dtype) for key, value in parameters.items()}
    return getattr(namespace, name)(**given), given


def value_of(lib, case):
    value = case[2]
    if value == "corr":
        covariance = lib.tensor([[1.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]], dtype=lib.float64)
        return lib.linalg.cholesky(covariance)
    return as_tensor(lib, value) if isinstance(value, list) else lib.tensor(value)


def outcome(function, *args):
    try:
        return function(*args)
    except NotImplementedError:
        return NotImplementedError
    except ValueError:
        return ValueError


def same(mine, other, what, rtol=1e-5, atol=1e-6):
    if isinstance(other, type):
        assert mine is other, f"{what}: expected {other.__name__}, got {mine}"
        return
    assert not isinstance(mine, type), f"{what}: expected {other}, got {mine.__name__}"
    assert tuple(mine.shape) == tuple(other.shape), f"{what}: shape {tuple(mine.shape)} for {tuple(other.shape)}"
    mine, other = torch.tensor(mine.tolist(), dtype=torch.float64), other.detach().double()
    assert torch.allclose(mine, other, rtol=rtol, atol=atol, equal_nan=True), f"{what}: {mine} for {other}"


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_is_known_in_closed_form(case):
    p, _ = make(fl, ours, case)
    q, _ = make(torch, theirs, case)
    assert tuple(p.batch_shape) == tuple(q.batch_shape) and tuple(p.event_shape) == tuple(q.event_shape)
    assert p.has_rsample == q.has_rsample and p.has_enumerate_support == q.has_enumerate_support
    # PyTorch has NaN where Kumaraswamy's mode is known.
    for name in ("mean", "variance", "stddev", *(["mode"] if case[0] != "Kumaraswamy" else [])):
        same(outcome(getattr, p, name), outcome(getattr, q, name), name)
    value, other = value_of(fl, case), value_of(torch, case)
    same(p.log_prob(value), q.log_prob(other), "log_prob")
    for name in ("entropy", "perplexity", "enumerate_support"):
        same(outcome(getattr(p, name)), outcome(getattr(q, name)), name)
    same(outcome(lambda: p.cdf(value)), outcome(lambda: q.cdf(other)), "cdf")
    quantile = torch.full(q.batch_shape, 0.3, dtype=torch.float64)
    same(outcome(lambda: p.icdf(fl.tensor(quantile.tolist(), dtype=fl.float64))), outcome(lambda: q.icdf(quantile)), "icdf")  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_supports_and_constraints(case):
    p, _ = make(fl, ours, case)
    q, _ = make(torch, theirs, case)
    assert type(p.support).__name__ == type(q.support).__name__
    assert p.support.event_dim == q.support.event_dim and p.support.is_discrete == q.support.is_discrete
    same(p.support.check(value_of(fl, case)), q.support.check(value_of(torch, case)), "support.check")
    assert {k: repr(v)[:12] for k, v in p.arg_constraints.items()} == {
        k: repr(v)[:12] for k, v in q.arg_constraints.items()
    }
    mine, other = getattr(ours, case[0]), getattr(theirs, case[0])
    assert issubclass(mine, ours.ExponentialFamily) == issubclass(other, theirs.ExponentialFamily)
    assert issubclass(mine, ours.TransformedDistribution) == issubclass(other, theirs.TransformedDistribution)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_samples_and_expanded_shapes(case):
    p, _ = make(fl, ours, case)
    q, _ = make(torch, theirs, case)
    fl.manual_seed(0)
    sample = p.sample((4, 2))
    assert tuple(sample.shape) == tuple(q.sample((4, 2)).shape)
    assert str(sample.dtype).split(".")[-1] == str(q.sample().dtype).split(".")[-1]
    p.log_prob(sample)  # inside the support
    wide, other = p.expand((2, *p.batch_shape)), q.expand((2, *q.batch_shape))
    assert type(wide) is type(p)
    assert tuple(wide.batch_shape) == tuple(other.batch_shape) and tuple(wide.event_shape) == tuple(other.event_shape)
    assert tuple(wide.sample((2,)).shape) == tuple(other.sample((2,)).shape)
    same(wide.log_prob(value_of(fl, case)), other.log_prob(value_of(torch, case)), "log_prob after expand")
    same(outcome(lambda: wide.mean), outcome(lambda: other.mean), "mean after expand")
    if case[0] != "Multinomial":  # PyTorch's raises AttributeError
        same(outcome(wide.entropy), outcome(other.entropy), "entropy after expand")
    again = pickle.loads(pickle.dumps(p))
    same(again.log_prob(value_of(fl, case)), q.log_prob(value_of(torch, case)), "log_prob after pickling")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_gradients_of_densities_and_samples(case):
    p, mine = make(fl, ours, case, grad=True)
    q, other = make(torch, theirs, case, grad=True)
    leaves = [key for key, value in other.items() if isinstance(value, torch.Tensor) and value.requires_grad]
    if not leaves or case[0] in ("GeneralizedPareto", "Wishart"):
        return  # PyTorch's have no gradients in double precision, or fail in backward
    got = fl.autograd.grad(p.log_prob(value_of(fl, case)).sum(), [mine[key] for key in leaves], allow_unused=True)
    want = torch.autograd.grad(q.log_prob(value_of(torch, case)).sum(), [other[key] for key in leaves], allow_unused=True)  # fmt: skip
    for key, a, b in zip(leaves, got, want):
        if b is None or not b.any():
            assert a is None or not a.any(), key
        else:
            same(a, b, f"gradient of log_prob by {key}", 1e-4, 1e-5)
    if q.has_rsample:
        p, mine = make(fl, ours, case, grad=True)
        q, other = make(torch, theirs, case, grad=True)
        got = fl.autograd.grad((p.rsample((3,)) ** 2).sum(), [mine[key] for key in leaves], allow_unused=True)
        want = torch.autograd.grad((q.rsample((3,)) ** 2).sum(), [other[key] for key in leaves], allow_unused=True)
        for key, a, b in zip(leaves, got, want):
            assert (a is None) == (b is None), key
            assert a is None or a.isfinite().all(), f"gradient of a sample by {key}: {a}"


def by_name(name):
    return [case for case in CASES if case[0] == name]


KL_PAIRS = sorted(
    (p.__name__, q.__name__)
    for p, q in theirs.kl._KL_REGISTRY
    if p.__name__ not in ("ExponentialFamily", "TransformedDistribution", "Independent")
)


@pytest.mark.parametrize("pair", KL_PAIRS, ids="-".join)
def test_divergences(pair):
    for first in by_name(pair[0]):
        for second in by_name(pair[1]):
            try:
                want = theirs.kl_divergence(make(torch, theirs, first)[0], make(torch, theirs, second)[0])
            except NotImplementedError:
                with pytest.raises(NotImplementedError):
                    ours.kl_divergence(make(fl, ours, first)[0], make(fl, ours, second)[0])
                continue
            except RuntimeError:
                continue  # shapes that do not fit
            got = ours.kl_divergence(make(fl, ours, first)[0], make(fl, ours, second)[0])
            # Infinite divergences have the shape of both batches here, of p's alone there.
            same(got, want.expand(tuple(got.shape)) if want.isinf().all() else want, "kl", 1e-4)


@pytest.mark.parametrize("pair", [("Gamma", "Chi2"), ("Chi2", "Chi2"), ("LogNormal", "LogNormal"), ("Wishart", "Wishart"),
                                  ("HalfCauchy", "HalfCauchy"), ("Normal", "Cauchy"), ("LogisticNormal", "LogisticNormal")], ids="-".join)  # fmt: skip
def test_divergences_by_base_classes(pair):
    p, q = by_name(pair[0])[0], by_name(pair[1])[-1 if pair[0] != "LogisticNormal" else 0]

    def divergence(lib, namespace):
        try:
            return namespace.kl_divergence(make(lib, namespace, p)[0], make(lib, namespace, q)[0])
        except NotImplementedError:
            return NotImplementedError

    same(divergence(fl, ours), divergence(torch, theirs), "kl", 1e-4)


def test_names_are_the_same():
    assert set(ours.__all__) == set(theirs.__all__)
    assert set(ours.constraints.__all__) == set(theirs.constraints.__all__)
    pairs = {(p.__name__, q.__name__) for p, q in ours.kl._KL_REGISTRY}
    assert pairs == {(p.__name__, q.__name__) for p, q in theirs.kl._KL_REGISTRY}
    for registry in ("biject_to", "transform_to"):
        assert {k.__name__ for k in getattr(ours, registry)._registry} == {
            k.__name__ for k in getattr(theirs, registry)._registry
        }


# ---------------------------------------------------------------- transforms

TRANSFORMS = [
    ("AbsTransform", lambda t, lib: t.AbsTransform(), [-1.0, 0.5]),
    ("Affine", lambda t, lib: t.AffineTransform(1.0, lib.tensor([2.0, -3.0], dtype=lib.float64)), REAL[:2]),
    ("AffineEvent", lambda t, lib: t.AffineTransform(1.0, -2.0, event_dim=1), REAL),
    ("Cat", lambda t, lib: t.CatTransform([t.ExpTransform(), t.AffineTransform(1.0, 2.0)], 0, [1, 2]), REAL),
    ("Stack", lambda t, lib: t.StackTransform([t.ExpTransform(), t.identity_transform], 0), [REAL, POSITIVE]),
    ("Compose", lambda t, lib: t.ComposeTransform([t.AffineTransform(0.0, 2.0), t.ExpTransform()]), REAL),
    ("ComposeEvent", lambda t, lib: t.ComposeTransform([t.AffineTransform(0.0, 2.0), t.StickBreakingTransform()]), REAL),
    ("ComposeEvent2", lambda t, lib: t.ComposeTransform([t.CorrCholeskyTransform(), t.AffineTransform(0.0, 2.0)]), REAL),
    ("CorrCholesky", lambda t, lib: t.CorrCholeskyTransform(), [REAL, POSITIVE]),
    ("Cumulative", lambda t, lib: t.CumulativeDistributionTransform(
        (ours if lib is fl else theirs).Normal(lib.zeros(3, dtype=lib.float64), 1.0)), REAL),
    ("Exp", lambda t, lib: t.ExpTransform(), REAL),
    ("Independent", lambda t, lib: t.IndependentTransform(t.ExpTransform(), 1), [REAL, POSITIVE]),
    ("LowerCholesky", lambda t, lib: t.LowerCholeskyTransform(), FACTOR),
    ("PositiveDefinite", lambda t, lib: t.PositiveDefiniteTransform(), FACTOR),
    ("Power", lambda t, lib: t.PowerTransform(lib.tensor(-1.5, dtype=lib.float64)), POSITIVE),
    ("Reshape", lambda t, lib: t.ReshapeTransform((6,), (2, 3)), [REAL + POSITIVE]),
    ("Sigmoid", lambda t, lib: t.SigmoidTransform(), REAL),
    ("SigmoidInverse", lambda t, lib: t.SigmoidTransform().inv, [0.1, 0.5]),
    ("Softplus", lambda t, lib: t.SoftplusTransform(), REAL),
    ("Tanh", lambda t, lib: t.TanhTransform(), REAL),
    ("Softmax", lambda t, lib: t.SoftmaxTransform(), [REAL]),
    ("StickBreaking", lambda t, lib: t.StickBreakingTransform(), [REAL, POSITIVE]),
]  # fmt: skip


@pytest.mark.parametrize("case", TRANSFORMS, ids=[case[0] for case in TRANSFORMS])
def test_transforms(case):
    _, build, x = case
    mine, other = build(ours.transforms, fl), build(theirs.transforms, torch)
    a, b = as_tensor(fl, x), as_tensor(torch, x)
    ya, yb = mine(a), other(b)
    same(ya, yb, "forward")
    same(mine.inv(ya), other.inv(yb), "inverse")
    same(
        outcome(lambda: mine.log_abs_det_jacobian(a, ya)),
        outcome(lambda: other.log_abs_det_jacobian(b, yb)),
        "jacobian",
    )
    assert mine.bijective == other.bijective
    for name in ("domain", "codomain"):
        assert getattr(mine, name).event_dim == getattr(other, name).event_dim, name
    assert tuple(mine.forward_shape(a.shape)) == tuple(other.forward_shape(b.shape))
    assert tuple(mine.inverse_shape(ya.shape)) == tuple(other.inverse_shape(yb.shape))
    cached = mine.with_cache(1)
    y = cached(a)
    assert cached.inv(y) is a or case[0] in ("Compose", "SigmoidInverse") or not mine.bijective or y is a


CONSTRAINED = ["real", "positive", "nonnegative", "unit_interval", "simplex", "lower_cholesky", "corr_cholesky",
               "positive_definite", "real_vector", "boolean"]  # fmt: skip


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries_lead_into_the_constraint(name, registry):
    constraint = getattr(ours.constraints, name)
    make_ours = outcome(lambda: getattr(ours, registry)(constraint))
    make_theirs = outcome(lambda: getattr(theirs, registry)(getattr(theirs.constraints, name)))
    if isinstance(make_theirs, type):
        assert make_ours is make_theirs
        return
    x = FACTOR if name in ("lower_cholesky", "positive_definite") else REAL
    y = make_ours(as_tensor(fl, x))
    same(y, make_theirs(as_tensor(torch, x)), name)
    assert constraint.check(y).all()


def test_composed_distributions():
    def build(lib, d):
        normal = d.Normal(lib.tensor([REAL, POSITIVE], dtype=lib.float64), 1.0)
        mixture = d.MixtureSameFamily(d.Categorical(lib.tensor(SIMPLEX, dtype=lib.float64)), normal)
        vectors = d.MixtureSameFamily(
            d.Categorical(lib.tensor([0.3, 0.7], dtype=lib.float64)), d.Independent(normal, 1)
        )
        flow = d.TransformedDistribution(
            d.Independent(normal, 1), [d.AffineTransform(1.0, -2.0), d.ExpTransform(), d.TanhTransform()]
        )
        number = d.TransformedDistribution(normal, [d.SigmoidTransform().inv.inv, d.AffineTransform(1.0, -2.0)])
        sticks = d.TransformedDistribution(normal, d.StickBreakingTransform())
        return mixture, vectors, flow, number, sticks, d.Independent(normal, 2)

    mine, other = build(fl, ours), build(torch, theirs)
    torch.manual_seed(0)
    for p, q in zip(mine, other):
        assert tuple(p.batch_shape) == tuple(q.batch_shape) and tuple(p.event_shape) == tuple(q.event_shape)
        value = q.sample((4,))
        copy = fl.tensor(value.tolist(), dtype=fl.float64)
        same(p.log_prob(copy), q.log_prob(value), type(p).__name__)
        same(p.expand((7, *p.batch_shape)).log_prob(copy.unsqueeze(1)), q.expand((7, *q.batch_shape)).log_prob(value.unsqueeze(1)), "expand")  # fmt: skip
        for name in ("mean", "variance"):
            same(outcome(getattr, p, name), outcome(getattr, q, name), name)
        same(outcome(p.cdf, copy), outcome(q.cdf, value), "cdf")
        assert tuple(p.sample((3, 2)).shape) == tuple(q.sample((3, 2)).shape)
        assert p.support.event_dim == q.support.event_dim


BAD = [
    lambda lib, d: d.Normal(0.0, -1.0),
    lambda lib, d: d.Normal(lib.tensor(math.nan), 1.0),
    lambda lib, d: d.Uniform(1.0, 0.0),
    lambda lib, d: d.Bernoulli(1.5),
    lambda lib, d: d.Bernoulli(),
    lambda lib, d: d.Bernoulli(0.5, 0.5),
    lambda lib, d: d.Categorical(lib.tensor(0.5)),
    lambda lib, d: d.Categorical(lib.tensor([-1.0, 2.0])),
    lambda lib, d: d.Normal(0.0, 1.0).log_prob(0.5),
    lambda lib, d: d.Normal(lib.zeros(3), 1.0).log_prob(lib.zeros(2)),
    lambda lib, d: d.Beta(1.0, 1.0).log_prob(lib.tensor(2.0)),
    lambda lib, d: d.Categorical(lib.ones(3)).log_prob(lib.tensor(3)),
    lambda lib, d: d.MultivariateNormal(lib.zeros(2)),
    lambda lib, d: d.MultivariateNormal(lib.tensor(0.0), lib.eye(2)),
    lambda lib, d: d.MultivariateNormal(lib.zeros(2), -lib.eye(2)),
    lambda lib, d: d.Independent(d.Normal(0.0, 1.0), 1),
    lambda lib, d: d.Normal("a", 1.0),
    lambda lib, d: d.Distribution().sample(),
    lambda lib, d: d.Distribution.set_default_validate_args(3),
    lambda lib, d: d.kl_divergence(d.Normal(0.0, 1.0), d.Bernoulli(0.5)),
    lambda lib, d: d.Multinomial(lib.tensor([1]), lib.ones(2)),
    lambda lib, d: d.ExpTransform(cache_size=2),
    lambda lib, d: d.ReshapeTransform((2,), (3,)),
    lambda lib, d: d.LKJCholesky(1),
    lambda lib, d: d.Wishart(1.0, lib.eye(3)),
    lambda lib, d: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(lib.zeros(3), 1.0)),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_errors_are_of_the_same_kind(index):
    with pytest.raises(Exception) as want:
        BAD[index](torch, theirs)
    with pytest.raises(Exception) as got:
        BAD[index](fl, ours)
    assert got.type.__name__ == want.type.__name__, (got.value, want.value)


def test_a_wishart_prints_as_pytorchs():
    texts = [repr(lib.distributions.Wishart(lib.tensor(4.0), lib.eye(2))) for lib in (torch, fl)]
    assert texts[0] == texts[1]
