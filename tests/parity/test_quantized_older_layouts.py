"""Checkpoints and archives of quantized layers in the layouts of older versions of PyTorch."""

import io
import zipfile

import numpy as np
import pytest

import flambeau as fl
from flambeau.ao.quantized_operators.layers import PackedConvolution

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


def weight(shape):
    values = np.random.RandomState(0).standard_normal(shape).astype(np.float32)
    return fl.quantize_per_tensor(fl.from_numpy(values), 0.02, 0, fl.qint8)


def quantized(shape):
    values = np.random.RandomState(1).standard_normal(shape).astype(np.float32)
    return fl.quantize_per_tensor(fl.from_numpy(values), 0.05, 120, fl.quint8)


def linear():
    layer = fl.ao.nn.quantized.Linear(3, 4)
    layer.set_weight_bias(weight((4, 3)), fl.arange(4).float())
    layer.scale, layer.zero_point = 0.1, 100
    return layer


@pytest.mark.parametrize("prefix", ["", "_packed_params."])
def test_linear_layers(prefix):
    """The first layout has weight and bias beside scale and zero point, the second below the packed parameters."""
    layer = linear()
    state = {"scale": fl.tensor(0.1), "zero_point": fl.tensor(100)}
    state |= {f"{prefix}weight": layer.weight(), f"{prefix}bias": layer.bias()}
    other = fl.ao.nn.quantized.Linear(3, 4)
    other.load_state_dict(state | ({"_packed_params.dtype": fl.qint8} if prefix else {}))
    x = quantized((5, 3))
    assert fl.equal(other(x).int_repr(), layer(x).int_repr())


@pytest.mark.parametrize("version", [1, 2, 3])
def test_packed_convolutions(version):
    layer = fl.ao.nn.quantized.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
    layer.set_weight_bias(weight((6, 2, 3, 3)), fl.arange(6).float())
    numbers = [2, 2, 2, 1, 1, 1, 1, 0, 0, 2, 0]
    held, bias = layer.weight(), layer.bias()
    of = lambda *values: [fl.tensor([n]) for n in values]  # noqa: E731
    state = {
        1: (held, bias, of(2, 2), of(1, 1), of(1, 1), fl.tensor([2])),
        2: ("2", [fl.tensor(numbers, dtype=fl.int16), held], [bias]),
        3: (3, numbers, [None, held, bias]),
    }[version]
    packed = PackedConvolution.__new__(PackedConvolution)
    packed.set_script_state(state)
    x = quantized((1, 4, 7, 7))
    assert fl.equal(packed.layer.on_grid(x, 0.1, 3, "none").int_repr(), layer.on_grid(x, 0.1, 3, "none").int_repr())


def test_archives_that_declare_packed_weights_as_tensors():
    layer = torch.ao.nn.quantized.Linear(3, 4)
    file, older = io.BytesIO(), io.BytesIO()
    torch.jit.save(torch.jit.script(layer), file)
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(older, "w") as target:
        for name in source.namelist():
            if not name.endswith(".debug_pkl"):
                text = source.read(name)
                declared = b"_packed_params : __torch__.torch.classes.quantized.LinearPackedParamsBase"
                target.writestr(name, text.replace(declared, b"_packed_params : Tensor"))
    older.seek(0)
    x = np.random.RandomState(1).standard_normal((5, 3)).astype(np.float32)
    results = [
        model(lib.quantize_per_tensor(lib.from_numpy(x), 0.05, 120, lib.quint8)).int_repr().numpy()
        for lib, model in ((torch, layer), (fl, fl.jit.load(older)))
    ]
    np.testing.assert_array_equal(*results)


def test_ranges_of_channels():
    observer = fl.ao.quantization.PerChannelMinMaxObserver()
    state = {"eps": fl.tensor([1e-7]), "min_vals": fl.tensor([-1.0, -2.0]), "max_vals": fl.tensor([3.0, 1.0])}
    observer.load_state_dict(state)
    assert observer.min_val.tolist() == [-1, -2] and observer.max_val.tolist() == [3, 1]
