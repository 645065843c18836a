"""Sorting, selection, searches and statistics against NumPy."""

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.int8, np.uint8, np.float16])
@pytest.mark.parametrize("n", [1, 7, 150, 1000])
def test_sort_is_stable_both_ways(dtype, n):
    array = RNG.integers(0, 40, (3, n)).astype(dtype)
    values, indices = fl.sort(fl.as_tensor(array), 1)
    order = np.argsort(array, 1, kind="stable")
    assert indices.tolist() == order.tolist() and values.tolist() == np.take_along_axis(array, order, 1).tolist()
    down = fl.sort(fl.as_tensor(array), stable=True, dim=1, descending=True)
    assert down.indices.tolist() == np.argsort(-array.astype(np.float64), 1, kind="stable").tolist()


def test_sort_along_the_first_dimension_of_a_transpose():
    array = RNG.standard_normal((30, 20))
    assert fl.sort(fl.as_tensor(array).t(), 0)[0].tolist() == np.sort(array.T, 0).tolist()


def test_nan_sorts_last_and_zeros_are_equal():
    nan = float("nan")
    _values, indices = fl.sort(fl.tensor([nan, 0.0, -0.0, -float("inf"), float("inf"), nan]))
    assert indices.tolist() == [3, 1, 2, 4, 0, 5]
    assert fl.sort(fl.tensor([1.0, nan]), descending=True).indices.tolist() == [1, 0]


@pytest.mark.parametrize("n,k", [(1000, 5), (1000, 400), (50, 50), (20_000, 100), (5, 0)])
def test_topk(n, k):
    array = RNG.permutation(n).astype(np.float32)
    values, indices = fl.topk(fl.as_tensor(array), k)
    assert values.tolist() == sorted(array.tolist(), reverse=True)[:k]
    assert array[indices.tolist()].tolist() == values.tolist()
    assert fl.topk(fl.as_tensor(array), k, largest=False).values.tolist() == sorted(array.tolist())[:k]


def test_median_kthvalue_and_mode():
    array = RNG.standard_normal((6, 101))
    x = fl.as_tensor(array)
    np.testing.assert_allclose(fl.median(x, 1).values.tolist(), np.median(array, 1))
    assert fl.kthvalue(x, 3, 1).values.tolist() == np.sort(array, 1)[:, 2].tolist()
    assert fl.mode(fl.tensor([3, 1, 1, 2, 2])).values.item() == 1
    assert np.isnan(fl.median(fl.tensor([1.0, float("nan")])).item())
    assert fl.nanmedian(fl.tensor([1.0, float("nan"), 5.0])).item() == 1
    with pytest.raises(RuntimeError):
        fl.kthvalue(x, 0, 1)


def test_unique_with_inverse_and_counts():
    array = RNG.integers(0, 9, (20, 30))
    values, inverse, counts = fl.unique(fl.as_tensor(array), return_inverse=True, return_counts=True)
    want, back, number = np.unique(array, return_inverse=True, return_counts=True)
    assert values.tolist() == want.tolist() and counts.tolist() == number.tolist()
    assert inverse.tolist() == back.reshape(array.shape).tolist()
    rows = RNG.integers(0, 2, (50, 3))
    assert fl.unique(fl.as_tensor(rows), dim=0).tolist() == np.unique(rows, axis=0).tolist()
    runs, counts = fl.unique_consecutive(fl.tensor([1, 1, 2, 2, 2, 1]), return_counts=True)
    assert runs.tolist() == [1, 2, 1] and counts.tolist() == [2, 3, 1]


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right):
    edges, values = np.sort(RNG.integers(0, 50, 20)), RNG.integers(-5, 60, (4, 7))
    got = fl.searchsorted(fl.as_tensor(edges), fl.as_tensor(values), right=right)
    assert got.tolist() == np.searchsorted(edges, values, "right" if right else "left").tolist()
    assert fl.bucketize(fl.as_tensor(values), fl.as_tensor(edges), right=right).tolist() == got.tolist()


