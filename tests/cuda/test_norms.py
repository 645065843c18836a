"""Normalisation on the device against the CPU in double precision; copies of rows that lie on other places of words."""

import pytest

import flambeau as fl

F = fl.nn.functional
TOLERANCE = {fl.float64: 1e-10, fl.float32: 2e-4, fl.float16: 1e-2, fl.bfloat16: 6e-2}
DTYPES = list(TOLERANCE)
# Planes of whole words and others, many and few, rows of channels, one value at a place, three dimensions of space.
SHAPES = [(8, 16, 16, 16), (3, 5, 7, 7), (64, 3, 32, 32), (5, 24), (6, 1), (4, 10, 9), (2, 4, 3, 4, 8), (2, 260, 4, 4)]


def made(shape, dtype, seed, offset=0.0):
    fl.manual_seed(seed)
    return (fl.randn(shape, dtype=fl.float64) * 1.5 + offset).to(dtype)


def agree(got, want, dtype, scale=1.0):
    got = got.detach().cpu().to(fl.float64)
    assert got.shape == want.shape
    error = ((got - want).abs() / want.abs().clamp(min=1)).max().item() if want.numel() else 0
    assert error <= TOLERANCE[dtype] * scale, error


def arranged(x, layout):
    if layout == "last" and x.dim() in (4, 5):
        return x.contiguous(memory_format=fl.channels_last if x.dim() == 4 else fl.channels_last_3d)
    if layout == "gaps":
        return fl.stack([x, x], -1)[..., 0]
    return x


def batch_norm(device, x, grad, layout, parameters, training, affine, tracked):
    """Result, gradients and running statistics."""
    channels = x.shape[1]
    x = x.to(device).clone().requires_grad_()
    made_of = {"device": device, "dtype": parameters}
    weight = bias = mean = var = None
    if affine:
        weight = made((channels,), fl.bfloat16, 5).to(**made_of).requires_grad_()
        bias = made((channels,), fl.bfloat16, 6).to(**made_of).requires_grad_()
    if tracked:
        mean, var = (
            made((channels,), fl.bfloat16, 7).to(**made_of),
            made((channels,), fl.bfloat16, 8).abs().to(**made_of),
        )
    out = F.batch_norm(arranged(x, layout), mean, var, weight, bias, training, 0.3, 1e-3)
    out.backward(grad.to(device))
    return [t for t in (out, x.grad, *((weight.grad, bias.grad) if affine else ()), mean, var) if t is not None]


