"""Layers that multiply in 8-bit floats are captured whole, and give what eager mode gives."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F


class Layer(fl.nn.Module):
    def __init__(self, by_rows):
        super().__init__()
        self.by_rows = by_rows
        self.recipe = F.ScalingType.RowWise if by_rows else F.ScalingType.TensorWise
        weight = fl.randn(48, 64)
        self.scale = (weight.abs().amax(1) if by_rows else weight.abs().max()) / 448
        self.weight = (weight / self.scale.reshape(-1, 1)).to(fl.float8_e4m3fn)

    def forward(self, x):
        largest = x.abs().amax(1, keepdim=True) if self.by_rows else x.abs().max()
        scale = largest.clamp(min=1e-12) / 448
        narrow = (x / scale).clamp(-448, 448).to(fl.float8_e4m3fn)
        recipe = self.recipe
        return F.scaled_mm(narrow, self.weight.t(), scale, recipe, self.scale, recipe, output_dtype=fl.float32)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("by_rows", [False, True])
def test_layers_of_8_bit_products(by_rows, dynamic):
    fl.manual_seed(0)
    layer = Layer(by_rows)
    run = fl.compile(layer, fullgraph=True, dynamic=dynamic)
    for rows in (32, 5):
        x = fl.randn(rows, 64)
        made, want = run(x), layer(x)
        fl.testing.assert_close(made, want)
        assert (
            made - F.linear(x, layer.weight.float() * layer.scale.reshape(-1, 1))
        ).abs().max() < 0.1 * want.abs().max()
