"""Forms that generated kernels have for speed: gelu by one polynomial, the exponential of softmax, sums in several
streams and extremes in lanes."""

import math

import pytest

import flambeau as fl
from flambeau.nn import functional as F


def test_gelu_of_single_precision_is_as_near_as_eager_mode():
    x = fl.linspace(-9, 9, 20_001)
    exact = fl.tensor([0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in x.tolist()], dtype=fl.float64)
    error = (fl.compile(F.gelu)(x).double() - exact).abs().max().item()
    assert error < 1e-6


def test_gelu_has_eager_modes_limits():
    x = fl.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e30, -1e30, 5.6, -5.6, 1e-30])
    fl.testing.assert_close(fl.compile(F.gelu)(x), F.gelu(x), equal_nan=True, rtol=0, atol=0)


def test_gelu_of_low_precision_is_eager_modes_to_the_bit():
    x = fl.linspace(-9, 9, 4_001).to(fl.bfloat16)
    assert fl.equal(fl.compile(F.gelu)(x), F.gelu(x))


def test_derivative_of_gelu_is_as_near_as_eager_mode():
    x = fl.linspace(-9, 9, 20_001)
    density = [math.exp(-0.5 * v * v) / math.sqrt(2 * math.pi) for v in x.tolist()]
    exact = [0.5 * math.erfc(-v * math.sqrt(0.5)) + v * d for v, d in zip(x.tolist(), density)]
    leaf = x.clone().requires_grad_()
    fl.compile(F.gelu)(leaf).sum().backward()
    assert (leaf.grad.double() - fl.tensor(exact, dtype=fl.float64)).abs().max().item() < 1e-6


@pytest.mark.parametrize("width", [1, 15, 63, 64, 65, 129, 512, 1023, 1024, 1087, 2100])
def test_sums_in_streams_take_every_column_once(width):
    x = fl.arange(3 * width, dtype=fl.float32).reshape(3, width) % 17
    compiled = fl.compile(lambda x: (x.sum(-1), (x * x).mean(-1), x.sum()), dynamic=True)
    rows, squares, whole = compiled(x)
    assert rows.tolist() == [sum(r) for r in x.tolist()]
    expected = [sum(v * v for v in r) / width for r in x.tolist()]
    fl.testing.assert_close(squares, fl.tensor(expected), rtol=1e-6, atol=0)
    assert whole.item() == sum(map(sum, x.tolist()))


@pytest.mark.parametrize("dtype", [fl.float64, fl.int64, fl.bfloat16])
def test_sums_of_other_types_in_streams(dtype):
    x = (fl.arange(5 * 200).reshape(5, 200) % 3).to(dtype)
    assert fl.equal(fl.compile(lambda x: x.sum(-1))(x), x.sum(-1))


def test_layer_norm_with_gelu_follows_eager_mode():
    fl.manual_seed(0)
    x, weight, bias = fl.randn(7, 333) * 5, fl.randn(333), fl.randn(333)

    def f(x, weight, bias):
        return F.gelu(F.layer_norm(x, (333,), weight, bias)) + x

    fl.testing.assert_close(fl.compile(f)(x, weight, bias), f(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16])
def test_functions_of_the_plain_header(dtype):
    x = fl.linspace(-3, 3, 97).to(dtype)
    y = x.flip(0) + 0.25

    def f(x, y):
        smooth = F.silu(x), F.gelu(x, approximate="tanh"), F.mish(x), F.softplus(x), fl.sinc(x)
        return (
            *smooth,
            fl.log2(x.abs()),
            fl.log10(y.abs()),
            fl.sign(x),
            fl.fmax(x, y),
            fl.fmin(x, y),
            fl.fmod(x, y),
            fl.xlogy(x.abs(), y.abs()),
        )

    for got, expected in zip(fl.compile(f)(x, y), f(x, y)):
        fl.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.int64])
@pytest.mark.parametrize("width", [1, 5, 31, 32, 33, 64, 100, 1025])
def test_extremes_in_lanes_take_every_column(width, dtype):
    x = (fl.arange(7 * width).reshape(7, width) * 7919 % 1009 - 500).to(dtype)
    compiled = fl.compile(lambda x: (x.amax(-1), x.amin(-1)), dynamic=True)
    high, low = compiled(x)
    assert high.tolist() == [max(r) for r in x.tolist()] and low.tolist() == [min(r) for r in x.tolist()]


def test_one_nan_wins_in_every_column():
    x = fl.zeros(70, 70)
    x.fill_diagonal_(math.nan)
    high, low = fl.compile(lambda x: (x.amax(-1), x.amin(-1)))(x)
    assert high.isnan().all().item() and low.isnan().all().item()


def test_softmax_of_single_precision_is_near_the_exact_one():
    x = fl.linspace(-100, 3, 900).reshape(9, 100)
    x[2] = fl.linspace(-1e4, 1e4, 100)
    exact = [[math.exp(v - max(row)) for v in row] for row in x.tolist()]
    expected = fl.tensor([[v / sum(row) for v in row] for row in exact], dtype=fl.float64)
    error = (fl.compile(lambda x: F.softmax(x, -1))(x).double() - expected).abs()
    assert (error <= 3e-6 * expected + 1e-37).all().item()


def test_softmax_has_eager_modes_limits():
    x = fl.zeros(5, 40)
    x[0, 3], x[1, 3], x[2, 3], x[3], x[4, :39] = math.inf, -math.inf, math.nan, -math.inf, -math.inf
    for f in (F.softmax, F.log_softmax):
        fl.testing.assert_close(fl.compile(lambda x, f=f: f(x, -1))(x), f(x, -1), equal_nan=True)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16])
def test_exponentials_vanish_where_eager_modes_do(dtype):
    edges = [104.0, 151.0, 745.0, 746.0, 1074.0, 1075.0, 1076.0, math.inf]
    x = fl.tensor([*(-e for e in edges), *edges, -103.9, -87.4, -0.0, math.nan] * 5, dtype=dtype)
    for function, reference in ((fl.exp, math.exp), (fl.exp2, lambda v: 2.0**v)):
        made = fl.compile(function)(x)
        assert fl.equal(made.isnan(), x.isnan()) and fl.equal(made.nan_to_num(7.0), function(x).nan_to_num(7.0))
        if dtype == fl.float64:
            low = fl.tensor([v for v in x.tolist() if v < 0], dtype=dtype)
            want = [0.0 if v == -math.inf else reference(v) for v in low.tolist()]
            fl.testing.assert_close(function(low), fl.tensor(want, dtype=dtype), rtol=1e-12, atol=5e-324)


def test_masks_in_fused_loops():
    x = fl.linspace(-2, 2, 3 * 50).reshape(3, 50)
    mask = fl.arange(150).reshape(3, 50) % 7 > 2

    def function(x, mask):
        fresh = mask & (x > -1)
        return fl.where(fresh, x, -math.inf).exp(), x.masked_fill(~mask, 0).sum(-1), fresh, mask.logical_not()

    for made, want in zip(fl.compile(function)(x, mask), function(x, mask)):
        fl.testing.assert_close(made, want)
    for made, want in zip(fl.compile(function)(x.T, mask.T), function(x.T, mask.T)):
        fl.testing.assert_close(made, want)
