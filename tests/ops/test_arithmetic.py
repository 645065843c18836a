"""Arithmetic with numbers for operands, and of narrow integers."""

import numpy as np
import pytest

import flambeau as fl


@pytest.mark.parametrize("name, of", [("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"), ("floor_divide", "//")])
def test_the_first_operand_may_be_a_number(name, of):
    op = getattr(fl, name)
    for dtype in (fl.int32, fl.float16, fl.float32):
        other = fl.tensor([1, 2, 4], dtype=dtype)
        for number in (3, 2.5):
            got, expected = op(number, other), eval(f"number {of} other")
            assert got.dtype == expected.dtype and fl.equal(got, expected)
    both = op(7, 2)
    assert both.shape == () and both == eval(f"7 {of} 2") and both.dtype == (fl.float32 if name == "div" else fl.int64)
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    op(3.0, x).sum().backward()
    assert fl.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16, fl.complex64, fl.int64])
def test_small_powers_are_products(dtype):
    x = fl.tensor([-3, -1, 0, 1, 2, 5] * 9, dtype=dtype)
    for power, product in ((x**2, x * x), (x**3, x * x * x), (x**3.0, x * x * x), (fl.pow(x, fl.tensor(3)), x * x * x)):
        assert fl.allclose(power, product.to(power.dtype))


def test_the_power_of_one_half_is_the_square_root():
    x = fl.tensor([0.0, -0.0, 4.0, float("inf"), 2.0])
    assert fl.equal(x**0.5, x.sqrt())
    assert (fl.tensor([float("-inf"), -1.0]) ** 0.5).isnan().all()


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, 2.5])
def test_derivatives_of_powers(exponent):
    x = fl.tensor([0.5, 1.0, 3.0], dtype=fl.float64, requires_grad=True)
    (gradient,) = fl.autograd.grad((x**exponent).sum(), x, create_graph=True)
    assert fl.allclose(gradient, fl.tensor([exponent * v ** (exponent - 1) for v in x.tolist()], dtype=fl.float64))
    (second,) = fl.autograd.grad(gradient.sum(), x)
    expected = [exponent * (exponent - 1) * v ** (exponent - 2) for v in x.tolist()]
    assert fl.allclose(second, fl.tensor(expected, dtype=fl.float64))


