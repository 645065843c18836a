"""Reference layers compute what quantized layers compute, in floating point."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao import quantization
from flambeau.ao.nn.quantized import reference

GRID = {"qscheme": fl.per_tensor_affine, "dtype": fl.qint8, "scale": 0.05, "zero_point": 3}
CASES = {
    "Linear": ((4, 3), (2, 4)),
    "Conv1d": ((2, 4, 3), (1, 2, 6)),
    "Conv2d": ((2, 4, 3, 2, 1), (1, 2, 6, 6)),
    "ConvTranspose2d": ((2, 4, 3, 2), (1, 2, 5, 5)),
    "LSTMCell": ((4, 5), (2, 4)),
    "GRUCell": ((4, 5), (2, 4)),
    "RNNCell": ((4, 5), (2, 4)),
    "LSTM": ((4, 5, 2), (3, 2, 4)),
    "GRU": ((4, 5, 1), (3, 2, 4)),
}


def _rounded(weight):
    return fl.quantize_per_tensor(weight.detach(), GRID["scale"], GRID["zero_point"], GRID["dtype"]).dequantize()


@pytest.mark.parametrize("name", CASES)
def test_reference_layers_are_float_layers_with_rounded_weights(name):
    arguments, size = CASES[name]
    layer, x = getattr(nn, name)(*arguments), fl.randn(size)
    weights = [n for n in dict(layer.named_parameters()) if n.startswith("weight")]
    made = getattr(reference, name).from_float(layer, dict.fromkeys(weights, GRID))
    with fl.no_grad():
        for n in weights:
            getattr(layer, n).copy_(_rounded(getattr(layer, n)))
    fl.testing.assert_close(made(x), layer(x))


def test_constructed_with_a_grid_for_each_channel():
    grid = {
        "qscheme": fl.per_channel_affine, "dtype": fl.qint8, "scale": fl.tensor([0.1, 0.2, 0.3]),
        "zero_point": fl.tensor([0, 1, 2]), "axis": 0,
    }  # fmt: skip
    layer = reference.Linear(4, 3, weight_qparams=grid)
    assert layer.get_quantized_weight().q_per_channel_axis() == 0
    assert fl.equal(layer.get_weight(), layer.get_quantized_weight().dequantize())
    assert {"weight_scale", "weight_zero_point", "weight_axis"} <= set(layer.state_dict())
    assert repr(layer).startswith("QuantizedLinear(Reference)")


class _Model(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.quant, self.quant2 = quantization.QuantStub(), quantization.QuantStub()
        self.dequant, self.dequant2 = quantization.DeQuantStub(), quantization.DeQuantStub()

    def forward(self, x):
        x = self.layer(self.dequant(self.quant(x)))
        return self.dequant2(self.quant2(x))


@pytest.mark.parametrize("make", [lambda: nn.Linear(6, 5), lambda: nn.Conv2d(2, 3, 3)])
def test_converted_reference_models_agree_with_quantized_ones(make):
    layer = make()
    x = fl.randn(4, 6) if isinstance(layer, nn.Linear) else fl.randn(1, 2, 5, 5)
    quantized = nn.Sequential(quantization.QuantStub(), layer, quantization.DeQuantStub()).eval()
    results = []
    for model, is_reference in ((quantized, False), (_Model(layer).eval(), True)):
        model.qconfig = quantization.default_qconfig
        prepared = quantization.prepare(model)
        prepared(x)
        results.append(quantization.convert(prepared, is_reference=is_reference))
    kind = getattr(reference, type(layer).__name__)
    assert type(results[1].layer) is kind
    step = results[0][1].scale
    assert (results[0](x) - results[1](x)).abs().max() <= step * 1.01
