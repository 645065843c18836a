"""First and second derivatives of ops against finite differences, and native derivatives against the records'."""

import math
import subprocess
import sys

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.autograd import gradcheck, gradgradcheck


def random(*shape, seed=0, positive=False):
    x = fl.randn(
        shape, generator=fl.Generator(fl.get_default_device()).manual_seed(seed + sum(shape)), dtype=fl.float64
    )
    return (x.abs() + 0.5 if positive else x).requires_grad_()


def index(*values):
    return fl.tensor(values)


def well(n, seed=0):
    """A matrix far from singular."""
    return (random(n, n, seed=seed).detach() * 0.3 + fl.eye(n, dtype=fl.float64) * 2).requires_grad_()


MASK = fl.tensor([[True, False, True], [False, True, True]])

CASES = {
    # views and copies
    "view": (lambda x: x.view(3, 2) ** 2, random(2, 3)),
    "transpose": (lambda x: x.transpose(0, 1) ** 2, random(2, 3)),
    "permute": (lambda x: x.permute(2, 0, 1) ** 2, random(2, 3, 2)),
    "expand": (lambda x: x.expand(4, 3) ** 2, random(1, 3)),
    "select": (lambda x: x[1] ** 2, random(2, 3)),
    "slice": (lambda x: x[:, ::2] ** 2, random(2, 3)),
    "diagonal": (lambda x: x.diagonal(1) ** 2, random(3, 3)),
    "unfold": (lambda x: x.unfold(0, 3, 1) ** 2, random(5)),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2), 1) ** 2, random(6)),
    "clone": (lambda x: x.clone() ** 2, random(2, 3)),
    "copy_": (lambda x, y: (x * 1).copy_(y) ** 2, random(2, 3), random(3)),
    "setitem": (lambda x, y: _assigned(x, y) ** 2, random(2, 3), random(2)),
    # products
    "mm": (fl.mm, random(2, 3), random(3, 2)),
    "bmm": (fl.bmm, random(2, 2, 3), random(2, 3, 2)),
    "matmul": (fl.matmul, random(2, 2, 3), random(3)),
    "matmul_broadcast": (fl.matmul, random(2, 1, 2, 3), random(3, 3, 2)),
    "linear": (F.linear, random(2, 2, 3), random(4, 3), random(4)),
    "addmm": (lambda a, b, c: fl.addmm(a, b, c, beta=2, alpha=3), random(2), random(3, 2), random(2, 2)),
    "baddbmm": (fl.baddbmm, random(2, 2, 2), random(2, 2, 3), random(2, 3, 2)),
    "cdist": (fl.cdist, random(3, 2), random(4, 2, seed=1)),
    # reductions and scans
    "sum": (lambda x: x.sum(1) ** 2, random(2, 3)),
    "mean": (lambda x: x.mean((0, 2), True) ** 2, random(2, 3, 2)),
    "prod": (lambda x: x.prod(1), random(2, 3)),
    "var": (lambda x: x.var(1), random(2, 3)),
    "std": (lambda x: x.std(), random(2, 3)),
    "amax": (lambda x: x.amax(1) ** 2, random(2, 3)),
    "max_dim": (lambda x: x.max(1)[0] ** 2, random(2, 3)),
    "logsumexp": (lambda x: x.logsumexp(1), random(2, 3)),
    "norm": (lambda x: fl.linalg.vector_norm(x, 3, 1), random(2, 3)),
    "cumsum": (lambda x: x.cumsum(1) ** 2, random(2, 3)),
    "cumprod": (lambda x: x.cumprod(1), random(2, 3)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), random(2, 3)),
    "sort": (lambda x: x.sort(1)[0] ** 2, random(2, 3)),
    "topk": (lambda x: x.topk(2)[0] ** 2, random(2, 4)),
    "median": (lambda x: x.median(1)[0] ** 2, random(2, 3)),
    # indexing and joining
    "index": (lambda x: x[index(0, 0, 1)] ** 2, random(2, 3)),
    "index_put": (lambda x, y: x.index_put((index(0, 2),), y) ** 2, random(4), random(2)),
    "index_select": (lambda x: x.index_select(1, index(0, 0, 2)) ** 2, random(2, 3)),
    "index_add": (lambda x, y: x.index_add(0, index(1, 1), y) ** 2, random(3), random(2)),
    "gather": (lambda x: x.gather(1, fl.tensor([[0, 0], [2, 1]])) ** 2, random(2, 3)),
    "scatter": (lambda x, y: x.scatter(0, index(2, 0), y) ** 2, random(3), random(2)),
    "scatter_prod": (lambda x, y: x.scatter_reduce(0, index(1, 1), y, "prod"), random(3), random(2)),
    "masked_select": (lambda x: x.masked_select(MASK) ** 2, random(2, 3)),
    "where": (lambda x, y: fl.where(MASK, x, y) ** 2, random(2, 3), random(3)),
    "cat": (lambda x, y: fl.cat([x, y, x], 1) ** 2, random(2, 3), random(2, 1)),
    "stack": (lambda x, y: fl.stack([x, y]) ** 2, random(3), random(3, seed=1)),
    "flip": (lambda x: x.flip([1]) ** 2, random(2, 3)),
    "repeat": (lambda x: x.repeat(2, 2) ** 2, random(2, 3)),
    "pad": (lambda x: F.pad(x, (1, 2)) ** 2, random(2, 3)),
    "tril": (lambda x: x.tril() ** 2, random(3, 3)),
    # networks
    "softmax": (lambda x: F.softmax(x, 1), random(2, 3)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), random(2, 3)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), random(3, 4), random(4), random(4)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), random(2, 4, 3), random(4), random(4)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), random(4, 3), random(3), random(3)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), random(2, 2, 5), random(3, 2, 3), random(3)),
    "conv2d": (lambda x, w: F.conv2d(x, w, groups=2), random(1, 2, 4, 4), random(2, 1, 2, 2)),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, stride=2), random(1, 2, 3), random(2, 2, 3)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2) ** 2, random(1, 1, 4, 4)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2) ** 2, random(1, 1, 4, 4)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 1)) ** 2, random(1, 1, 3, 4)),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False) ** 2,
        random(1, 1, 2, 2),
    ),
    "embedding": (lambda w: F.embedding(index(0, 2, 0), w) ** 2, random(3, 2)),
    "cross_entropy": (lambda x: F.cross_entropy(x, index(0, 2)), random(2, 3)),
    "nll_loss": (lambda x: F.nll_loss(x, index(0, 2)) ** 2, random(2, 3)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        random(2, 3, 2),
        random(2, 3, 2, seed=1),
        random(2, 3, 2, seed=2),
    ),
    # linear algebra and transforms
    "inv": (fl.linalg.inv, well(3)),
    "det": (fl.linalg.det, well(3)),
    "slogdet": (lambda x: fl.linalg.slogdet(x)[1], well(3)),
    "solve": (fl.linalg.solve, well(3), random(3, 2)),
    "cholesky": (lambda x: fl.linalg.cholesky(x @ x.mT), well(3)),
    "qr": (lambda x: fl.linalg.qr(x)[1], random(4, 3)),
    "svdvals": (fl.linalg.svdvals, random(3, 2)),
    "eigvalsh": (lambda x: fl.linalg.eigvalsh(x + x.mT), random(3, 3)),
    "matrix_exp": (fl.matrix_exp, random(2, 2)),
    "fft": (lambda x: fl.fft.rfft(x).abs(), random(5)),
    "irfft": (lambda x: fl.fft.irfft(fl.fft.rfft(x) * 2) ** 2, random(6)),
}


