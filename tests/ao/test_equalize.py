"""Equalization of layers: what they compute stays, and channels between them use the same range of weights."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao.quantization import _equalize, fuse_modules


def _same_ranges(first, second):
    fl.testing.assert_close(_equalize.channel_range(first.weight, 0), _equalize.channel_range(second.weight, 1))


def test_a_chain_is_equalized_and_computes_the_same():
    chain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6))
    x = fl.randn(20, 3)
    wanted = chain(x)
    assert _equalize.equalize(chain, [["0", "2", "4"]], 1e-6) is chain
    _same_ranges(chain[0], chain[2])
    _same_ranges(chain[2], chain[4])
    fl.testing.assert_close(chain(x), wanted)


def test_fused_convolutions_and_copies():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    model = fuse_modules(model, [["0", "1"]])
    x = fl.randn(1, 3, 5, 5)
    equalized = _equalize.equalize(model, [[model[0], model[2]]], 1e-6, inplace=False)
    _same_ranges(equalized[0][0], equalized[2])
    fl.testing.assert_close(equalized(x), model(x))
    assert not fl.equal(equalized[2].weight, model[2].weight)


def test_channels_without_weights_stay():
    first, second = nn.Linear(2, 3), nn.Linear(3, 2)
    with fl.no_grad():
        first.weight[1] = 0.0
        second.weight[:, 2] = 0.0
    _equalize.cross_layer_equalization(first, second)
    assert first.weight.isfinite().all() and second.weight.isfinite().all()


def test_mistakes():
    with pytest.raises(ValueError, match="expected a linear layer or convolution"):
        _equalize.cross_layer_equalization(nn.ReLU(), nn.Linear(1, 1))
    with pytest.raises(TypeError, match="expected as many outputs as inputs"):
        _equalize.cross_layer_equalization(nn.Linear(1, 3), nn.Linear(2, 1))
    with pytest.raises(ValueError, match="groups of at least two"):
        _equalize.equalize(nn.Sequential(nn.Linear(1, 1)), [["0"]])