@pytest.mark.parametrize("layout", ["plain", "last", "gaps"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_norm(dtype, shape, layout):
    x, grad = made(shape, dtype, 1, 2.0), made(shape, dtype, 2)
    narrow = dtype in (fl.float16, fl.bfloat16)
    for training in (True, False):
        for affine, tracked, parameters in ((True, True, dtype), (False, not training, dtype), (True, True, None)):
            if parameters is None and not narrow:
                continue
            parameters = parameters or fl.float32
            got = batch_norm("cuda", x, grad, layout, parameters, training, affine, tracked)
            want = batch_norm("cpu", x.double(), grad.double(), "plain", fl.float64, training, affine, tracked)
            assert got[0].stride() == (arranged(x, layout) if layout == "last" else x).stride()
            count = x.numel() // x.shape[1]
            for k, (g, w) in enumerate(zip(got, want)):
                # Sums grow with the number of what is summed.
                agree(g, w, dtype, 4 if k < 2 else max(4, count / 64))


def test_batch_norm_of_distant_numbers():
    """The variance is not lost in a large mean."""
    x = made((64, 8, 16, 16), fl.float64, 3) + 3000
    for layout in ("plain", "last"):
        got = F.batch_norm(arranged(x.float().cuda(), layout), None, None, training=True)
        agree(got, F.batch_norm(x.float().double(), None, None, training=True), fl.float32, 10)


def test_batch_norm_is_the_same_every_time():
    x = made((32, 64, 32, 32), fl.float32, 4).cuda()
    first = F.batch_norm(x, None, None, training=True)
    for _ in range(3):
        assert fl.equal(F.batch_norm(x, None, None, training=True), first)


def test_batch_norm_refuses_single_values():
    with pytest.raises(ValueError):
        F.batch_norm(fl.randn(1, 3, device="cuda"), None, None, training=True)
    with pytest.raises(RuntimeError):
        F.batch_norm(fl.randn(4, 3, device="cuda"), None, None)
    with pytest.raises(RuntimeError):
        F.batch_norm(fl.randn(4, 3, device="cuda"), None, None, fl.ones(4, device="cuda"), training=True)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_module(momentum, tracked):
    here, there = (
        fl.nn.BatchNorm2d(6, momentum=momentum, track_running_stats=tracked).to(device) for device in ("cpu", "cuda")
    )
    for step in range(3):
        x = made((4, 6, 5, 5), fl.float32, step)
        agree(there(x.cuda()), here(x).double(), fl.float32)
    here.eval(), there.eval()
    agree(there(x.cuda()), here(x).double(), fl.float32)
    for name, value in here.state_dict().items():
        agree(there.state_dict()[name], value.double(), fl.float32)


def test_second_derivative_of_batch_norm():
    results = []
    for device in ("cpu", "cuda"):
        x = made((4, 3, 5), fl.float64, 9).to(device).requires_grad_()
        weight = made((3,), fl.float64, 10).to(device).requires_grad_()
        out = F.batch_norm(x, None, None, weight, training=True)
        first = fl.autograd.grad((out * out * out).sum(), x, create_graph=True)[0]
        results.append(fl.autograd.grad((first * first).sum(), (x, weight)))
    for got, want in zip(results[1], results[0]):
        agree(got, want, fl.float64)


@pytest.mark.parametrize("shape", [(4, 8, 16, 16), (3, 6, 5, 5), (2, 64, 64, 64), (5, 12), (2, 6, 7)], ids=str)
@pytest.mark.parametrize("groups", [1, 2, "each"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_group_norm(dtype, groups, shape):
    groups = shape[1] if groups == "each" else groups
    if groups == shape[1] and len(shape) == 2:
        return
    x, grad = made(shape, dtype, 11, 2.0), made(shape, dtype, 12)
    results = []
    for device, work in (("cuda", dtype), ("cpu", fl.float64)):
        a = x.to(device, work).clone().requires_grad_()
        weight = made(shape[1:2], fl.bfloat16, 13).to(device, work).clone().requires_grad_()
        bias = made(shape[1:2], fl.bfloat16, 14).to(device, work).clone().requires_grad_()
        out = F.group_norm(a, groups, weight, bias)
        out.backward(grad.to(device, work))
        results.append((out, a.grad, weight.grad, bias.grad))
    count = x.numel() // x.shape[1]
    for k, (got, want) in enumerate(zip(*results)):
        agree(got, want, dtype, 4 if k < 2 else max(4, count / 64))


@pytest.mark.parametrize("n", [8, 40, 768, 1024, 1000, 4096, 5120, 30000, 33])
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float16], ids=str)
def test_layer_norm(dtype, n):
    for rows, parameters in ((37, dtype), (3, dtype), (300, fl.float32), (5, None)):
        x, grad = made((rows, n), dtype, 15, 1.0), made((rows, n), dtype, 16)
        results = []
        for device, work, kept in (("cuda", dtype, parameters), ("cpu", fl.float64, fl.float64)):
            a = x.to(device, work).clone().requires_grad_()
            given = ()
            if parameters is not None:
                given = [made((n,), fl.bfloat16, k).to(device, kept).requires_grad_() for k in (17, 18)]
            out = F.layer_norm(a, (n,), *given)
            out.backward(grad.to(device, work))
            results.append((out, a.grad, *(p.grad for p in given)))
        for k, (got, want) in enumerate(zip(*results)):
            agree(got, want, dtype, 4 if k < 2 else max(4, rows / 32))


@pytest.mark.parametrize("n", [8, 33, 768, 4096])
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float16], ids=str)
def test_rms_norm(dtype, n):
    for eps, affine in ((None, True), (1e-3, False)):
        x, grad = made((37, n), dtype, 19, 1.0), made((37, n), dtype, 20)
        results = []
        for device, work in (("cuda", dtype), ("cpu", fl.float64)):
            a = x.to(device, work).clone().requires_grad_()
            given = [made((n,), fl.bfloat16, 21).to(device, work).requires_grad_()] if affine else [None]
            out = F.rms_norm(a, (n,), *given, eps or 1e-6)
            out.backward(grad.to(device, work))
            results.append((out, a.grad, *(p.grad for p in given if p is not None)))
        for k, (got, want) in enumerate(zip(*results)):
            agree(got, want, dtype, 4 if k < 2 else 8)
    agree(F.rms_norm(fl.ones(2, n, device="cuda", dtype=dtype), (n,)), fl.ones(2, n, dtype=fl.float64), dtype)


