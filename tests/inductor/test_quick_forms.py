"""Forms that generated kernels have for speed: gelu by one polynomial, and sums in several streams."""

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
