"""Trigonometric functions of arguments of every size, against exact references."""

from __future__ import annotations

import math

import pytest

import flambeau as fl

LARGE = [1e18, 3e18, -1e19, 1e22, 1e30, 3.3e38, -1e25, 2.0**60, 1e5, 0.5, 1087888036986880.0, 2.0**50 - 3]
PLACES = {"contiguous": lambda x: x, "strided": lambda x: x.repeat_interleave(3)[::3], "many": lambda x: x.repeat(500)}


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16])
@pytest.mark.parametrize("layout", PLACES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_arguments_are_reduced_fully(name: str, layout: str, dtype: fl.dtype) -> None:
    x = PLACES[layout](fl.tensor(LARGE, dtype=dtype))
    expected = fl.tensor([getattr(math, name)(v) for v in x.tolist()], dtype=fl.float64).to(dtype)
    fl.testing.assert_close(getattr(fl, name)(x), expected)
    fl.testing.assert_close(getattr(x.clone(), f"{name}_")(), expected)


def test_gradients_and_other_users_of_sine_take_large_arguments() -> None:
    x = fl.tensor(LARGE, dtype=fl.float64, requires_grad=True)
    x.sin().sum().backward()
    fl.testing.assert_close(x.grad, fl.tensor([math.cos(v) for v in LARGE], dtype=fl.float64))
    turned = fl.polar(fl.ones_like(x), x.detach())
    fl.testing.assert_close(turned.imag, x.detach().sin())


def test_sinc_is_zero_at_integers_and_right_between_them() -> None:
    integers = fl.tensor([1.0, -2.0, 1001.0, 2.0**30, 1e30])
    assert fl.sinc(integers).tolist() == [0] * 5
    x = fl.tensor([0.5, 1000.5, -1001.5, 2.0**20 + 0.5], dtype=fl.float64)
    fl.testing.assert_close(fl.sinc(x), fl.tensor([1, 1, -1, 1]) / (math.pi * x.abs()) * fl.tensor([1, 1, 1, 1]))


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
def test_gradient_of_sinc_is_accurate_near_zero(dtype: fl.dtype) -> None:
    values = [0.0, 1e-30, 1e-8, -1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.31, -0.32, 0.5, 1.0, 7.25]
    x = fl.tensor(values, dtype=dtype, requires_grad=True)
    fl.sinc(x).sum().backward()

    def exact(v: float) -> float:
        u = math.pi * v
        if abs(u) < 1.5:
            return math.pi * sum((-1) ** k * 2 * k / math.factorial(2 * k + 1) * u ** (2 * k - 1) for k in range(1, 20))
        return math.pi * (u * math.cos(u) - math.sin(u)) / u**2

    expected = fl.tensor([exact(v) for v in x.tolist()], dtype=dtype)
    fl.testing.assert_close(x.grad, expected, rtol=4 * fl.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("name", ["i0", "i1", "modified_bessel_i0", "modified_bessel_i1"])
def test_modified_bessel_functions_reach_the_end_of_the_range(name: str) -> None:
    # Asymptotic series of 20 terms; the values overflow soon after the last argument.
    order = int(name[-1])
    for dtype, values in {fl.float32: [60.0, 88.7, 91.0, 91.9], fl.float64: [300.0, 709.7, 713.0, 713.9]}.items():
        x = fl.tensor([*values, *(-v for v in values)], dtype=dtype)

        def exact(v: float) -> float:
            term = total = 1.0
            for k in range(1, 20):
                term *= ((2 * k - 1) ** 2 - 4 * order**2) / (k * 8 * abs(v))
                total += term
            half = math.exp(abs(v) / 2)
            return (math.copysign(1, v) if order else 1) * half / math.sqrt(2 * math.pi * abs(v)) * total * half

        expected = fl.tensor([exact(v) for v in x.tolist()], dtype=dtype)
        fl.testing.assert_close(getattr(fl.special, name)(x), expected, rtol=500 * fl.finfo(dtype).eps, atol=0)
        beyond = getattr(fl.special, name)(x.sign() * fl.finfo(dtype).max)
        assert beyond.abs().isinf().all()
