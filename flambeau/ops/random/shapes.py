"""Shape rules of random numbers."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Int, Ints, broadcast, fits, of_self, of_size_argument
from flambeau.ops.rules import shape

shape(
    *(
        "rand_like randn_like randint_like randint_like.low_dtype bernoulli poisson _standard_gamma "
        "_sample_dirichlet normal_ uniform_ exponential_ geometric_ cauchy_ log_normal_ random_ "
        "random_.to random_.from bernoulli_.float"
    ).split()
)(of_self)
shape("rand", "randn", "randint", "randint.low")(of_size_argument)


@shape("native_dropout")
def native_dropout(input: Geometry) -> list[Ints]:
    return [input.sizes, input.sizes]


@shape("bernoulli_.Tensor")
def bernoulli_(self: Geometry, p: Geometry) -> Ints:
    fits(p.sizes, self.sizes, "bernoulli_")
    return self.sizes


@shape("multinomial")
def multinomial(self: Geometry, num_samples: Int) -> Ints:
    return (*self.sizes[:-1], num_samples)


@shape("randperm")
def randperm(n: Int) -> Ints:
    return (n,)


@shape("binomial")
def binomial(count: Geometry, prob: Geometry) -> Ints:
    return broadcast(count.sizes, prob.sizes)
