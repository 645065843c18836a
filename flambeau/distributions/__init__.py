"""Probability distributions: parameters and shapes, samples, densities, transforms and divergences.

`distribution.py` has the base class; families of distributions live in files whose names start with an underscore.
`constraints` and `transforms` describe supports and changes of variables, `kl` the divergences of pairs.
"""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType

from flambeau.distributions import constraints, transforms, utils  # noqa: F401
from flambeau.distributions._composed import Independent, MixtureSameFamily, TransformedDistribution
from flambeau.distributions._continuous import (
    Cauchy,
    ContinuousBernoulli,
    GeneralizedPareto,
    Laplace,
    Normal,
    StudentT,
    Uniform,
    VonMises,
)
from flambeau.distributions._discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from flambeau.distributions._gamma import Beta, Chi2, Dirichlet, Exponential, FisherSnedecor, Gamma
from flambeau.distributions._multivariate import LKJCholesky, LowRankMultivariateNormal, MultivariateNormal, Wishart
from flambeau.distributions._transformed import (
    ExpRelaxedCategorical,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogitRelaxedBernoulli,
    LogNormal,
    Pareto,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    Weibull,
)
from flambeau.distributions.constraint_registry import biject_to, transform_to
from flambeau.distributions.distribution import Distribution, ExponentialFamily
from flambeau.distributions.kl import kl_divergence, register_kl
from flambeau.distributions.transforms import *  # noqa: F403

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet",
    "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric",
    "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace",
    "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough",
    "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution",
    "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "kl_divergence", "register_kl", "transform_to",
    *transforms.__all__,
]  # fmt: skip

# PyTorch has a module for each distribution, from which programs import.
_MODULES = {
    "bernoulli": [Bernoulli], "beta": [Beta], "binomial": [Binomial], "categorical": [Categorical],
    "cauchy": [Cauchy], "chi2": [Chi2], "continuous_bernoulli": [ContinuousBernoulli], "dirichlet": [Dirichlet],
    "exp_family": [ExponentialFamily], "exponential": [Exponential], "fishersnedecor": [FisherSnedecor],
    "gamma": [Gamma], "generalized_pareto": [GeneralizedPareto], "geometric": [Geometric], "gumbel": [Gumbel],
    "half_cauchy": [HalfCauchy], "half_normal": [HalfNormal], "independent": [Independent],
    "inverse_gamma": [InverseGamma], "kumaraswamy": [Kumaraswamy], "laplace": [Laplace],
    "lkj_cholesky": [LKJCholesky], "log_normal": [LogNormal], "logistic_normal": [LogisticNormal],
    "lowrank_multivariate_normal": [LowRankMultivariateNormal], "mixture_same_family": [MixtureSameFamily],
    "multinomial": [Multinomial, Binomial], "multivariate_normal": [MultivariateNormal],
    "negative_binomial": [NegativeBinomial], "normal": [Normal],
    "one_hot_categorical": [OneHotCategorical, OneHotCategoricalStraightThrough], "pareto": [Pareto],
    "poisson": [Poisson], "relaxed_bernoulli": [LogitRelaxedBernoulli, RelaxedBernoulli],
    "relaxed_categorical": [ExpRelaxedCategorical, RelaxedOneHotCategorical], "studentT": [StudentT],
    "transformed_distribution": [TransformedDistribution], "uniform": [Uniform], "von_mises": [VonMises],
    "weibull": [Weibull], "wishart": [Wishart],
}  # fmt: skip


def _provide_modules() -> None:
    def look(classes: list[type], name: str) -> object:
        """What such a module of PyTorch's imports itself, which some programs take from there."""
        for place in (sys.modules[classes[0].__module__], utils, sys.modules[__name__]):
            if hasattr(place, name) and not name.startswith("__"):
                return getattr(place, name)
        raise AttributeError(f"[distributions] expected a name of the module of {classes[0].__name__}, got {name!r}")

    for name, classes in _MODULES.items():
        module = ModuleType(f"{__name__}.{name}", f"{', '.join(c.__name__ for c in classes)} under PyTorch's name.")
        module.__dict__.update({c.__name__: c for c in classes}, __all__=[c.__name__ for c in classes])
        module.__getattr__ = partial(look, classes)  # type: ignore[arg-type, method-assign]
        sys.modules[module.__name__] = globals()[name] = module


_provide_modules()
