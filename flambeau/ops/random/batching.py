"""Batching rules of random numbers that differ between the elements of a batch: all of them are drawn in one call."""

from __future__ import annotations

from typing import Any

from flambeau.ops.batching import Held, on_value, rank_of
from flambeau.ops.rules import batching

batching("native_dropout", "bernoulli", "poisson", "_standard_gamma", "_sample_dirichlet")(on_value)
batching("rand_like", "randn_like", "randint_like", "randint_like.low_dtype")(on_value)


@batching("binomial")
def binomial(mode: Any, func: Any, count: Any, prob: Any, generator: Any = None) -> Any:
    rank = max(rank_of(count), rank_of(prob))
    return func(*(x.padded(rank) if isinstance(x, Held) else x for x in (count, prob)), generator)


@batching("multinomial")
def multinomial(
    mode: Any, func: Any, held: Held, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Any:
    weights = held.value
    drawn = func(weights.reshape(-1, weights.shape[-1]), num_samples, replacement, generator=generator)
    return drawn.reshape(*weights.shape[:-1], num_samples)