@pytest.mark.parametrize("dtype", [fl.int8, fl.int32, fl.int64])
def test_integer_quotients_round_down_as_in_python(dtype):
    least, most = fl.iinfo(dtype).min, fl.iinfo(dtype).max
    values = [least, -100, -7, -1, 0, 1, 6, 100, most]
    divisors = [v for v in values if v not in (0, least)]
    x, y = fl.tensor(values, dtype=dtype).unsqueeze(1), fl.tensor(divisors, dtype=dtype)
    wrapped = {-least: least}  # the one quotient that does not fit
    assert (x // y).tolist() == [[wrapped.get(a // b, a // b) for b in divisors] for a in values]
    assert (x % y).tolist() == [[a % b for b in divisors] for a in values]
    assert (x // 3).flatten().tolist() == [a // 3 for a in values]


@pytest.mark.host  # a kernel on another device cannot raise
@pytest.mark.parametrize("dtype", [fl.int8, fl.int32, fl.int64])
def test_integers_are_not_divided_by_zero(dtype):
    with pytest.raises(RuntimeError, match=r"ZeroDivisionError|zero"):
        fl.tensor([1, 2], dtype=dtype) // 0


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_narrow_integers_wrap_around(dtype):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(limits.min, limits.max, (3, 70), dtype=dtype, endpoint=True) for _ in range(2))
    x, y = fl.tensor(a), fl.tensor(b)
    with np.errstate(over="ignore"):
        for name in ("add", "subtract", "multiply"):
            ours, reference = getattr(fl, name), getattr(np, name)
            for p, q, c, d in (
                (x, y, a, b),
                (x[:, 2::3], y[:, 1:69:3], a[:, 2::3], b[:, 1:69:3]),
                (x.t(), y.t(), a.T, b.T),
                (x, y[0], a, b[0]),
                (x, y[1, 2], a, b[1, 2]),
            ):
                got = ours(p, q)
                assert got.dtype == x.dtype
                assert np.array_equal(got.cpu().numpy(), reference(c, d))
            out = x.clone()
            getattr(out, {"add": "add_", "subtract": "sub_", "multiply": "mul_"}[name])(y)
            assert np.array_equal(out.cpu().numpy(), reference(a, b))
        for factor in (3, -2):
            wide = a.astype("int64") + factor * b.astype("int64")
            assert np.array_equal(fl.add(x, y, alpha=factor).cpu().numpy(), wide.astype(dtype))
            wide = a.astype("int64") - factor * b.astype("int64")
            assert np.array_equal(fl.sub(x, y, alpha=factor).cpu().numpy(), wide.astype(dtype))
        for number in (3, -1, 100):
            wide = a.astype("int64")
            assert np.array_equal((x + number).cpu().numpy(), (wide + number).astype(dtype))
            assert np.array_equal((number - x).cpu().numpy(), (number - wide).astype(dtype))
            assert np.array_equal((x[:, ::2] * number).cpu().numpy(), (wide[:, ::2] * number).astype(dtype))
    assert fl.add(x, y, out=fl.empty(3, 70, dtype=fl.int64)).dtype == fl.int64


@pytest.mark.parametrize("dtype", [fl.float32, fl.int32, fl.float64, fl.int16])
def test_every_second_element(dtype):
    for n in (1, 2, 15, 16, 17, 33, 64, 1000, 1025):
        x = fl.arange(2 * n).to(dtype)
        assert (x[::2] + x[1::2]).tolist() == [4 * i + 1 for i in range(n)]
        assert x[::2].contiguous().tolist() == list(range(0, 2 * n, 2))


@pytest.mark.parametrize("columns", [1, 3, 20, 64, 200])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_rows_of_any_length_broadcast(columns, dtype):
    rng = np.random.default_rng(columns)
    a, b = rng.integers(-7, 8, (9, 1, columns)), rng.integers(-7, 8, (1, 40, columns))
    left, right = (fl.as_tensor(x).to(getattr(fl, dtype)) for x in (a, b))
    for x, y, expected in (
        (left, right, a * b),
        (left.expand(9, 40, columns), right, a * b),
        (left.transpose(0, 2), right.transpose(0, 2), (a * b).transpose(2, 1, 0)),
        (left[..., ::2], right[..., ::2], (a * b)[..., ::2]),
    ):
        assert ((x * y).cpu().to(fl.int64).numpy() == expected).all()
    out = fl.zeros(9, 40, columns + 1, dtype=left.dtype)[..., 1:]
    assert (fl.mul(left, right, out=out).cpu().to(fl.int64).numpy() == a * b).all()


def test_logic_of_truth_values():
    rng = np.random.default_rng(0)
    a, b = rng.random((70, 33)) > 0.5, rng.random((70, 33)) > 0.5
    x, y = fl.as_tensor(a), fl.as_tensor(b)
    cases = [
        (x & y, a & b), (x | y, a | b), (x ^ y, a ^ b), (~x, ~a), (x == y, a == b), (x != y, a != b), (x * y, a & b),
        (fl.logical_and(x, y), a & b), (fl.logical_or(x, y), a | b), (fl.logical_xor(x, y), a ^ b),
        (fl.logical_not(x), ~a), (x & True, a), (x | True, a | True), (x ^ True, ~a), (x == False, ~a),  # noqa: E712
        (x.t() & y[:33, :1], a.T & b[:33, :1]), (x[:, ::2] | y[0, ::2], a[:, ::2] | b[0, ::2]),
    ]  # fmt: skip
    for got, expected in cases:
        assert got.dtype is fl.bool and (got.cpu().numpy() == expected).all()
    z = x.clone()
    z &= y
    assert (z.cpu().numpy() == (a & b)).all()
    # Any byte but zero is true.
    odd = fl.tensor([0, 1, 2, 255], dtype=fl.uint8).view(fl.bool)
    assert (odd & fl.tensor(True)).tolist() == [False, True, True, True] and (~odd).tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert (odd == fl.tensor([True] * 4)).tolist() == [False, True, True, True]


def test_products_and_lengths_of_complex_numbers():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((2, 40, 9)) + 1j * rng.standard_normal((2, 40, 9))).astype(np.complex64)
    x, y = fl.as_tensor(a), fl.as_tensor(b)
    for got, expected in ((x * y, a * b), (x.t() * y[0, 0], a.T * b[0, 0]), (x[:, ::2] * y[:1, ::2], a[:, ::2] * b[:1, ::2]), (x * 2j, a * 2j)):  # fmt: skip
        np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(x.abs().cpu().numpy(), np.abs(a), rtol=1e-6)
    inf, nan = float("inf"), float("nan")
    hard = fl.tensor([complex(3e38, 0), complex(1e-40, 1e-40), complex(inf, nan), complex(nan, -inf), complex(nan, 1)])
    got = hard.abs().tolist()
    assert got[0] == np.float32(3e38) and 1.4e-40 < got[1] < 1.5e-40 and got[2] == got[3] == inf and got[4] != got[4]
