"""Compiled graphs pack weights of 8-bit integers once, and again when they are written."""

from __future__ import annotations

import flambeau as fl
from flambeau import nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", fl.randint(-127, 128, (24, 40)).to(fl.int8))
        self.register_buffer("scales", fl.rand(24) * 0.01)
        self.register_buffer("zeros", fl.zeros(24, dtype=fl.int32))

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        places = (x * 10).round().clamp(0, 255).to(fl.uint8)
        return fl._ops._quantized_linear(places, 0.1, 3, self.weight, self.scales, self.zeros, None, 0.5, 3, fl.uint8)


def test_weights_are_packed_once() -> None:
    layer, x = Layer().eval(), fl.randn(7, 40)
    compiled = fl.compile(layer)
    with fl.no_grad():
        assert fl.equal(compiled(x), layer(x))
        with fl.profiler.profile() as profile:
            compiled(x)
        assert "_int8_pack" not in {event.key for event in profile.key_averages()}
        layer.weight.copy_(layer.weight.flip(0))
        assert fl.equal(compiled(x), layer(x))
