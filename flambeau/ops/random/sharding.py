"""Sharding rules of random operators: each process draws the elements that it holds."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import fresh, pointwise

sharding("native_dropout", "dropout", "bernoulli", "bernoulli.p")(pointwise)
sharding("rand_like", "randn_like", "uniform_", "normal_", "bernoulli_.float")(fresh)
