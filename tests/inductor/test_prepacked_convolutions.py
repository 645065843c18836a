"""Convolutions of bfloat16 with frozen weights: laid out once, with normalisation, residual sum and relu in the same call;
those of 3 x 3 by Winograd's algorithm where that is quicker."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import config

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(
        fl._C._cpu_capability() not in ("avx512_bf16", "amx") or not fl.backends.mkldnn.is_available(),
        reason="needs oneDNN and a processor that multiplies bfloat16",
    ),
]


class Block(nn.Module):
    def __init__(self, bias=False, groups=1, stride=1):
        super().__init__()
        self.first = nn.Conv2d(16, 32, 3, stride, 1, groups=groups, bias=bias)
        self.norm = nn.BatchNorm2d(32)
        self.second = nn.Conv2d(16, 32, 1, stride, bias=bias)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)

    def forward(self, x):
        return (self.norm(self.first(x)) + self.second(x)).relu()


def _image(*size):
    return fl.randn(*size).bfloat16().contiguous(memory_format=fl.channels_last)


@pytest.mark.parametrize("settings", [{}, {"bias": True}, {"groups": 4}, {"stride": 2}], ids=str)
def test_frozen_blocks_agree_with_single_precision(settings, calls_of):
    fl.manual_seed(0)
    block, x = Block(**settings).eval(), _image(2, 16, 9, 7)
    wanted = block(x.float())
    block = block.bfloat16().to(memory_format=fl.channels_last)
    with fl.no_grad(), config.patch(freezing=True):
        compiled = fl.compile(block)
        assert calls_of(compiled, x).count("_convolution_prepacked") == 2
        got = compiled(x)
    assert got.dtype is fl.bfloat16 and got.is_contiguous(memory_format=fl.channels_last)
    fl.testing.assert_close(got.float(), wanted, rtol=0.02, atol=0.03)


def test_changed_parameters_and_statistics_are_seen():
    block, x = Block().eval().bfloat16(), _image(1, 16, 8, 8)
    with fl.no_grad(), config.patch(freezing=True):
        compiled = fl.compile(block)
        compiled(x)
        block.first.weight.mul_(2.0)
        block.norm.running_mean.add_(1.0)
        fl.testing.assert_close(compiled(x), block(x), rtol=0.03, atol=0.06)


def test_weights_packed_for_other_threads_are_laid_out_again():
    x, weight = _image(1, 64, 12, 12), fl.randn(96, 64, 3, 3).bfloat16()
    settings = [1, 1], [1, 1], [1, 1], 1
    results = []
    before = fl.get_num_threads()
    try:
        for threads in (1, 2, 3):
            fl.set_num_threads(threads)
            packed = fl._ops._convolution_prepack(weight, list(x.shape), *settings)
            fl.set_num_threads(4 - threads)
            results.append(
                fl._ops._convolution_prepacked(x, packed, list(weight.shape), None, None, None, False, *settings)
            )
    finally:
        fl.set_num_threads(before)
    wanted = fl.nn.functional.conv2d(x.float(), weight.float(), None, 1, 1)
    for result in results:
        fl.testing.assert_close(result.float(), wanted, rtol=0.01, atol=0.01)


def test_weights_of_another_geometry_are_refused():
    x, weight = _image(1, 16, 8, 8), fl.randn(32, 16, 3, 3).bfloat16()
    settings = [1, 1], [1, 1], [1, 1], 1
    packed = fl._ops._convolution_prepack(weight, list(x.shape), *settings)
    with pytest.raises(RuntimeError, match="packed for this processor and geometry"):
        fl._ops._convolution_prepacked(x, packed, [64, 16, 3, 3], None, None, None, False, *settings)
    with pytest.raises(RuntimeError, match="expected a batch of images"):
        fl._ops._convolution_prepacked(x, packed, [32, 8, 3, 3], None, None, None, False, *settings)


def test_statistics_that_are_not_frozen_are_left_to_their_operator(calls_of):
    block, x = Block().train().bfloat16(), _image(2, 16, 8, 8)
    with fl.no_grad(), config.patch(freezing=True):
        compiled = fl.compile(block)
        assert calls_of(compiled, x).count("native_batch_norm") == 1


transformed = pytest.mark.skipif(
    fl._C._cpu_capability() != "avx512_bf16", reason="needs products of 16-bit integers as quick as those of bfloat16"
)


def _finished(x, weight, residual=None, relu=False, padding=1):
    packed = fl._ops._convolution_packed(weight)
    return fl._ops._convolution_finished(x, weight, None, None, None, None, residual, relu, [padding, padding], packed)


def _exact(x, weight, padding=1):
    return fl.nn.functional.conv2d(x.double(), weight.double(), None, 1, padding)


def _error(got, wanted):
    return (got.double() - wanted).square().mean().sqrt()


@transformed
@pytest.mark.parametrize(
    "size", [(1, 64, 9, 8, 64), (2, 32, 5, 12, 48), (1, 160, 6, 6, 33), (1, 512, 7, 7, 64), (1, 96, 1, 70, 16)], ids=str
)
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_transformed_convolutions_add_little_to_the_error_of_rounding(size, padding):
    fl.manual_seed(0)
    batch, channels, height, width, outputs = size
    if min(height, width) + 2 * padding < 3:
        pytest.skip("no room for the kernel")
    x = _image(batch, channels, height, width).relu()
    weight = fl.randn(outputs, channels, 3, 3).div(channels**0.5).bfloat16()
    wanted = _exact(x, weight, padding)
    rounding = _error(wanted.bfloat16(), wanted)
    assert _error(_finished(x, weight, padding=padding), wanted) < 1.3 * rounding
    residual = fl.randn(*wanted.shape).bfloat16().contiguous(memory_format=fl.channels_last)
    wanted = (wanted + residual.double()).relu()
    got = _finished(x, weight, residual, True, padding)
    assert _error(got, wanted) < 1.3 * _error(wanted.bfloat16(), wanted)


@transformed
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e6, 1e30], ids=str)
def test_activations_that_leave_no_digits_are_not_transformed(value):
    fl.manual_seed(0)
    x, weight = _image(1, 64, 8, 8), fl.randn(32, 64, 3, 3).bfloat16()
    x[0, 5, 2, 3] = value
    wanted = fl.nn.functional.conv2d(x.float(), weight.float(), None, 1, 1)
    fl.testing.assert_close(_finished(x, weight).float(), wanted, rtol=0.01, atol=0.01, equal_nan=True)


@transformed
@pytest.mark.parametrize("scale", [1e-35, 1e-12, 1e-6, 1e6, 1e18], ids=str)
def test_transformed_convolutions_keep_their_digits_at_any_scale(scale):
    fl.manual_seed(0)
    x, weight = _image(1, 64, 8, 8) * scale, fl.randn(32, 64, 3, 3).bfloat16()
    wanted = _exact(x, weight)
    assert _error(_finished(x, weight), wanted) < 1.3 * _error(wanted.bfloat16(), wanted)


@transformed
def test_kernels_that_are_not_finite_are_not_transformed():
    x, weight = _image(1, 32, 8, 8), fl.randn(32, 32, 3, 3).bfloat16()
    weight[3, 4, 1, 1] = float("inf")
    wanted = fl.nn.functional.conv2d(x.float(), weight.float(), None, 1, 1)
    fl.testing.assert_close(_finished(x, weight).float(), wanted, rtol=0.01, atol=0.01, equal_nan=True)


@transformed
def test_kernels_of_zeros_and_images_of_zeros_give_zeros():
    x, weight = _image(1, 32, 8, 8), fl.randn(32, 32, 3, 3).bfloat16()
    assert not _finished(x, weight * 0).any() and not _finished(x * 0, weight).any()


@transformed
def test_frozen_networks_transform_where_it_pays_and_see_changed_weights(calls_of):
    fl.manual_seed(0)
    layers = nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 2)
    network, x = nn.Sequential(*layers).eval().bfloat16(), _image(1, 64, 16, 16)
    with fl.no_grad(), config.patch(freezing=True):
        compiled = fl.compile(network)
        calls = calls_of(compiled, x)
        assert calls.count("_convolution_finished") == calls.count("_convolution_prepacked") == 1
        fl.testing.assert_close(compiled(x), network(x), rtol=0.03, atol=0.03)
        network[0].weight.mul_(-1.0)
        fl.testing.assert_close(compiled(x), network(x), rtol=0.03, atol=0.03)


@transformed
def test_packed_kernels_of_another_form_are_refused():
    x, weight = _image(1, 32, 8, 8), fl.randn(32, 32, 3, 3).bfloat16()
    for packed in (None, fl._ops._convolution_packed(weight.float()), fl._ops._convolution_packed(weight)[:-1]):
        with pytest.raises(RuntimeError, match="expected the packed form of the weights"):
            fl._ops._convolution_finished(x, weight, None, None, None, None, None, False, [1, 1], packed)
