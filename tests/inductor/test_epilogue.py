"""Convolutions that take normalisation, residual sum and relu along, when a compiled network is evaluated."""

import math

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import tune
from flambeau.nn import functional as F

pytestmark = pytest.mark.host

NOTHING = {"bias": None, "mean": None, "scale": None, "shift": None, "residual": None, "relu": False}


def finished(x, weight, padding, bias, mean, scale, shift, residual, relu, packed=None):
    return fl._ops._convolution_finished(x, weight, bias, mean, scale, shift, residual, relu, padding, packed)


def in_doubles(x, weight, padding, bias, mean, scale, shift, residual, relu):
    y = F.conv2d(x.double(), weight.double(), None, 1, padding)
    for value, combine in ((bias, fl.add), (mean, fl.sub), (scale, fl.mul), (shift, fl.add)):
        y = y if value is None else combine(y, value.double().reshape(1, -1, 1, 1))
    y = y if residual is None else y + residual.double()
    return y.relu() if relu else y


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("size", [(2, 5, 7, 9, 11), (1, 16, 3, 4, 4), (3, 70, 65, 3, 8), (1, 3, 64, 33, 2)])
@pytest.mark.parametrize("padding", [(0, 1), (1, 1), (2, 0), (1, 2)])
def test_values_are_those_of_a_convolution(size, padding, packs):
    batch, channels, out, height, width = size
    if width + 2 * padding[1] < 3 or height + 2 * padding[0] < 3:
        return
    fl.manual_seed(0)
    x, weight = fl.randn(batch, channels, height, width), fl.randn(out, channels, 3, 3)
    packed = fl._ops._convolution_packed(weight) if packs else None
    got = finished(x, weight, padding, **NOTHING, packed=packed)
    expected = in_doubles(x, weight, padding, **NOTHING)
    assert got.shape == expected.shape and got.is_contiguous(memory_format=fl.channels_last)
    fl.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("missing", ["nothing", "bias", "mean", "scale", "shift", "residual"])
def test_what_follows(missing):
    fl.manual_seed(1)
    x, weight = fl.randn(2, 20, 6, 7), fl.randn(33, 20, 3, 3)
    given = {name: fl.randn(33) for name in ("bias", "mean", "scale", "shift")}
    given["residual"] = fl.randn(2, 33, 6, 7)
    if missing in given:
        given[missing] = None
    for relu in (False, True):
        got = finished(x, weight, (1, 1), **given, relu=relu)
        fl.testing.assert_close(got.double(), in_doubles(x, weight, (1, 1), **given, relu=relu), rtol=1e-5, atol=1e-3)


def test_nan_is_not_hidden_by_relu():
    x = fl.zeros(1, 4, 4, 4)
    x[0, 0, 0, 0] = math.nan
    got = finished(x, fl.ones(3, 4, 3, 3), (1, 1), **{**NOTHING, "relu": True})
    assert got[0, :, 0, 0].isnan().all().item() and not got[0, :, 3, 3].isnan().any().item()


def test_arguments_are_checked():
    x, weight = fl.zeros(1, 4, 5, 5), fl.zeros(3, 4, 3, 3)
    with pytest.raises(RuntimeError, match="3 x 3"):
        finished(x, fl.zeros(3, 5, 3, 3), (1, 1), **NOTHING)
    with pytest.raises(RuntimeError, match="scale"):
        finished(x, weight, (1, 1), **{**NOTHING, "scale": fl.zeros(4)})
    with pytest.raises(RuntimeError, match="packed"):
        finished(x, weight, (1, 1), **NOTHING, packed=fl.zeros(7))
    with pytest.raises(RuntimeError, match="residual"):
        finished(x, weight, (1, 1), **{**NOTHING, "residual": fl.zeros(1, 3, 5, 4)})
    assert finished(fl.zeros(0, 4, 5, 5), weight, (1, 1), **NOTHING).shape == (0, 3, 5, 5)


class Block(nn.Module):
    """Two convolutions and one beside them, as in residual networks."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.Conv2d(64, 64, 3, padding=1)
        self.beside = nn.Conv2d(64, 64, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(64, affine=k != 1) for k in range(3))
        for norm in self.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.norms[2](self.beside(x))).mean((2, 3))


@pytest.fixture
def block():
    fl.manual_seed(2)
    return Block().eval(), fl.randn(4, 64, 8, 9)


def test_a_block_is_one_call_for_each_convolution(block, calls_of):
    model, x = block
    compiled = fl.compile(model)
    seen = calls_of(compiled, x)
    assert seen.count("_convolution_finished") == 3 and "relu" not in seen and "conv2d" not in seen
    with fl.no_grad():
        fl.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_changed_parameters_and_statistics_are_seen(block):
    model, x = block
    compiled = fl.compile(model)
    with fl.no_grad():
        compiled(x)
        for change in (model.norms[0].running_var, model.norms[2].weight, model.second.weight, model.beside.bias):
            change.mul_(1.5)
            fl.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        model.norms[0].running_mean.data += 1
        fl.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_derivatives_take_the_usual_way(block):
    model, x = block
    compiled = fl.compile(model)
    x.requires_grad_()
    (got,) = fl.autograd.grad(compiled(x).square().sum(), x)
    (expected,) = fl.autograd.grad(model(x).square().sum(), x)
    fl.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_the_option_turns_it_off(block, calls_of):
    model, x = block
    assert "_convolution_finished" not in calls_of(fl.compile(model, options={"epilogue_fusion": False}), x)


@pytest.mark.parametrize("way", [0, 1])
def test_autotuning_takes_what_was_measured_as_quicker(block, way, monkeypatch, tmp_path, calls_of):
    model, x = block
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    measured = []

    def best(run, wait=None):
        run()
        measured.append(run)
        return abs((len(measured) - 1) % 2 - way)  # the first of two ways, or the second, took no time

    monkeypatch.setattr(tune, "_best", best)
    options = {"max_autotune": True}
    seen = calls_of(fl.compile(model, options=options), x)
    assert seen.count("_convolution_finished") == 3 * way and seen.count("conv2d") == 3 - 3 * way
    count = len(measured)
    assert count >= 2
    assert calls_of(fl.compile(Block().eval(), options=options), x).count("conv2d") == 3 - 3 * way
    assert len(measured) == count  # it is remembered


def between_is_returned(x, weight):
    y = F.conv2d(x, weight, None, 1, 1)
    return y.relu(), y.amax((2, 3))


def between_is_used_twice(x, weight):
    y = F.conv2d(x, weight, None, 1, 1).relu()
    return (y + y).sum((2, 3)), (y * 2 - 1).amax((2, 3))


def between_is_written(x, weight):
    y = F.conv2d(x, weight, None, 1, 1)
    x.mul_(2)
    return (F.conv2d(y.relu_(), weight, None, 1, 1) + x).mean((2, 3))


def sum_with_itself(x, weight):
    y = F.conv2d(x, weight, None, 1, 1)
    return F.conv2d(y + y, weight, None, 1, 1).mean((2, 3))


@pytest.mark.parametrize("f", [between_is_returned, between_is_used_twice, between_is_written, sum_with_itself])
def test_what_others_see_stays(f):
    fl.manual_seed(3)
    x, weight = fl.randn(4, 64, 8, 8), fl.randn(64, 64, 3, 3) * 0.05
    mine, other = x.clone(), x.clone()
    got, expected = fl.compile(f)(mine, weight), f(other, weight)
    for a, b in zip(
        got if isinstance(got, tuple) else (got,), expected if isinstance(expected, tuple) else (expected,)
    ):
        fl.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert fl.equal(mine, other)
