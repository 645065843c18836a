"""Reductions against NumPy: every split of dimensions into kept and reduced, strides, dtypes, NaN, empty, errors."""

import itertools

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(0)
SHAPE = (5, 33, 70)


def close(got, want, tolerance=1e-4):
    np.testing.assert_allclose(np.array(got.tolist()), want, rtol=tolerance, atol=tolerance)


def layouts(array):
    """The same values under different strides."""
    yield fl.as_tensor(array)
    yield fl.as_tensor(np.ascontiguousarray(array.transpose(2, 0, 1))).permute(1, 2, 0)
    yield fl.as_tensor(np.repeat(array, 2, axis=1)).as_strided(array.shape, (2 * 33 * 70, 2 * 70, 1))


DIMS = [c for n in (1, 2, 3) for c in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "var", "std", "logsumexp"])
def test_reduction_over_any_dims_and_strides(name, dims):
    array = RNG.standard_normal(SHAPE).astype(np.float32)
    reference = {
        "var": lambda a: a.var(dims, ddof=1),
        "std": lambda a: a.std(dims, ddof=1),
        "logsumexp": lambda a: np.log(np.exp(a).sum(dims)),
    }.get(name, lambda a: getattr(np, name)(a, dims))
    for x in layouts(array):
        close(getattr(fl, name)(x, dims), reference(array.astype(np.float64)), 1e-3)
        assert getattr(fl, name)(x, dims, keepdim=True).shape == array.sum(dims, keepdims=True).shape


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_extremes_come_with_the_first_index(dim):
    array = RNG.integers(0, 6, SHAPE)
    for dtype in (np.float32, np.float64, np.int64, np.int8):
        for x in layouts(array.astype(dtype)):
            values, indices = fl.max(x, dim)
            close(values, array.max(dim))
            close(indices, array.argmax(dim))
            close(fl.argmin(x, dim), array.argmin(dim))
            close(fl.min(x, dim).values, array.min(dim))


def test_argmax_of_everything_counts_in_logical_order():
    array = RNG.standard_normal((40, 50))
    x = fl.as_tensor(array)
    assert fl.argmax(x.t()).item() == array.T.argmax()
    assert fl.argmax(x, keepdim=True).shape == (1, 1)


@pytest.mark.parametrize("position", [0, 1, 999, 5000, 69999])
def test_nan_wins_extremes(position):
    array = RNG.standard_normal(70000).astype(np.float32)
    array[position] = np.nan
    x = fl.as_tensor(array)
    assert np.isnan(fl.amax(x).item()) and np.isnan(fl.min(x).item())
    assert fl.argmax(x).item() == position and fl.min(x, 0).indices.item() == position
    assert np.isfinite(fl.nansum(x).item())


def test_long_float_sums_are_accurate():
    array = RNG.random(1_000_000).astype(np.float32)
    exact = array.astype(np.float64).sum()
    assert abs(fl.sum(fl.as_tensor(array)).item() - exact) / exact < 1e-6
    tall = fl.as_tensor(array.reshape(-1, 4))
    np.testing.assert_allclose(fl.sum(tall, 0).tolist(), array.reshape(-1, 4).astype(np.float64).sum(0), rtol=1e-6)


def test_integers_and_bools_sum_to_int64():
    flags = fl.as_tensor(RNG.random(1000) > 0.5)
    assert fl.sum(flags).dtype == fl.int64 and fl.prod(flags).dtype == fl.int64
    narrow = fl.as_tensor(np.full(1000, 100, np.int8))
    assert fl.sum(narrow).item() == 100_000
    assert fl.sum(narrow, dtype=fl.float64).dtype == fl.float64


def test_reduced_precision_accumulates_in_float():
    x = fl.full((4096,), 1.0, dtype=fl.bfloat16)
    assert fl.sum(x).item() == 4096 and fl.sum(x).dtype == fl.bfloat16
    assert fl.mean(x.reshape(64, 64), 0).tolist() == [1.0] * 64


def test_empty_reductions_give_the_identity_or_raise():
    x = fl.empty(0, 3)
    assert fl.sum(x, 0).tolist() == [0.0] * 3 and fl.prod(x).item() == 1
    assert np.isnan(fl.mean(x).item()) and fl.all(x).item() is True and fl.any(x).item() is False
    with pytest.raises(IndexError):
        fl.amax(x, 0)
    with pytest.raises(IndexError):
        fl.max(x, 0)
    with pytest.raises(RuntimeError):
        fl.max(x)
    assert fl.amax(x, 1).shape == (0,)


def test_bad_dims_raise():
    x = fl.ones(2, 3)
    with pytest.raises(IndexError):
        fl.sum(x, 2)
    with pytest.raises(RuntimeError):
        fl.sum(x, (0, -2))
    with pytest.raises(RuntimeError):
        fl.mean(fl.ones(3, dtype=fl.int64))


def test_variance_is_stable_far_from_zero():
    array = (RNG.standard_normal((64, 3000)) + 1e4).astype(np.float32)
    for dim in (0, 1):
        np.testing.assert_allclose(
            fl.var(fl.as_tensor(array), dim).tolist(), array.astype(np.float64).var(dim, ddof=1), rtol=1e-3
        )
    assert fl.var(fl.as_tensor(array), correction=0).shape == ()


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, float("inf"), -float("inf")])
def test_norms(p):
    array = RNG.standard_normal((6, 50))
    close(fl.norm(fl.as_tensor(array), p, 1), np.array([np.linalg.norm(row, p) for row in array]), 1e-8)


def test_logsumexp_of_infinities():
    inf = float("inf")
    x = fl.tensor([[-inf, -inf], [inf, 0.0], [1000.0, 1000.0]])
    got = fl.logsumexp(x, 1).tolist()
    assert got[0] == -inf and got[1] == inf and abs(got[2] - 1000 - np.log(2)) < 1e-3


def test_meta_tensors_give_shapes():
    x = fl.empty(4, 5, device="meta")
    assert fl.sum(x, 1, keepdim=True).shape == (4, 1) and fl.max(x, 0)[1].dtype == fl.int64
