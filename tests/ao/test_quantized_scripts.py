"""Scripts, traces and archives of quantized layers compute what the layers compute."""

import io

import pytest

import flambeau as fl
from flambeau.ao import quantization
from flambeau.ao.nn import quantized
from flambeau.ao.nn.intrinsic import quantized as fused
from flambeau.ao.nn.quantized import dynamic


def _quantized(*shape):
    return fl.quantize_per_tensor(fl.randn(*shape), 0.05, 100, fl.quint8)


def _weighted(layer):
    """A layer with other weights than zeros."""
    weight = layer.weight()
    layer.set_weight_bias(fl.quantize_per_tensor(fl.randn(weight.shape), 0.02, 0, fl.qint8), layer.bias())
    return layer


def _archived(program):
    stream = io.BytesIO()
    fl.jit.save(program, stream)
    stream.seek(0)
    return fl.jit.load(stream)


def _values(result):
    parts = result if isinstance(result, tuple) else (result,)
    return [v for part in parts for v in (_values(part) if isinstance(part, tuple) else [fl.dequantize(part)])]


def _same(first, second):
    return all(fl.equal(a, b) for a, b in zip(_values(first), _values(second), strict=True))


ones, zeros = fl.ones(4), fl.zeros(4)
LAYERS = {
    "Linear": (_weighted(quantized.Linear(4, 3)), (2, 4)),
    "LinearReLU": (_weighted(fused.LinearReLU(4, 3)), (2, 4)),
    "LinearLeakyReLU": (_weighted(fused.LinearLeakyReLU(4, 3, 0.2)), (2, 4)),
    "LinearTanh": (_weighted(fused.LinearTanh(4, 3)), (2, 4)),
    "Conv1d": (_weighted(quantized.Conv1d(2, 4, 3, stride=2, padding=1)), (1, 2, 7)),
    "Conv2d": (_weighted(quantized.Conv2d(2, 4, 3, padding=(1, 2), groups=2)), (1, 2, 6, 6)),
    "Conv2d reflected": (_weighted(quantized.Conv2d(2, 4, 3, padding=1, padding_mode="reflect")), (1, 2, 6, 6)),
    "ConvReLU3d": (_weighted(fused.ConvReLU3d(2, 4, 3)), (1, 2, 4, 4, 4)),
    "ConvTranspose1d": (_weighted(quantized.ConvTranspose1d(2, 4, 3)), (1, 2, 5)),
    "ConvTranspose2d": (
        _weighted(quantized.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1)),
        (1, 2, 5, 5),
    ),
    "Hardswish": (quantized.Hardswish(0.1, 3), (2, 4)),
    "ELU": (quantized.ELU(0.1, 3, 0.5), (2, 4)),
    "LeakyReLU": (quantized.LeakyReLU(0.1, 3, 0.2), (2, 4)),
    "Sigmoid": (quantized.Sigmoid(1 / 256, 0), (2, 4)),
    "PReLU": (quantized.PReLU(0.1, 3), (2, 4)),
    "Softmax": (quantized.Softmax(1, 1 / 256, 0), (2, 4)),
    "ReLU6": (quantized.ReLU6(), (2, 4)),
    "Dropout": (quantized.Dropout(), (2, 4)),
    "MaxPool2d": (quantized.MaxPool2d(2), (1, 2, 4, 4)),
    "BatchNorm2d": (quantized.BatchNorm2d(4).eval(), (2, 4, 3, 3)),
    "BNReLU3d": (fused.BNReLU3d(4).eval(), (2, 4, 3, 3, 3)),
    "LayerNorm": (quantized.LayerNorm(4, ones, zeros, 0.1, 3), (2, 4)),
    "GroupNorm": (quantized.GroupNorm(2, 4, ones, zeros, 0.1, 3), (2, 4, 3)),
    "InstanceNorm2d": (quantized.InstanceNorm2d(4, ones, zeros, 0.1, 3), (2, 4, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_scripted_layers_and_their_archives_agree_with_the_layer(name):
    layer, shape = LAYERS[name]
    x = _quantized(*shape)
    scripted = fl.jit.script(layer)
    assert _same(scripted(x), layer(x)) and _same(_archived(scripted)(x), layer(x))


@pytest.mark.parametrize(
    "layer, shape",
    [
        (dynamic.Linear(4, 3), (2, 4)),
        (dynamic.Linear(4, 3, dtype=fl.float16), (2, 4)),
        (dynamic.Conv1d(2, 4, 3), (1, 2, 6)),
        (dynamic.LSTM(4, 5, 2, bidirectional=True), (3, 2, 4)),
        (dynamic.GRU(4, 5, 2, batch_first=True), (3, 2, 4)),
        (dynamic.LSTMCell(4, 5), (2, 4)),
        (dynamic.GRUCell(4, 5), (2, 4)),
        (dynamic.RNNCell(4, 5, nonlinearity="relu"), (2, 4)),
    ],
    ids=str,
)
def test_scripted_dynamic_layers_and_their_archives_agree_with_the_layer(layer, shape):
    x = fl.randn(shape)
    scripted = fl.jit.script(layer)
    assert _same(scripted(x), layer(x)) and _same(_archived(scripted)(x), layer(x))


@pytest.mark.parametrize("dtype", [fl.quint8, fl.quint4x2])
def test_scripted_embedding_bags_agree_with_the_layer(dtype):
    bag = quantized.EmbeddingBag(10, 4, dtype=dtype)
    indices, offsets = fl.tensor([1, 2, 5]), fl.tensor([0, 1])
    assert _same(_archived(fl.jit.script(bag))(indices, offsets), bag(indices, offsets))


class _Arithmetic(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.functions = quantized.FloatFunctional()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()

    def forward(self, x):
        x = self.quant(x)
        x = self.functions.add(x, x)
        return self.dequant(x)


def _converted(model, x):
    model.eval().qconfig = quantization.get_default_qconfig("x86")
    prepared = quantization.prepare(model)
    prepared(x)
    return quantization.convert(prepared)


@pytest.mark.parametrize("wrapped", [False, True])
def test_converted_models_script_and_trace(wrapped):
    x = fl.randn(3, 4)
    model = quantization.QuantWrapper(fl.nn.Sequential(fl.nn.Linear(4, 4), fl.nn.ReLU())) if wrapped else _Arithmetic()
    model = _converted(model, x)
    scripted, traced = fl.jit.script(model), fl.jit.trace(model, x)
    other = fl.randn(5, 4)  # a trace must not hold the example as a constant
    for program in (scripted, traced, _archived(scripted), _archived(traced)):
        assert fl.equal(program(other), model(other))


def test_functions_of_quantized_tensors_are_traced():
    def function(x):
        q = fl.quantize_per_tensor(x, 0.05, 3, fl.quint8)
        r = fl.ops.quantized.add(fl.relu(q), q, 0.1, 4)
        return fl.nn.functional.max_pool2d(r, 2).dequantize()

    traced = fl.jit.trace(function, fl.rand(1, 1, 4, 4))
    x = fl.rand(1, 1, 4, 4)
    assert fl.equal(traced(x), function(x))


def test_tracing_leaves_the_model_as_it_was():
    x = fl.randn(3, 4)
    model = _converted(_Arithmetic(), x)
    before = list(model.modules())
    fl.jit.trace(model, x)
    assert [id(m) for m in model.modules()] == [id(m) for m in before]


def test_archives_hold_quantized_tensors_with_one_grid_or_many():
    class Holder(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = fl.quantize_per_tensor(fl.randn(2, 3), 0.1, 2, fl.qint8)
            self.many = fl.quantize_per_channel(fl.randn(2, 3), fl.tensor([0.1, 0.2]), fl.tensor([1, 2]), 0, fl.quint8)

        def forward(self):
            return self.one, self.many

    holder = Holder()
    one, many = _archived(fl.jit.script(holder))()
    assert one.q_zero_point() == 2 and fl.equal(one.int_repr(), holder.one.int_repr())
    assert many.q_per_channel_axis() == 0 and fl.equal(many.dequantize(), holder.many.dequantize())


def test_unknown_native_classes_of_archives_are_refused():
    from flambeau.jit._archive.pickling import native_object

    with pytest.raises(Exception, match="expected a class that flambeau has"):
        native_object("__torch__.torch.classes.quantized.Other")
