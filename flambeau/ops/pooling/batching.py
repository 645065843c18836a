"""Batching rules of pooling."""

from __future__ import annotations

from flambeau.ops.batching import joined_with_first
from flambeau.ops.rules import batching

for _n in (1, 2, 3):
    batching(f"max_pool{_n}d", f"max_pool{_n}d_with_indices", f"avg_pool{_n}d", f"adaptive_avg_pool{_n}d")(
        joined_with_first(_n)
    )