POOLS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max, spread": lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average, inside": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "average, divided": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "adaptive, one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive, more": lambda x: F.adaptive_avg_pool2d(x, 17),
    "adaptive, rows": lambda x: F.adaptive_avg_pool2d(x, (None, 1)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (3, 4)),
}


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize("name", list(POOLS))
@pytest.mark.parametrize("dtype", [fl.float64, fl.float32, fl.bfloat16], ids=str)
def test_pooling(dtype, name, layout):
    for shape in ((2, 3, 11, 14), (1, 16, 8, 8), (3, 2, 40, 41)):
        x, results = made(shape, dtype, 22), []
        for device, work in (("cuda", dtype), ("cpu", fl.float64)):
            a = x.to(device, work).clone().requires_grad_()
            out = POOLS[name](arranged(a, layout))
            fl.manual_seed(23)
            out.backward(fl.randn(out.shape, dtype=fl.float64).to(dtype).to(device, work))
            results.append((out, a.grad))
        for got, want in zip(*results):
            agree(got, want, dtype, 2)


def test_pooling_along_one_and_three_dimensions():
    x = made((2, 3, 6, 7, 8), fl.float32, 24)
    for pool in (
        lambda t: F.max_pool3d(t, 2),
        lambda t: F.avg_pool3d(t, 3, 2, 1),
        lambda t: F.adaptive_avg_pool3d(t, (2, 1, 3)),
        lambda t: F.max_pool1d(t[:, :, 0, 0], 3),
        lambda t: F.avg_pool1d(t[0, :, 0, 0], 2),
        lambda t: F.max_pool2d(t[0, 0], 2, return_indices=True)[1].double(),
    ):
        agree(pool(x.cuda()), pool(x).double(), fl.float32)
    holes = fl.tensor([[[1.0, float("nan"), 2.0, 3.0]]], device="cuda")
    assert F.max_pool1d(holes, 2).isnan().tolist() == [[[True, False]]]


def test_joining():
    a, b = made((3, 4, 5), fl.float32, 25), made((3, 2, 5), fl.float32, 26)
    for dim, pair in ((1, (a, b)), (0, (a, a)), (-1, (a, a.transpose(0, 0))), (0, (a, fl.empty(0)))):
        there = [t.cuda() for t in pair]
        assert fl.equal(fl.cat(there, dim).cpu(), fl.cat(pair, dim))
    assert fl.equal(fl.stack([a.cuda(), a.cuda()], 1).cpu(), fl.stack([a, a], 1))
    assert fl.cat([a.cuda(), b.cuda().double()], 1).dtype is fl.float64
    images = a[None].contiguous(memory_format=fl.channels_last)
    assert fl.cat([images.cuda()] * 2, 1).is_contiguous(memory_format=fl.channels_last)


