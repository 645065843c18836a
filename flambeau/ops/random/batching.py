"""Batching rules of random numbers."""

from __future__ import annotations

from flambeau.ops.batching import on_value
from flambeau.ops.rules import batching

batching("native_dropout")(on_value)
