"""Batching rules of reductions, scans and statistics."""

from __future__ import annotations

from flambeau.ops.batching import along
from flambeau.ops.rules import batching

batching(
    *(
        "cumsum cumprod logcumsumexp cummax cummin max.dim min.dim argmax argmin _logsumexp "
        "var.correction std.correction var_mean.correction std_mean.correction"
    ).split()
)(along)
