"""Sharding rules of convolutions: images are independent, and gradients of weights are parts of a sum."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, R, Shard


@sharding("convolution")
def convolution(call: Call) -> Decision | None:
    images = call.placements[0]
    return call.first(images) if images == Shard(0) else call.all(R)


@sharding("_convolution_backward")
def backward(call: Call) -> Decision | None:
    """Gradients of the images, which are divided as these are, of the weight and of the bias."""
    images = Shard(0)
    if images not in call.placements[:2] or len(call.outputs) != 3:
        return call.all(R)
    return [images, images, R], [images, Partial(), Partial()]
