"""Batching rules of convolutions."""

from __future__ import annotations

from flambeau.ops.batching import joined_with_first
from flambeau.ops.rules import batching

for _n in (1, 2, 3):
    batching(f"conv{_n}d", f"conv_transpose{_n}d")(joined_with_first(_n))
