"""Float models and their quantized forms are compared layer by layer."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao import quantization
from flambeau.ao.nn.quantized import FloatFunctional
from flambeau.ao.ns import _numeric_suite as suite


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.relu, self.flat = nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten()
        self.sum, self.fc = FloatFunctional(), nn.Linear(27, 4)

    def forward(self, x):
        x = self.relu(self.conv(self.quant(x)))
        return self.dequant(self.fc(self.flat(self.sum.add(x, x))))


@pytest.fixture
def models():
    fl.manual_seed(0)
    model, x = Net().eval(), fl.randn(2, 2, 5, 5)
    model = quantization.fuse_modules(model, [["conv", "relu"]])
    model.qconfig = quantization.default_qconfig
    prepared = quantization.prepare(model)
    prepared(x)
    return model, quantization.convert(prepared), x


def test_weights_of_static_models(models):
    model, quantized, _ = models
    found = suite.compare_weights(model.state_dict(), quantized.state_dict())
    assert set(found) == {"conv.weight", "fc._packed_params._packed_params"}
    for pair in found.values():
        assert (pair["float"] - pair["quantized"].dequantize()).abs().max() <= pair["quantized"].q_scale() * 0.51


def test_weights_of_dynamic_models():
    model = nn.Sequential(nn.Linear(3, 4), nn.LSTM(4, 5, bidirectional=True))
    quantized = quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM})
    found = suite.compare_weights(model.state_dict(), quantized.state_dict())
    assert len(found) == 3
    pair = found["1._all_weight_values.1.param"]
    assert fl.equal(pair["float"][1], model[1].weight_hh_l0_reverse)
    for a, b in zip(pair["float"], pair["quantized"], strict=True):
        assert (a - b).abs().max() < 0.01


def test_results_of_layers(models):
    model, quantized, x = models
    found = suite.compare_model_outputs(model, quantized, x)
    assert set(found) == {"quant.stats", "conv.stats", "sum.stats", "fc.stats"}
    for pair in found.values():
        (a,), (b,) = pair["float"], pair["quantized"]
        assert a.shape == b.shape and (fl.dequantize(a) - fl.dequantize(b)).abs().mean() < 0.1


def test_layers_beside_their_float_form(models):
    model, quantized, x = models
    wanted = quantized(x)
    found = suite.compare_model_stub(model, quantized, [type(model.conv), nn.Linear, FloatFunctional], x)
    assert set(found) == {"conv.stats", "fc.stats", "sum.stats"} and isinstance(quantized.conv, suite.Shadow)
    for pair in found.values():
        (a,), (b,) = pair["float"], pair["quantized"]
        assert (a - b.dequantize()).abs().max() <= b.q_scale() * 1.01 + 0.02
    assert fl.equal(quantized(x), wanted)


def test_modules_that_are_not_quantized_get_no_shadow(models):
    model, quantized, x = models
    suite.prepare_model_with_stubs(model, quantized, [nn.Flatten], suite.ShadowLogger)
    assert not any(isinstance(module, suite.Shadow) for module in quantized.modules())
    with pytest.raises(TypeError, match="base class"):
        suite.Logger()(x)