def test_counting():
    array = RNG.integers(0, 12, 5000)
    assert fl.bincount(fl.as_tensor(array), minlength=20).tolist() == np.bincount(array, minlength=20).tolist()
    points = RNG.standard_normal(3000)
    hist, _edges = fl.histogram(fl.as_tensor(points), 10, range=(-2.0, 2.0))
    assert hist.tolist() == np.histogram(points, 10, (-2, 2))[0].tolist()
    assert fl.histc(fl.as_tensor(points), 10, -2, 2).tolist() == hist.tolist()
    assert fl.isin(fl.tensor(array), fl.tensor([3, 5])).tolist() == np.isin(array, [3, 5]).tolist()
    with pytest.raises(RuntimeError):
        fl.bincount(fl.tensor([-1]))


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_quantiles(how, dim):
    array = RNG.standard_normal((9, 14))
    got = fl.quantile(fl.tensor(array), fl.tensor([0.1, 0.6], dtype=fl.float64), dim, interpolation=how)
    np.testing.assert_allclose(got.tolist(), np.quantile(array, [0.1, 0.6], dim, method=how), atol=1e-9)


def test_covariance_and_correlation():
    array = RNG.standard_normal((4, 30))
    np.testing.assert_allclose(fl.cov(fl.as_tensor(array)).tolist(), np.cov(array), atol=1e-9)
    np.testing.assert_allclose(fl.corrcoef(fl.as_tensor(array)).tolist(), np.corrcoef(array), atol=1e-9)


@pytest.mark.parametrize("dtype", [fl.bool, fl.uint8, fl.int8, fl.int32, fl.int64, fl.float16, fl.bfloat16, fl.float64])
def test_every_dtype_with_an_order(dtype):
    x = fl.tensor([[3, 1, 0, 1], [0, 0, 2, 1]], dtype=dtype)
    plain = [sorted(row) for row in x.tolist()]
    assert x.sort(1)[0].tolist() == plain and x.sort(1)[0].dtype == dtype
    assert x.sort(1, descending=True)[0].tolist() == [row[::-1] for row in plain]
    assert fl.unique(x).tolist() == sorted({value for row in plain for value in row})
    assert fl.unique_consecutive(x[0, 1:]).tolist() == x[0, 1:].tolist()
    if dtype != fl.bool:
        assert x.topk(2)[0].tolist() == [row[:-3:-1] for row in plain]
        assert x.median(1)[0].tolist() == [row[1] for row in plain]
        assert x.kthvalue(3, 1)[0].tolist() == [row[2] for row in plain]
    assert fl.unique(fl.stack([x[0], x[1], x[0]]), dim=0).tolist() == sorted(x.tolist())


def test_the_largest_integer_is_a_number_beside_nan():
    largest = fl.iinfo(fl.int32).max
    x = fl.tensor([largest, largest, 1], dtype=fl.int32)
    assert fl.unique(x).tolist() == [1, largest] and x.median() == largest
    nans = fl.tensor([float("nan"), 1.0, float("nan")])
    assert len(fl.unique(nans)) == 3 and nans.nanmedian() == 1.0 and nans.median().isnan()
    assert len(fl.unique(nans.unsqueeze(1), dim=0)) == 3


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.int32])
def test_searchsorted_counts_what_comes_before(n, dtype):
    sequence = fl.arange(n, dtype=dtype) // 2
    values = fl.arange(-2, n // 2 + 3, dtype=dtype)
    for right in (False, True):
        expected = [sum(s <= v if right else s < v for s in sequence.tolist()) for v in values.tolist()]
        assert fl.searchsorted(sequence, values, right=right).tolist() == expected
        found = fl.searchsorted(sequence.flip(0), values, right=right, sorter=fl.arange(n).flip(0), out_int32=True)
        assert found.tolist() == expected and found.dtype == fl.int32
