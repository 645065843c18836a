"""Weights and results of traced models beside those of their quantized forms."""

import copy

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao.ns import _numeric_suite_fx as suite
from flambeau.ao.ns.fx import utils
from flambeau.ao.quantization import get_default_qconfig_mapping, quantize_fx

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.fc = nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Linear(2, 3)
        self.w = nn.Parameter(fl.eye(3))

    def forward(self, x):
        x = self.relu(self.conv(x)).mean([2, 3])
        return nn.functional.linear(self.fc(x), self.w) + 1


@pytest.fixture(scope="module")
def models():
    fl.manual_seed(0)
    x = fl.randn(1, 1, 3, 3)
    prepared = quantize_fx.prepare_fx(Model().eval(), get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    return prepared, quantize_fx.convert_fx(copy.deepcopy(prepared)), x


def test_weights(models):
    prepared, quantized, _ = models
    weights = suite.extract_weights("float", prepared, "int8", quantized)
    assert list(weights) == ["conv", "fc", "linear"]
    for layer in weights.values():
        (one,), (two,) = (layer["weight"][name][0]["values"] for name in ("float", "int8"))
        assert two.is_quantized and (one - two.dequantize()).abs().max() < 0.01
    assert weights["fc"]["weight"]["int8"][0]["fqn"] == "fc"


def test_results(models):
    prepared, quantized, x = models
    wanted = quantized(x)
    a, b = suite.add_loggers("float", prepared, "int8", quantized, suite.OutputLogger)
    a(x)
    assert fl.equal(b(x), wanted)
    results = suite.extract_logger_info(a, b, suite.OutputLogger, "int8")
    assert list(results) == ["conv", "fc", "linear", "add"]
    suite.extend_logger_results_with_comparison(results, "float", "int8", utils.compute_sqnr, "sqnr")
    for layer in results.values():
        entry = layer["node_output"]["int8"][0]
        assert len(entry["values"]) == len(entry["sqnr"]) == 1 and entry["sqnr"][0] > 20


def test_inputs_are_logged(models):
    prepared, quantized, x = models
    a, b = suite.add_loggers("float", prepared, "int8", quantized, suite.OutputLogger, should_log_inputs=True)
    a(x), b(x)
    results = suite.extract_logger_info(a, b, suite.OutputLogger, "int8")
    assert fl.equal(results["conv"]["node_input"]["float"][0]["values"][0], x)
    assert results["conv"]["node_input"]["int8"][0]["values"][0].is_quantized


def test_shadows(models):
    prepared, quantized, x = models
    both = suite.add_shadow_loggers("float", prepared, "int8", quantized, suite.OutputLogger)
    assert fl.equal(both(x), quantized(x))
    results = suite.extract_shadow_logger_info(both, suite.OutputLogger, "int8")
    suite.extend_logger_results_with_comparison(results, "float", "int8", utils.compute_cosine_similarity, "cosine")
    assert list(results) == ["conv", "fc", "linear", "add"]
    for layer in results.values():
        assert not layer["node_output"]["float"][0]["values"][0].is_quantized
        assert layer["node_output"]["int8"][0]["cosine"][0] > 0.99


def test_loggers_are_switched_off(models):
    prepared, quantized, x = models
    a, _ = suite.add_loggers("float", prepared, "int8", quantized, suite.OutputLogger)
    suite.loggers_set_enabled(a, False)
    a(x)
    suite.loggers_set_enabled(a, True)
    suite.loggers_set_save_activations(a, False)
    a(x)
    assert all(not m.stats for m in a.modules() if isinstance(m, suite.OutputLogger))


def test_measures():
    x, y = fl.tensor([3.0, 4.0]), fl.tensor([3.0, 4.5])
    assert utils.compute_sqnr(x, y).item() == pytest.approx(20.0)
    assert utils.compute_normalized_l2_error(x, y).item() == pytest.approx(0.1)
    assert utils.compute_cosine_similarity(x, 2 * x).item() == pytest.approx(1.0)


@pytest.mark.parametrize("compute", [lambda x: x + 1, lambda x: 1 + x, lambda x: x * 2, lambda x: fl.relu(x + 1)])
def test_numbers_beside_quantized_tensors(compute):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return compute(self.fc(x))

    model, x = Sum().eval(), fl.randn(4, 3)
    prepared = quantize_fx.prepare_fx(model, get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    assert (quantize_fx.convert_fx(prepared)(x) - model(x)).abs().max() < 0.1
