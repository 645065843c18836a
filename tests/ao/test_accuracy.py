"""An image classifier loses less than a point in eight bits after training, and less than half a one when trained for it."""

import importlib.util
import pathlib

import pytest

import flambeau as fl
from flambeau.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from flambeau.ao.quantization.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)

PATH = pathlib.Path(__file__).parents[2] / "examples" / "quantization.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("quantization_example", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(example):
    fl.manual_seed(0)
    data, test = example.stripes(1024, 1), example.stripes(2000, 2)
    model = example.train(example.Classifier(), *data, 4, 2e-3)
    right = example.accuracy(model, *test)
    assert 60 < right < 99.9  # neither random nor so easy that nothing can be lost
    return model, data, test, right


def quantizer(**options):
    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(**options))


def test_traced_after_training(example, trained):
    model, data, test, right = trained
    small = example.quantized_after_training(model, list(data[0][:512].split(64)))
    assert example.accuracy(small, *test) >= right - 1.0


def test_traced_and_trained_with_rounding(example, trained):
    model, data, test, right = trained
    small = example.trained_with_rounding(model, *data, 1)
    assert example.accuracy(small, *test) >= right - 0.5


def test_exported_after_training(example, trained):
    model, data, test, right = trained
    sizes = {"x": {0: fl.export.Dim("batch", min=2, max=4096)}}
    prepared = prepare_pt2e(fl.export.export(model, (data[0][:4],), dynamic_shapes=sizes).module(), quantizer())
    with fl.no_grad():
        for batch in data[0][:512].split(64):
            prepared(batch)
    small = convert_pt2e(prepared)
    assert example.accuracy(small, *test) >= right - 1.0
    assert example.accuracy(fl.compile(small), *test) >= right - 1.0


def test_exported_and_trained_with_rounding(example, trained):
    import copy

    model, data, test, right = trained
    sizes = {"x": {0: fl.export.Dim("batch", min=2, max=4096)}}
    source = copy.deepcopy(model).train()
    program = fl.export.export(source, (data[0][:4],), dynamic_shapes=sizes).module()
    prepared = prepare_qat_pt2e(program, quantizer(is_qat=True))
    example.train(prepared, *data, 1, 2e-4)
    assert example.accuracy(convert_pt2e(prepared), *test) >= right - 0.5
