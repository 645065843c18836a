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
    (F.conv2d, (8, 64, 8, 8), (128, 64, 3, 3), {"stride": 2, "padding": 1}),
    (F.conv2d, (8, 64, 8, 8), (128, 64, 1, 1), {"stride": 2}),
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


def problem(dtype=fl.bfloat16):
    fl.manual_seed(0)
    x, w = fl.randn(8, 32, 14, 14), fl.randn(48, 32, 3, 3)
    return [t.to("cuda", dtype).contiguous(memory_format=fl.channels_last) for t in (x, w)]


def gradients(x, w):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = F.conv2d(x, w, padding=1)
    return [y.detach(), *fl.autograd.grad(y.float().square().sum(), (x, w))]


def test_recorded():
    """A graph replays the convolutions that were recorded, on what its inputs hold then."""
    x, w = problem()
    graph, stream = fl.cuda.CUDAGraph(), fl.cuda.Stream()
    with fl.cuda.stream(stream):
        gradients(x, w)
    fl.cuda.synchronize()
    with fl.cuda.graph(graph, stream=stream):
        got = gradients(x, w)
    x.copy_(x.roll(1, 0))
    graph.replay()
    fl.cuda.synchronize()
    for a, b in zip(got, gradients(x, w)):
        assert (a - b).abs().max() <= 2e-2 * b.abs().max()


def test_recorded_at_first_use():
    x, w = (t[:, :24].contiguous(memory_format=fl.channels_last) for t in problem())
    F.conv2d(x[:, :8], w[:, :8], padding=1)  # the library is loaded
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        y = F.conv2d(x, w, padding=1)
    graph.replay()
    fl.cuda.synchronize()
    want = F.conv2d(x, w, padding=1)
    assert (y - want).abs().max() <= 2e-2 * want.abs().max()


def test_streams():
    """Work goes to the current stream, in its order."""
    x, w = problem()
    want = gradients(x, w)
    fl.cuda.synchronize()
    streams = [fl.cuda.Stream() for _ in range(3)]
    for turn in range(6):
        with fl.cuda.stream(streams[turn % 3]):
            later = fl.zeros_like(x)
            for _ in range(20):
                later.add_(x, alpha=0.05)
            got = gradients(later.copy_(x), w)
        streams[turn % 3].synchronize()
        for a, b in zip(got, want):
            assert (a - b).abs().max() <= 2e-2 * b.abs().max()


def test_deterministic():
    x, w = problem()
    before = fl.backends.cudnn.deterministic
    fl.backends.cudnn.deterministic = True
    try:
        first = gradients(x, w)
        for _ in range(5):
            assert all(fl.equal(a, b) for a, b in zip(first, gradients(x, w)))
    finally:
        fl.backends.cudnn.deterministic = before


def test_single_precision_without_rounding():
    x, w = problem(fl.float32)
    want = F.conv2d(x.double().cpu(), w.double().cpu(), padding=1)
    fl.backends.cudnn.allow_tf32 = False
    try:
        error = (F.conv2d(x, w, padding=1).double().cpu() - want).abs().max()
    finally:
        fl.backends.cudnn.allow_tf32 = True
    assert error <= 2e-6 * want.abs().max()
