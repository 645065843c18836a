"""Products of floats with weights of eight and four bits, for few rows and for many."""

from __future__ import annotations

import pytest

import flambeau as fl

DTYPES = pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float16], ids=str)
TOLERANCES = {fl.float32: 2e-5, fl.bfloat16: 1e-2, fl.float16: 2e-3}
ROWS = (1, 2, 3, 4, 5, 16, 33)


def assert_near(actual: fl.Tensor, expected: fl.Tensor, dtype: fl.dtype) -> None:
    assert actual.dtype == dtype and actual.shape == expected.shape
    assert (actual.double() - expected).abs().max() <= TOLERANCES[dtype] * expected.abs().max()


@DTYPES
@pytest.mark.parametrize(("n", "k"), [(16, 32), (70, 129), (256, 512)])
def test_weights_of_eight_bits(dtype: fl.dtype, n: int, k: int) -> None:
    weight, scales = fl.randint(-128, 128, (n, k)).to(fl.int8), fl.rand(n).to(dtype)
    for m in ROWS:
        x = fl.randn(m, k).to(dtype)
        expected = (x.double() @ weight.double().t()) * scales.double()
        assert_near(fl._ops._weight_int8pack_mm(x, weight, scales), expected, dtype)


@DTYPES
@pytest.mark.parametrize("has_zeros", [True, False], ids=["zeros", "symmetric"])
@pytest.mark.parametrize(("n", "k", "group"), [(16, 32, 32), (64, 128, 32), (80, 96, 64), (208, 512, 128)])
def test_weights_of_four_bits(dtype: fl.dtype, n: int, k: int, group: int, has_zeros: bool) -> None:
    numbers = fl.randint(0, 16, (n, k)).int()
    packed = fl._ops._convert_weight_to_int4pack_for_cpu(numbers, 2)
    assert packed.shape == (n, k // 2) and packed.dtype == fl.uint8
    groups = -(-k // group)
    grids = (fl.rand(groups, n, 2 if has_zeros else 1) * 0.1).to(dtype)
    scales, *zeros = (grid.t() for grid in grids.double().repeat_interleave(group, 0)[:k].unbind(2))
    values = (numbers.double() - 8) * scales + (zeros[0] if has_zeros else 0)
    for m in ROWS:
        x = fl.randn(m, k).to(dtype)
        actual = fl._ops._weight_int4pack_mm_for_cpu(x, packed, group, grids)
        assert_near(actual, x.double() @ values.t(), dtype)


def test_mistakes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="multiple of 16"):
        fl._ops._convert_weight_to_int4pack_for_cpu(fl.zeros(15, 32).int(), 2)
    packed = fl._ops._convert_weight_to_int4pack_for_cpu(fl.zeros(16, 32).int(), 2)
    with pytest.raises(RuntimeError, match=r"scales and zeros of shape \(1, 16, 2\)"):
        fl._ops._weight_int4pack_mm_for_cpu(fl.zeros(1, 32), packed, 32, fl.zeros(2, 16, 2))
    with pytest.raises(RuntimeError, match="float32, bfloat16 or float16"):
        fl._ops._weight_int4pack_mm_for_cpu(fl.zeros(1, 32).int(), packed, 32, fl.zeros(1, 16, 2))
