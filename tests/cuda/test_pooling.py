"""Maxima over windows and their gradients on the device, by words of channels and element by element, beside the CPU."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F

WINDOWS = [
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0), "dilation": (2, 1)},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("layout", [fl.contiguous_format, fl.channels_last])
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float64])
def test_maxima_and_their_gradients(dtype, layout, channels, window):
    x = fl.randn(3, channels, 13, 10).round(decimals=1).to(dtype).contiguous(memory_format=layout)
    want, got = x.clone().requires_grad_(), x.cuda().requires_grad_()
    values, places = F.max_pool2d(want, **window, return_indices=True)
    made, where = F.max_pool2d(got, **window, return_indices=True)
    assert fl.equal(made.cpu(), values) and fl.equal(where.cpu(), places)
    assert made.is_contiguous(memory_format=layout)
    gradient = fl.randn(values.shape).to(dtype)
    values.backward(gradient)
    made.backward(gradient.cuda())
    fl.testing.assert_close(got.grad.cpu(), want.grad)
    again = x.cuda().requires_grad_()
    F.max_pool2d(again, **window).backward(gradient.cuda())
    assert fl.equal(again.grad, got.grad)


def test_maxima_in_one_and_three_dimensions():
    for pool, shape in ((F.max_pool1d, (2, 3, 17)), (F.max_pool3d, (2, 3, 7, 6, 8))):
        x = fl.randn(shape)
        want, got = x.clone().requires_grad_(), x.cuda().requires_grad_()
        pool(want, 3, 2, 1).square().sum().backward()
        pool(got, 3, 2, 1).square().sum().backward()
        fl.testing.assert_close(got.grad.cpu(), want.grad)
