"""Archives of scripted quantized layers: each library runs those of the other, with the same integers."""

import io

import pytest
import torch

import flambeau as fl

WEIGHTS = torch.linspace(-1, 1, 4 * 2 * 3 * 3).reshape(4, 2, 3, 3)


def _layers(library, weights):
    """The same layers of either library: name, layer and input."""
    nnq = library.ao.nn.quantized
    relu = library.ao.nn.intrinsic.quantized
    x = weights[:2].reshape(1, 2, 3, 6) * 2
    q = library.quantize_per_tensor(x, 0.02, 100, library.quint8)

    def with_weight(layer, weight):
        layer.set_weight_bias(
            library.quantize_per_tensor(weight, 0.01, 0, library.qint8),
            library.ones(layer.out_features if hasattr(layer, "out_features") else layer.out_channels) * 0.3,
        )
        layer.scale, layer.zero_point = 0.05, 60
        return layer

    flat = library.quantize_per_tensor(x.reshape(6, 6)[:, :6], 0.02, 100, library.quint8)
    return {
        "linear": (with_weight(nnq.Linear(6, 12), weights.reshape(12, 6)), flat),
        "linear_relu": (with_weight(relu.LinearReLU(6, 12), weights.reshape(12, 6)), flat),
        "conv1d": (with_weight(nnq.Conv1d(2, 4, 3, padding=1), weights[:, :, 0]), library.quantize_per_tensor(x[:, :, 0], 0.02, 100, library.quint8)),
        "conv2d": (with_weight(nnq.Conv2d(2, 4, 3, padding=1), weights), q),
        "conv2d_relu": (with_weight(relu.ConvReLU2d(2, 4, 3, padding=(1, 2), stride=2), weights), q),
        "hardswish": (nnq.Hardswish(0.05, 60), q),
        "softmax": (nnq.Softmax(1, 1 / 256, 0), q),
        "elu": (nnq.ELU(0.05, 60), q),
    }  # fmt: skip


NAMES = ("linear", "linear_relu", "conv1d", "conv2d", "conv2d_relu", "hardswish", "softmax", "elu")


def _saved(library, layer):
    stream = io.BytesIO()
    library.jit.save(library.jit.script(layer), stream)
    stream.seek(0)
    return stream


@pytest.mark.parametrize("name", NAMES)
def test_archives_run_in_the_other_library(name):
    theirs, x = _layers(torch, WEIGHTS)[name]
    ours, y = _layers(fl, fl.from_numpy(WEIGHTS.numpy()))[name]
    wanted = torch.jit.script(theirs)(x).int_repr().int()
    read_here = fl.jit.load(_saved(torch, theirs))(y).int_repr().numpy()
    read_there = torch.jit.load(_saved(fl, ours))(x).int_repr().int()
    assert (torch.from_numpy(read_here).int() - wanted).abs().max() <= 1
    assert (read_there - wanted).abs().max() <= 1