def _assigned(x, y):
    out = x * 1
    out[:, 1] = y
    return out


@pytest.mark.parametrize("name", CASES)
def test_first_derivative(name):
    fn, *inputs = CASES[name]
    assert gradcheck(fn, inputs, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_second_derivative(name):
    fn, *inputs = CASES[name]
    assert gradgradcheck(fn, inputs, atol=1e-4)


UNARY = (
    "abs exp log sin cos tan tanh sigmoid sqrt rsqrt square reciprocal erf log1p expm1 sinh cosh asinh atan lgamma digamma "
    "relu neg sign"
).split()


@pytest.mark.parametrize("name", UNARY)
def test_pointwise(name):
    x = random(5, positive=True)
    fn = getattr(fl, name)
    assert gradcheck(fn, x) and gradgradcheck(fn, x)


@pytest.mark.parametrize("name", "gelu silu mish softplus elu leaky_relu hardswish logsigmoid selu".split())
def test_activations(name):
    x = random(5)
    fn = getattr(F, name)
    assert gradcheck(fn, x) and gradgradcheck(fn, x)


@pytest.mark.parametrize("name", "add sub mul div pow atan2 maximum hypot".split())
def test_binary(name):
    a, b = random(2, 3, positive=True), random(3, seed=1, positive=True)
    fn = getattr(fl, name)
    assert gradcheck(fn, (a, b)) and gradgradcheck(fn, (a, b))


@pytest.mark.parametrize("name", "mul div exp log sin tanh abs sqrt".split())
def test_complex(name):
    z = fl.complex(random(3, positive=True).detach(), random(3, seed=1).detach()).requires_grad_()
    fn = getattr(fl, name)
    inputs = (z, z.detach().conj().clone().requires_grad_()) if name in ("mul", "div") else (z,)
    assert gradcheck(fn, inputs)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("svdvals", "qr")])
def test_native_derivatives_agree_with_the_records(name):
    fn, *inputs = CASES[name]
    out = fn(*inputs)
    v = random(*out.shape, seed=5).detach().to(out.dtype)
    native = fl.autograd.grad(out, inputs, v, retain_graph=True, allow_unused=True)
    try:
        fl._C._use_native_derivatives(False)
        written = fl.autograd.grad(fn(*inputs), inputs, v, allow_unused=True)
    finally:
        fl._C._use_native_derivatives(True)
    for a, b in zip(native, written):
        assert (a is None and b is None) or fl.allclose(a, b)


def test_gradcheck_stays_a_function_whatever_is_imported_first():
    check = "import flambeau.autograd.gradcheck, flambeau; assert callable(flambeau.autograd.gradcheck)"
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.parametrize("name", ["min", "max", "median", "nanmedian", "amin", "amax"])
def test_gradients_that_are_nan_stay_with_the_elements_that_were_chosen(name):
    x = fl.tensor([1.0, 0.0, 2.0, -1.0], requires_grad=True)
    y = getattr(x, name)()
    (gradient,) = fl.autograd.grad(y, x, fl.tensor(math.nan))
    assert gradient.isnan().tolist() == (x == y).tolist()


@pytest.mark.parametrize("function", [F.hardtanh, F.relu6, F.softshrink, F.hardshrink])
def test_gradients_go_through_nan(function):
    x = fl.tensor([math.nan, 2.0], requires_grad=True)
    assert fl.autograd.grad(function(x).nansum(), x, retain_graph=True)[0][0] in (0, 1)
    assert fl.autograd.grad(function(x), x, fl.tensor([3.0, 5.0]))[0][0] == 3
