"""Convolutions of bfloat16 with frozen weights: laid out once, with normalisation, residual sum and relu in the same call."""

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
