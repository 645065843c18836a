"""quantize_ and its configurations, in torchao's shape: near the originals, smaller, compiled, saved, under the alias."""

import importlib.util
import io
import subprocess
import sys

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import aoti_compile_and_package, aoti_load_package, build
from flambeau.ao.torchao.quantization import (
    Float8DynamicActivationFloat8WeightConfig,
    Float8WeightOnlyConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    ModuleFqnToConfig,
    PerGroup,
    PerRow,
    QuantizedLinear,
    quantize_,
)

without_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is not None, reason="the alias stands aside for torchao itself"
)

CONFIGURATIONS = {
    "int8": (Int8WeightOnlyConfig, 0.02),
    "int4": (lambda: Int4WeightOnlyConfig(group_size=32), 0.2),
    "int4 symmetric": (lambda: IntxWeightOnlyConfig(fl.int4, PerGroup(32)), 0.2),
    "int4 not cut off": (
        lambda: IntxWeightOnlyConfig(fl.int4, PerGroup(32), MappingType.SYMMETRIC_NO_CLIPPING_ERR),
        0.2,
    ),
    "int8 by rows": (IntxWeightOnlyConfig, 0.02),
    "int8 dynamic": (Int8DynamicActivationInt8WeightConfig, 0.03),
    "float8": (Float8WeightOnlyConfig, 0.1),
    "float8 dynamic": (Float8DynamicActivationFloat8WeightConfig, 0.15),
    "float8 dynamic by rows": (lambda: Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()), 0.15),
}


def network(dtype=fl.float32):
    fl.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Sequential(nn.Linear(128, 64, bias=False))).eval().to(dtype)


def bytes_of(model):
    return sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()])


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_results_are_near_and_models_smaller(name, dtype):
    make, share = CONFIGURATIONS[name]
    model, x = network(dtype), fl.randn(2, 5, 64).to(dtype)
    wanted, before = model(x), bytes_of(model)
    assert quantize_(model, make()) is None and isinstance(model[2][0], QuantizedLinear)
    found = model(x)
    assert found.shape == wanted.shape and found.dtype == dtype
    assert (found - wanted).abs().max() <= share * wanted.abs().max()
    assert bytes_of(model) < (0.4 if "int4" in name else 0.75) * before or "dynamic" in name
    difference = (model[0].weight.dequantize() - network(dtype)[0].weight).abs().max()
    assert difference < 0.02 and "scheme" in repr(model[0])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_they_are_compiled_and_exported(name):
    model, x = network(), fl.randn(3, 64)
    quantize_(model, CONFIGURATIONS[name][0]())
    wanted = model(x)
    fl.testing.assert_close(fl.compile(model, fullgraph=True)(x), wanted, atol=1e-3, rtol=1e-3)
    fl.testing.assert_close(fl.export.export(model, (x,)).module()(x), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if "float8 dynamic" not in name])
def test_they_export_to_onnx_with_the_same_results(name):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model, x = network(), fl.randn(3, 64)
    quantize_(model, CONFIGURATIONS[name][0]())
    wanted, file = model(x), io.BytesIO()
    fl.onnx.export(model, (x,), file)
    session = onnxruntime.InferenceSession(file.getvalue())
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    fl.testing.assert_close(fl.from_numpy(found), wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.skipif(build.compiler() is None, reason="packages need a C++ compiler to be made")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_they_are_packaged(name, tmp_path):
    model, x = network(), fl.randn(3, 64)
    quantize_(model, CONFIGURATIONS[name][0]())
    program = fl.export.export(model, (x,))
    path = aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    fl.testing.assert_close(aoti_load_package(path)(x), model(x), atol=1e-3, rtol=1e-3)
    fl.export.save(program, tmp_path / "program.pt2")
    fl.testing.assert_close(fl.export.load(tmp_path / "program.pt2").module()(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if "float8" not in name])
def test_they_are_traced_and_archived(name):
    model, x = network(), fl.randn(3, 64)
    quantize_(model, CONFIGURATIONS[name][0]())
    file = io.BytesIO()
    fl.jit.save(fl.jit.trace(model, (x,)), file)
    file.seek(0)
    assert fl.equal(fl.jit.load(file)(x), model(x))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_they_are_saved_and_loaded(name):
    model, other, x = network(), network(), fl.randn(3, 64)
    with fl.no_grad():
        other[0].weight.zero_()
    quantize_(model, CONFIGURATIONS[name][0]())
    quantize_(other, CONFIGURATIONS[name][0]())
    file = io.BytesIO()
    fl.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(fl.load(file))
    assert fl.equal(other(x), model(x))


def test_which_layers_are_taken():
    model = network()
    quantize_(
        model,
        Int8WeightOnlyConfig(),
        filter_fn=lambda module, name: name.startswith("2") and isinstance(module, nn.Linear),
    )
    assert type(model[0]) is nn.Linear and isinstance(model[2][0], QuantizedLinear)
    model = network()
    quantize_(model, ModuleFqnToConfig({"0": Int4WeightOnlyConfig(group_size=64), "_default": None}))
    assert model[0].scheme == "int4_weight" and type(model[2][0]) is nn.Linear
    model = nn.Sequential(nn.Linear(40, 8))
    quantize_(model, Int4WeightOnlyConfig(group_size=32))
    assert type(model[0]) is nn.Linear  # groups do not divide a row
    with pytest.raises(TypeError, match="configuration"):
        quantize_(model, "int8")
    with pytest.raises(ValueError, match="group_size"):
        Int4WeightOnlyConfig(group_size=7)


def test_symmetric_groups_take_half_a_bit_less_for_each_weight():
    sizes = {}
    for name, mapping in (("symmetric", MappingType.SYMMETRIC), ("asymmetric", MappingType.ASYMMETRIC)):
        model = nn.Sequential(nn.Linear(128, 64, bias=False)).bfloat16()
        quantize_(model, IntxWeightOnlyConfig(fl.int4, PerGroup(32), mapping))
        sizes[name] = bytes_of(model) * 8 / (128 * 64)
    assert sizes == {"symmetric": 4.5, "asymmetric": 5.0}
    with pytest.raises(NotImplementedError, match="int4 with PerGroup"):
        IntxWeightOnlyConfig(fl.int4)
    with pytest.raises(ValueError, match="multiple of 4"):
        IntxWeightOnlyConfig(fl.int4, PerGroup(6))


def test_layers_that_kernels_do_not_take_stay():
    model = nn.Sequential(nn.Linear(64, 20))
    quantize_(model, Int4WeightOnlyConfig(group_size=32))
    assert type(model[0]) is nn.Linear


@without_torchao
def test_under_the_name_of_torchao():
    program = (
        "import flambeau.as_torch, torch, torchao\n"
        "from torchao.quantization import Int8WeightOnlyConfig, quantize_\n"
        "from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e\n"
        "from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer\n"
        "model = torch.nn.Sequential(torch.nn.Linear(8, 8))\n"
        "quantize_(model, Int8WeightOnlyConfig())\n"
        "print(type(model[0]).__name__, prepare_pt2e.__module__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["Int8Linear", "flambeau.ao.quantization.quantize_pt2e"], done.stderr


@without_torchao
def test_libraries_that_look_for_torchao_do_without_it():
    pytest.importorskip("transformers")
    program = (
        "import flambeau.as_torch, transformers\n"
        "from transformers.utils import is_torchao_available\n"
        "import transformers.models.bert.modeling_bert\n"
        "print(is_torchao_available())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr
