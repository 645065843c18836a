"""Quantized graphs compile to integer products, export to ONNX, and are packaged, with the same results."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import aoti_compile_and_package, aoti_load_package, build
from flambeau._inductor.quantized import compute_with_integers
from flambeau.ao import quantization
from flambeau.ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx, prepare_fx
from flambeau.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
from flambeau.ao.quantization.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from flambeau.ao.quantization.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.last = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x):
        x = fl.relu(self.first(x))
        x = fl.relu(self.second(x) + x)
        return self.last(fl.nn.functional.adaptive_avg_pool2d(fl.nn.functional.max_pool2d(x, 2), 2).flatten(1))


X = fl.randn(4, 3, 8, 8, generator=fl.Generator().manual_seed(3))
CONFIGURATIONS = {
    "static": lambda: X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config()),
    "seven bits": lambda: X86InductorQuantizer().set_global(
        get_default_x86_inductor_quantization_config(reduce_range=True)
    ),
    "dynamic": lambda: X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(is_dynamic=True)),
    "signed": lambda: XNNPACKQuantizer().set_global(get_symmetric_quantization_config(False)),
}


def quantized(name):
    fl.manual_seed(0)
    model = Network().eval()
    ready = prepare_pt2e(fl.export.export(model, (X,)).module(), CONFIGURATIONS[name]())
    ready(X)
    return model, convert_pt2e(ready)


def close(found, wanted, share=0.03):
    return (found - wanted).abs().max() <= share * wanted.abs().max()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_compiled_programs_compute_with_integers(name):
    model, small = quantized(name)
    compiled = fl.compile(small, fullgraph=True)
    assert close(compiled(X), small(X)) and close(compiled(X), model(X), 0.06)
    other = fl.randn(2, 3, 8, 8)
    assert close(compiled(other), small(other))


def calls(name):
    _, small = quantized(name)
    found = []

    def backend(graph, inputs):
        compute_with_integers(graph, differentiated=False)
        found.extend(getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes)
        return graph.forward

    fl.compile(small, backend=backend)(X)
    return found


def test_what_becomes_an_integer_product():
    static = calls("static")
    assert static.count("_int8_convolution") == 2 and static.count("_int8_linear") == 2
    assert not {"conv2d.default", "aten.relu.default", "aten.gelu.default", "aten.add.Tensor"} & set(static)
    assert calls("dynamic").count("_int8_linear_dynamic") == 2


@pytest.mark.parametrize("activation", [nn.ReLU6(), nn.Hardtanh(-0.5, 0.7), nn.ReLU(inplace=True)])
def test_bounds_are_set_on_integers(activation):
    fl.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), activation, nn.Conv2d(8, 4, 3)).eval()
    ready = prepare_pt2e(fl.export.export(model, (4 * X,)).module(), CONFIGURATIONS["static"]())
    ready(4 * X)
    small = convert_pt2e(ready)
    kinds = []

    def backend(graph, inputs):
        compute_with_integers(graph, differentiated=False)
        kinds.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    found = fl.compile(small, backend=backend)(4 * X)
    assert close(found, small(4 * X)) and not any("hardtanh" in kind or "relu" in kind for kind in kinds)


def test_graphs_with_derivatives_stay_in_floating_point():
    from flambeau.fx import symbolic_trace
    from flambeau.ops.quantized import arithmetic  # noqa: F401

    ops = fl.ops.quantized_decomposed
    weight = fl.ones(4, 4, dtype=fl.int8)

    def function(x):
        rounded = ops.dequantize_per_tensor.default(
            ops.quantize_per_tensor.default(x, 0.1, 0, -128, 127, fl.int8), 0.1, 0, -128, 127, fl.int8
        )
        held = ops.dequantize_per_tensor.default(weight, 0.1, 0, -128, 127, fl.int8)
        return fl.nn.functional.linear(rounded, held)

    graph = symbolic_trace(function)
    assert compute_with_integers(graph, differentiated=True) and "_int8" not in graph.code
    x = fl.randn(2, 4)
    assert fl.allclose(graph(x), function(x))


def test_traced_models_in_reference_form_compile():
    fl.manual_seed(0)
    model = Network().eval()
    ready = prepare_fx(model, quantization.get_default_qconfig_mapping("x86"), (X,))
    ready(X)
    reference = _convert_to_reference_decomposed_fx(ready)
    assert close(fl.compile(reference)(X), reference(X)) and close(reference(X), model(X), 0.1)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_onnx_has_quantize_and_dequantize(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    _, small = quantized(name)
    path = tmp_path / "model.onnx"
    fl.onnx.export(small, (X,), dynamo=True).save(path)
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert "QuantizeLinear" in kinds and "DequantizeLinear" in kinds
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    assert close(fl.from_numpy(found), small(X))


@pytest.mark.skipif(build.compiler() is None, reason="packages need a C++ compiler to be made")
@pytest.mark.parametrize("name", ["static", "dynamic"])
def test_packages(name, tmp_path):
    _, small = quantized(name)
    path = aoti_compile_and_package(fl.export.export(small, (X,)), package_path=str(tmp_path / "model.pt2"))
    assert close(aoti_load_package(path)(X), small(X))


def test_programs_are_saved_and_loaded(tmp_path):
    _, small = quantized("static")
    fl.export.save(fl.export.export(small, (X,)), tmp_path / "program.pt2")
    assert fl.equal(fl.export.load(tmp_path / "program.pt2").module()(X), small(X))
