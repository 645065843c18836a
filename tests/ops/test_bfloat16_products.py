"""Products of bfloat16, in pairs where the processor has instructions for them, against double precision."""

from __future__ import annotations

import itertools

import pytest

import flambeau as fl

pytestmark = pytest.mark.host

SHAPES = [(2, 3, 1), (17, 33, 65), (40, 40, 40), (100, 70, 771), (64, 64, 770), (5, 300, 2000), (300, 5, 2000), (129, 257, 1601), (33, 1100, 50), (96, 64, 128)]  # fmt: skip
LAYOUTS = ("rows", "columns", "gaps")


def laid(matrix: fl.Tensor, layout: str) -> fl.Tensor:
    if layout == "rows":
        return matrix
    return matrix.t().contiguous().t() if layout == "columns" else fl.stack([matrix, matrix], -1)[..., 0]


def assert_near(actual: fl.Tensor, expected: fl.Tensor, depth: int) -> None:
    """Rounded once to eight bits; sums in single precision."""
    assert actual.dtype == fl.bfloat16
    error = (actual.double() - expected).abs()
    assert (error <= expected.abs() * 2**-8 + 1e-6 * depth).all()


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_are_rounded_once(m: int, n: int, k: int) -> None:
    a, b = fl.randn(m, k).bfloat16(), fl.randn(k, n).bfloat16()
    expected = a.double() @ b.double()
    for first, second in itertools.product(LAYOUTS, LAYOUTS):
        assert_near(fl.mm(laid(a, first), laid(b, second)), expected, k)
    out = fl.empty(n, m, dtype=fl.bfloat16).t()
    assert_near(fl.mm(a, b, out=out), expected, k)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_what_follows_a_product(m: int, n: int, k: int) -> None:
    a, b, bias, c = (fl.randn(*size).bfloat16() for size in ((m, k), (k, n), (n,), (m, n)))
    product = a.double() @ b.double()
    assert_near(fl.addmm(bias, a, b), product + bias.double(), k)
    assert_near(fl.addmm(c, a, b, beta=0.5, alpha=2), product * 2 + c.double() * 0.5, k)
    assert_near(fl.nn.functional.linear(a, b.t().contiguous(), bias), product + bias.double(), k)
    packed = fl._ops._product_packed(b)
    result = fl._ops._product_finished(a, b, bias, packed, None, None, [2])
    assert_near(result, (product + bias.double()).relu(), k)


def test_batches_of_products() -> None:
    a, b = fl.randn(5, 37, 50).bfloat16(), fl.randn(5, 50, 41).bfloat16()
    assert_near(fl.bmm(a, b), a.double() @ b.double(), 50)
    assert_near(fl.matmul(a, b[0]), a.double() @ b[0].double(), 50)


def test_values_that_are_not_finite_stay() -> None:
    a, b = fl.randn(20, 40).bfloat16(), fl.randn(40, 50).bfloat16()
    a[3, 5], a[4, 6] = float("nan"), float("inf")
    result = fl.mm(a, b)
    assert result[3].isnan().all() and result[4].isinf().all() and result[:3].isfinite().all()


@pytest.mark.parametrize("m", [1, 2, 5, 8, 9])
@pytest.mark.parametrize(("n", "k"), [(33, 65), (70, 512), (5, 2000)])
def test_few_rows_read_weights_where_they_lie(m: int, n: int, k: int) -> None:
    x, weight, bias = (fl.randn(*size).bfloat16() for size in ((m, k), (n, k), (n,)))
    expected = x.double() @ weight.double().t() + bias.double()
    assert_near(fl.nn.functional.linear(x, weight, bias), expected, k)
    assert_near(fl.mm(weight, x.t()), (x.double() @ weight.double().t()).t(), k)


def test_medium_precision_rounds_operands() -> None:
    a, b, bias = fl.randn(100, 200), fl.randn(200, 64), fl.randn(64)
    exact = a.double() @ b.double()
    rounded = a.bfloat16().double() @ b.bfloat16().double()
    before = fl.get_float32_matmul_precision()
    try:
        fl.set_float32_matmul_precision("medium")
        for first, second in itertools.product(LAYOUTS, LAYOUTS):
            result = fl.mm(laid(a, first), laid(b, second))
            wanted = rounded if fl._C._cpu_capability() in ("avx512_bf16", "amx") else exact
            fl.testing.assert_close(result.double(), wanted, rtol=1e-4, atol=1e-3)
        fl.testing.assert_close(fl.addmm(bias, a, b).double(), wanted + bias.double(), rtol=1e-4, atol=1e-3)
    finally:
        fl.set_float32_matmul_precision(before)
    fl.testing.assert_close(fl.mm(a, b).double(), exact, rtol=1e-5, atol=1e-4)