def test_copies_in_another_order():
    a = made((3, 4, 5, 6), fl.float32, 27)
    for change in (
        lambda t: t.roll((2, -1), (1, 3)),
        lambda t: t.roll(7),
        lambda t: t.repeat(2, 1, 3, 1, 2),
        lambda t: F.pad(t, (1, 2, 0, 3), value=1.5),
        lambda t: F.pad(t, (-1, 2)),
        lambda t: F.pad(t.contiguous(memory_format=fl.channels_last), (1, 1, 1, 1)),
        lambda t: F.pad(t.transpose(0, 3), (1, 1)),
        lambda t: F.pad(t.bool(), (1, 0), value=True),
    ):
        got, want = change(a.cuda()), change(a)
        assert fl.equal(got.cpu(), want) and got.stride() == want.stride()


def test_joining_of_many():
    for dtype in (fl.uint8, fl.bfloat16, fl.float32, fl.float64):
        for rows, widths in ((1, [1] * 200), (7, [3, 8, 1, 0, 16]), (5, [64, 32]), (2, [5000, 3])):
            parts = [(fl.arange(rows * w) % 97 + w).reshape(rows, w).to(dtype) for w in widths]
            assert fl.equal(fl.cat([p.cuda() for p in parts], 1).cpu(), fl.cat(parts, 1))
    points = [fl.tensor(float(k)) for k in range(150)]
    assert fl.equal(fl.stack([p.cuda() for p in points]).cpu(), fl.stack(points))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_of_lists(dtype):
    most = 30000 if dtype is fl.float16 else 300000  # whose sum float16 has a number for
    tensors = [made((n,), dtype, k) for k, n in enumerate([1, 7, 1000, most, 5, 32768] + [13] * 90)]
    tensors += [made((6, 5), dtype, 7).t(), made((101,), dtype, 8)[1:]]
    for order in (1, 2, float("inf")):
        got = fl._foreach_norm([t.cuda() for t in tensors], order)
        for g, t in zip(got, tensors):
            assert g.dtype is dtype and g.dim() == 0
            agree(g, fl.linalg.vector_norm(t.double(), order), dtype)
    broken = [fl.ones(5, device="cuda"), fl.tensor([1.0, float("nan")], device="cuda")]
    assert fl._foreach_norm(broken, float("inf"))[1].isnan().item()
    leaves = [t.cuda().requires_grad_() for t in tensors[:4]]
    for leaf, t in zip(leaves, tensors):
        leaf.grad = t.cuda()
    total = fl.nn.utils.clip_grad_norm_(leaves, 1.0)
    norm = fl.linalg.vector_norm(fl.cat([t.double() for t in tensors[:4]]))
    agree(total, norm, dtype)
    for leaf, t in zip(leaves, tensors):
        agree(leaf.grad, t.double() / norm, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unscaling(dtype):
    tensors = [made((n,), dtype, k) for k, n in enumerate([1, 7, 100003, 64])]
    for bad in (False, True):
        there = [t.cuda() for t in tensors]
        if bad:
            there[2][100000] = float("inf")
        found, scale = fl.zeros(1, device="cuda"), fl.full((1,), 0.25, device="cuda")
        fl._amp_foreach_non_finite_check_and_unscale_(there, found, scale)
        assert found.item() == bad
        for k in (0, 1, 3):
            assert fl.equal(there[k].cpu(), tensors[k] * 0.25)


@pytest.mark.parametrize("dtype", [fl.uint8, fl.bfloat16, fl.float32, fl.int64, fl.complex128], ids=str)
def test_copies_of_rows(dtype):
    """Every place of a word in source and destination, and ends that are no whole words."""
    for width in (260, 1027, 17001):
        source = (fl.arange(3 * (width + 20)) % 251).reshape(3, width + 20).to(dtype)
        for first in range(0, 17, 3):
            for second in (0, 1, 5, 8, 15):
                want = source.clone()
                want[:, second : second + width] = source[:, first : first + width]
                there = source.cuda()
                into = there.clone()
                into[:, second : second + width] = there[:, first : first + width]
                assert fl.equal(into.cpu(), want), (width, first, second)
