"""Scans, differences and integrals against NumPy."""

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("shape,dim", [((100_001,), 0), ((37, 50), 0), ((37, 50), 1), ((3, 4, 5), 1), ((2, 20_000), 1)])
def test_cumsum_and_cumprod(shape, dim):
    array = RNG.standard_normal(shape)
    np.testing.assert_allclose(
        fl.cumsum(fl.as_tensor(array), dim).tolist(), np.cumsum(array, dim), rtol=1e-8, atol=1e-8
    )
    near_one = 1 + array * 1e-3
    np.testing.assert_allclose(fl.cumprod(fl.as_tensor(near_one), dim).tolist(), np.cumprod(near_one, dim), rtol=1e-8)


def test_cumsum_of_integers_is_int64_and_of_a_transpose_right():
    array = RNG.integers(0, 9, (30, 40)).astype(np.int32)
    x = fl.as_tensor(array)
    assert fl.cumsum(x, 0).dtype == fl.int64
    assert fl.cumsum(x.t(), 0).tolist() == np.cumsum(array.T, 0).tolist()


def test_cummax_takes_the_last_of_equals_and_keeps_nan():
    x = fl.tensor([1.0, 3.0, 3.0, 2.0, float("nan"), 9.0])
    values, indices = fl.cummax(x, 0)
    assert values.tolist()[:4] == [1, 3, 3, 3] and indices.tolist() == [0, 1, 2, 2, 4, 4]
    assert np.isnan(values.tolist()[5])


def test_logcumsumexp_stays_finite():
    x = fl.tensor([1000.0, 1000.0, -float("inf")])
    np.testing.assert_allclose(fl.logcumsumexp(x, 0).tolist(), [1000, 1000 + np.log(2), 1000 + np.log(2)], rtol=1e-6)


def test_diff_and_trapezoid():
    array = RNG.standard_normal((4, 9))
    x = fl.as_tensor(array)
    np.testing.assert_allclose(fl.diff(x, 2, 1).tolist(), np.diff(array, 2, 1), atol=1e-12)
    at = np.sort(RNG.standard_normal(9))
    np.testing.assert_allclose(fl.trapezoid(x, fl.as_tensor(at)).tolist(), np.trapezoid(array, at), atol=1e-12)


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16, fl.float32, fl.int32], ids=str)
def test_running_sums_of_rows(dtype):
    for rows in (1, 4, 5, 9):
        x = fl.arange(rows * 37).remainder(5).reshape(rows, 37).to(dtype)
        np.testing.assert_array_equal(x.cumsum(1).double().cpu().numpy(), x.double().cpu().numpy().cumsum(1))
        np.testing.assert_array_equal(x.cumsum(0).double().cpu().numpy(), x.double().cpu().numpy().cumsum(0))


def test_scans_in_narrow_types_wrap_around():
    x = fl.tensor([100, 100, 3])
    assert x.cumsum(0, dtype=fl.int8).tolist() == [100, -56, -53] and x.cumsum(0, dtype=fl.int8).dtype == fl.int8
    assert x.cumprod(0, dtype=fl.uint8).tolist() == [100, 10000 % 256, 30000 % 256]
    assert fl.tensor([0, 2, 0]).cumsum(0, dtype=fl.bool).tolist() == [False, True, True]
    z = fl.tensor([1 + 1j, 2 - 1j], dtype=fl.complex64)
    assert z.cumprod(0).tolist() == [1 + 1j, 3 + 1j] and z.cumsum(0).dtype == fl.complex64
