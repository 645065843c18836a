"""Shape rules of distances and sequence losses."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Ints, equal_sizes
from flambeau.ops.rules import shape


@shape("_ctc_loss")
def ctc_loss(log_probs: Geometry, input_lengths: Ints, target_lengths: Ints) -> list[Ints]:
    steps, batch, _ = log_probs.sizes
    equal_sizes(batch, len(input_lengths), "ctc_loss")
    return [(batch,), (batch, steps, 2 * max((int(n) for n in target_lengths), default=0) + 1)]


@shape("_ctc_loss_backward")
def ctc_loss_backward(log_probs: Geometry) -> Ints:
    return log_probs.sizes
