"""Convolutions by cuDNN against the CPU in double precision."""

import pytest

import flambeau as fl

F = fl.nn.functional
TOLERANCE = {fl.float64: 1e-10, fl.float32: 2e-4, fl.float16: 2e-2, fl.bfloat16: 1e-1}
# function, shapes of input and weight, options
CASES = [
    (F.conv2d, (4, 16, 12, 12), (8, 16, 3, 3), {"padding": 1}),
    (F.conv2d, (2, 3, 15, 13), (6, 3, 5, 3), {"stride": (2, 1), "padding": (2, 0)}),
    (F.conv2d, (2, 8, 9, 9), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
    (F.conv2d, (2, 8, 11, 11), (4, 4, 3, 3), {"groups": 2, "dilation": 2}),
    (F.conv2d, (1, 32, 1, 1), (16, 32, 1, 1), {}),
    (F.conv1d, (3, 5, 20), (7, 5, 4), {"stride": 3, "padding": 2}),
    (F.conv3d, (1, 4, 6, 7, 5), (3, 4, 2, 3, 3), {"padding": 1}),
    (F.conv_transpose2d, (2, 6, 7, 7), (6, 4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
]


def made(shape):
    """Numbers that every dtype has."""
    return fl.randn(shape, dtype=fl.float64).to(fl.bfloat16)


def run(device, dtype, case, last, shift):
    function, shape, weights, options = CASES[case]
    fl.manual_seed(case)
    x, w = made(shape).to(dtype), made(weights).to(dtype)
    if last and len(shape) == 4:
        x, w = (t.contiguous(memory_format=fl.channels_last) for t in (x, w))
    x, w = x.to(device).requires_grad_(), w.to(device).requires_grad_()
    # At an address that is no multiple of 16.
    given = fl.cat([fl.zeros(1, dtype=dtype, device=device), x.flatten()])[1:].view(shape) if shift else x
    y = function(given, w, **options)
    y.backward(made(y.shape).to(dtype).to(device))
    return y, x.grad, w.grad


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_convolutions(case, dtype, last, shift):
    want = run("cpu", fl.float64, case, False, False)
    for got, expected in zip(run("cuda", dtype, case, last, shift), want):
        error = (got.detach().cpu().double() - expected).abs().max() / expected.abs().max()
        assert error.item() <= TOLERANCE[dtype], error.item()
