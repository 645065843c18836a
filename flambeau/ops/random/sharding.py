"""Sharding rules of random operators: each process draws the elements that it holds, or its part of the whole."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import drawn, fresh, pointwise

sharding("native_dropout", "dropout", "bernoulli", "bernoulli.p")(pointwise)
sharding("bernoulli_.float")(fresh)
sharding("rand_like", "randn_like", "uniform_", "normal_")(drawn)
