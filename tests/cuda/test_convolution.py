"""Convolutions by cuDNN and by the kernels for depthwise ones, against the CPU in double precision."""

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
    # Depthwise: with unrolled kernels,
    (F.conv2d, (3, 20, 13, 23), (20, 1, 3, 3), {"groups": 20, "padding": 1}),
    (F.conv2d, (2, 144, 14, 15), (144, 1, 3, 3), {"groups": 144, "padding": 1, "stride": 2}),
    (F.conv2d, (1, 10, 9, 30), (10, 1, 5, 5), {"groups": 10, "padding": 2}),
    (F.conv2d, (2, 36, 17, 16), (36, 1, 5, 5), {"groups": 36, "padding": (0, 2), "stride": 2}),
    (F.conv2d, (5, 132, 14, 14), (132, 1, 7, 7), {"groups": 132, "padding": 3}),
    (F.conv2d, (2, 7, 12, 19), (7, 1, 7, 7), {"groups": 7, "padding": 3, "stride": 2}),
    (F.conv2d, (1, 8, 1, 2), (8, 1, 3, 3), {"groups": 8, "padding": 4}),
    (F.conv_transpose2d, (2, 12, 7, 9), (12, 1, 3, 3), {"groups": 12, "stride": 2, "output_padding": 1}),
    # and without.
    (F.conv2d, (2, 6, 12, 13), (6, 1, 3, 3), {"groups": 6, "padding": 2, "dilation": (2, 3)}),
    (F.conv2d, (3, 5, 11, 9), (5, 1, 2, 4), {"groups": 5, "stride": (3, 1), "padding": (0, 3)}),
    (F.conv2d, (2, 70, 6, 6), (70, 1, 3, 3), {"groups": 70, "stride": (1, 2)}),
    (F.conv1d, (3, 24, 40), (24, 1, 4), {"groups": 24, "padding": 3, "dilation": 2}),
    (F.conv2d, (2, 8, 9, 9), (16, 1, 3, 3), {"groups": 8, "padding": 1}),
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


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_depthwise_bias(last, dtype):
    """In the kernel where its dtype is the input's, whatever the address and strides."""
    fl.manual_seed(0)
    x, w, bias = made((2, 16, 9, 9)).to(dtype), made((16, 1, 3, 3)).to(dtype), made((17, 2)).to(dtype)
    want = F.conv2d(x.double(), w.double(), bias[1:, 0].double(), padding=1, groups=16)
    if last:
        x = x.contiguous(memory_format=fl.channels_last)
    for b in (bias.cuda()[1:, 0], bias[1:, 0].contiguous().cuda()):
        y = F.conv2d(x.cuda(), w.cuda(), b, padding=1, groups=16)
        assert y.is_contiguous(memory_format=fl.channels_last if last else fl.contiguous_format)
        assert (y.cpu().double() - want).abs().max() <= TOLERANCE[dtype] * want.abs().max()


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16], ids=str)
def test_depthwise_unaligned_channels_last(dtype):
    fl.manual_seed(0)
    x, w = made((2, 8, 9, 7)).to(dtype), made((8, 1, 3, 3)).to(dtype)
    flat = fl.cat([fl.zeros(1, dtype=dtype), x.permute(0, 2, 3, 1).flatten()]).cuda()
    shifted = flat[1:].view(2, 9, 7, 8).permute(0, 3, 1, 2)
    want = F.conv2d(x.double(), w.double(), padding=1, groups=8)
    y = F.conv2d(shifted, w.cuda(), padding=1, groups=8)
    assert y.is_contiguous(memory_format=fl.channels_last)
    assert (y.cpu().double() - want).abs().max() <= TOLERANCE[dtype] * want.abs().max()


@pytest.mark.parametrize("last", [False, True])
def test_depthwise_of_many_blocks(last):
    """Sums of many blocks have the same bits in every run, and the values of the definition."""
    fl.manual_seed(0)
    x, w = made((32, 48, 56, 56)).float(), made((48, 1, 7, 7)).float()
    if last:
        x = x.contiguous(memory_format=fl.channels_last)

    def gradients(x, w):
        x, w = x.requires_grad_(), w.requires_grad_()
        y = F.conv2d(x, w, padding=3, groups=48)
        return [y.detach(), *fl.autograd.grad(y, (x, w), y.detach())]

    want = gradients(x.detach().cuda().double(), w.detach().cuda().double())
    got, again = (gradients(x.detach().cuda(), w.detach().cuda()) for _ in range(2))
    for a, b, c in zip(got, again, want):
        assert fl.equal(a, b)
        assert (a.double() - c).abs().max() <= 1e-5 * c.abs().max()


def test_depthwise_without_images():
    x, w = fl.zeros(0, 8, 5, 5, device="cuda", requires_grad=True), fl.ones(8, 1, 3, 3, device="cuda")
    y = F.conv2d(x, w.requires_grad_(), padding=1, groups=8)
    assert y.shape == (0, 8, 5, 5)
    y.sum().backward()
    assert x.grad.shape == x.shape and w.grad.abs().max() == 0


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
