"""gather, scatter and the view-replacing scatters, against loops over NumPy arrays."""

import itertools

import numpy as np
import pytest

import flambeau as fl

REDUCE = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "amax": np.maximum,
    "amin": np.minimum,
}


def scatter_loop(start, dim, index, source, combine):
    out = start.copy()
    for at in itertools.product(*map(range, index.shape)):
        to = list(at)
        to[dim] = index[at]
        out[tuple(to)] = combine(out[tuple(to)], source[at])
    return out


def case(dim, seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    start = rng.integers(1, 9, (4, 5, 6)).astype(dtype)
    shape = [3, 4, 5]
    shape[dim] = 7
    index = rng.integers(0, start.shape[dim], shape)
    source = rng.integers(1, 4, [max(a, b) for a, b in zip(shape, (4, 5, 6))]).astype(dtype)
    return start, index, source


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_reads_one_element_for_each_index(dim):
    start, index, _ = case(dim)
    cut = start[tuple(slice(None) if d == dim else slice(0, index.shape[d]) for d in range(3))]
    expected = np.take_along_axis(cut, index, dim)
    assert np.array_equal(fl.tensor(start).gather(dim, fl.tensor(index)).cpu().numpy(), expected)
    strided = fl.tensor(np.ascontiguousarray(start.T)).permute(2, 1, 0)
    assert np.array_equal(strided.gather(dim, fl.tensor(index).int()).cpu().numpy(), expected)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float64"])
@pytest.mark.parametrize("reduce", list(REDUCE))
def test_scatter_reduce_combines_in_order(dim, dtype, reduce):
    start, index, source = case(dim, dtype=dtype)
    with np.errstate(over="ignore"):
        expected = scatter_loop(start, dim, index, source, REDUCE[reduce])
    ours = fl.tensor(start).scatter_reduce(dim, fl.tensor(index), fl.tensor(source), reduce)
    assert np.array_equal(ours.cpu().numpy(), expected)


def test_scatter_assigns_values_and_sources():
    start, _, _ = case(1)
    index = np.array([[[2], [0]]])
    ours = fl.tensor(start).scatter(1, fl.tensor(index), fl.tensor([[[7.0], [8.0]]]))
    expected = scatter_loop(start, 1, index, np.array([[[7.0], [8.0]]]), lambda a, b: b)
    assert np.array_equal(ours.cpu().numpy(), expected)
    assert fl.zeros(3).scatter_(0, fl.tensor([2]), 5).tolist() == [0, 0, 5]
    assert fl.ones(3).scatter(0, fl.tensor([2, 2]), 3, reduce="multiply").tolist() == [1, 1, 9]
    assert fl.ones(3).scatter(0, fl.tensor([2, 2]), fl.ones(2), reduce="add").tolist() == [1, 1, 3]


def test_scatter_add_over_rows_with_an_expanded_index():
    index = fl.arange(4000) % 10
    ours = fl.zeros(10, 32).scatter_add(0, index[:, None].expand(-1, 32), fl.ones(4000, 32))
    assert (ours.cpu().numpy() == 400).all()


def test_mean_and_include_self():
    index, source = fl.tensor([0, 0, 1]), fl.tensor([2.0, 4.0, 5.0])
    start = fl.tensor([6.0, 1.0, 9.0])
    assert start.scatter_reduce(0, index, source, "mean").tolist() == [4, 3, 9]
    assert start.scatter_reduce(0, index, source, "mean", include_self=False).tolist() == [3, 5, 9]
    assert start.scatter_reduce(0, index, source, "prod", include_self=False).tolist() == [8, 5, 9]
    whole = fl.tensor([0, 0, 0]).scatter_reduce(0, index, fl.tensor([2, -5, 1]), "mean", include_self=False)
    assert whole.tolist() == [-2, 1, 0]


def test_nan_survives_amax():
    nan = float("nan")
    ours = fl.zeros(2).scatter_reduce(0, fl.tensor([0, 0, 1]), fl.tensor([nan, 1.0, 2.0]), "amax")
    assert ours[0].isnan() and ours[1] == 2


def test_zero_dim_and_empty():
    assert fl.tensor(3.0).gather(0, fl.tensor([0, 0])).tolist() == [3, 3]
    assert fl.ones(2, 3).gather(0, fl.empty(0, dtype=fl.int64)).shape == (0,)
    assert fl.ones(2).scatter(0, fl.empty(0, dtype=fl.int64), 4.0).tolist() == [1, 1]


def test_bad_input_raises():
    t = fl.ones(3, 4)
    index = fl.zeros(2, 2, dtype=fl.int64)
    for bad in (index.float(), index[0], fl.zeros(2, 5, dtype=fl.int64)):
        with pytest.raises(RuntimeError):
            t.gather(0, bad)
        with pytest.raises(RuntimeError):
            t.scatter(0, bad, 1.0)
    # Values of indices: other devices report them as IndexError when something waits for them.
    wrong = RuntimeError if t.is_cpu else IndexError
    for bad in (index - 1, index + 9):
        with pytest.raises(wrong):
            t.gather(0, bad).tolist()
        with pytest.raises(wrong):
            t.scatter(0, bad, 1.0).tolist()
    with pytest.raises(RuntimeError):
        t.scatter(0, index, fl.ones(1, 1))
    with pytest.raises(RuntimeError):
        t.scatter(0, index, fl.ones(2, 2, dtype=fl.int64))
    with pytest.raises(RuntimeError):
        t.scatter_reduce(0, index, fl.ones(2, 2), "median")
    with pytest.raises(RuntimeError):
        fl.ones(1).expand(4).scatter_(0, fl.tensor([0]), 1.0)
    with pytest.raises(IndexError):
        t.gather(2, index)


def test_view_scatters_replace_in_a_copy():
    t = fl.zeros(3, 4)
    assert t.select_scatter(fl.ones(4), 0, 1).tolist()[1] == [1] * 4
    assert fl.slice_scatter(t, fl.ones(3, 2), 1, 0, None, 2)[0].tolist() == [1, 0, 1, 0]
    assert t.diagonal_scatter(fl.ones(3)).diagonal().tolist() == [1, 1, 1]
    assert fl.as_strided_scatter(t, fl.ones(2), (2,), (5,)).cpu().numpy().sum() == 2
    assert t.cpu().numpy().sum() == 0
    with pytest.raises(RuntimeError):
        t.select_scatter(fl.ones(3), 0, 1)
