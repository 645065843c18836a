"""Exported programs quantized by torchao's flow and by ours: the same grids, and results within a step of them."""

import importlib

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")

NUMBERS = np.random.RandomState(0)


def convolutional(lib):
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(144, 10),
    )  # fmt: skip


def residual(lib):
    class Residual(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = lib.nn.Conv2d(3, 3, 3, padding=1), lib.nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return lib.relu(self.second(lib.relu(self.first(x))) + x)

    return Residual()


def perceptron(lib):
    return lib.nn.Sequential(lib.nn.Flatten(), lib.nn.Linear(3 * 14 * 14, 32), lib.nn.ReLU(), lib.nn.Linear(32, 7))


def quantize(lib, build, weights, images, settings):
    pt2e = "flambeau.ao.quantization" if lib is fl else "torchao.quantization.pt2e"
    flow = importlib.import_module(f"{pt2e}.quantize_pt2e")
    x86 = importlib.import_module(f"{pt2e}.quantizer.x86_inductor_quantizer")
    model = build(lib)
    with lib.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(lib.tensor(weights[name]))
    model.eval()
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(**settings))
    values = [lib.tensor(image) for image in images]
    prepared = flow.prepare_pt2e(lib.export.export(model, (values[0],)).module(), quantizer)
    with lib.no_grad():
        for value in values:
            prepared(value)
        program = flow.convert_pt2e(prepared)
        return program, [program(value).numpy() for value in values]


def grids(program):
    """The distinct scales and zero points of activations."""
    kinds = ("quantize_per_tensor.default", "dequantize_per_tensor.default")
    nodes = [n for n in program.graph.nodes if n.op == "call_function" and str(n.target).endswith(kinds)]
    return sorted({(float(n.args[1]), int(n.args[2])) for n in nodes})


@pytest.mark.parametrize("settings", [{}, {"is_dynamic": True}], ids=["static", "dynamic"])
@pytest.mark.parametrize("build", [convolutional, residual, perceptron], ids=lambda build: build.__name__)
def test_flows_agree(build, settings):
    images = [NUMBERS.standard_normal((4, 3, 14, 14)).astype(np.float32) for _ in range(3)]
    weights = {
        name: np.abs(NUMBERS.standard_normal(tuple(t.shape)) * 0.2 + 0.1).astype(np.float32)
        if "running_var" in name
        else (NUMBERS.standard_normal(tuple(t.shape)) * 0.2).astype(np.float32)
        for name, t in build(torch).state_dict().items()
        if t.is_floating_point()
    }
    ours, got = quantize(fl, build, weights, images, settings)
    theirs, wanted = quantize(torch, build, weights, images, settings)
    for (scale, zero), (their_scale, their_zero) in zip(grids(ours), grids(theirs), strict=True):
        assert abs(scale - their_scale) <= 1e-4 * their_scale and abs(zero - their_zero) <= 1
    for one, other in zip(got, wanted, strict=True):
        assert np.abs(one - other).max() <= 0.02 * np.abs(other).max()
