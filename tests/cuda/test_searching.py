"""Extremes, searches, draws and combinations by index on the device against the CPU, at sizes that samples do not have."""

import math

import pytest

import flambeau as fl


def same(function, *args, **kwargs):
    got = function(*(a.cuda() if isinstance(a, fl.Tensor) else a for a in args), **kwargs)
    want = function(*args, **kwargs)
    got, want = ([x] if isinstance(x, fl.Tensor) else list(x) for x in (got, want))
    for g, w in zip(got, want):
        assert g.is_cuda and (g.shape, g.dtype) == (w.shape, w.dtype)
        tolerance = 1e-2 if w.dtype is fl.bfloat16 else 1e-5
        assert fl.allclose(g.cpu().double(), w.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float64, fl.int64, fl.uint8], ids=str)
@pytest.mark.parametrize("shape", [(1,), (3, 40), (2, 500, 3), (70000,), (4, 30000), (1000, 5), ()], ids=str)
def test_extremes(shape, dtype):
    fl.manual_seed(0)
    x = fl.randint(0, 100, shape).to(dtype)
    if x.is_floating_point() and x.numel() > 10:
        x.view(-1)[::1000] = math.nan
    for dim in range(-1, x.dim()):
        for keepdim in (False, True):
            same(fl.max, x, dim, keepdim)
            same(fl.min, x, dim, keepdim)
            same(fl.argmax, x, dim, keepdim)
    same(fl.argmin, x)
    same(fl.argmax, x, keepdim=True)
    for dim in range(x.dim()):
        same(fl.cummax, x, dim)
        same(fl.cummin, x, dim)


def test_empty_dimensions_raise():
    with pytest.raises(IndexError):
        fl.max(fl.zeros(0, 3, device="cuda"), 0)
    assert fl.argmax(fl.zeros(0, 3, device="cuda"), 1).shape == (0,)


def test_a_sorter_out_of_bounds_is_reported():
    line, sorter = fl.arange(4.0, device="cuda"), fl.tensor([0, 1, 9, 3], device="cuda")
    with pytest.raises(RuntimeError, match="out of range"):
        fl.searchsorted(line, line, sorter=sorter).cpu()


@pytest.mark.parametrize("right", [False, True])
def test_places_in_sorted_sequences(right):
    fl.manual_seed(0)
    line, lines = fl.randn(1000).sort()[0], fl.randn(3, 50).sort()[0]
    same(lambda s, v: fl.searchsorted(s, v, right=right), line, fl.randn(4, 7))
    same(lambda s, v: fl.searchsorted(s, v, right=right, out_int32=True), lines, fl.randn(3, 20))
    same(lambda v: fl.bucketize(v, fl.tensor([1, 3, 5], device=v.device), right=right), fl.randint(0, 7, (9,)))
    mixed = fl.randn(50)
    same(lambda s, v: fl.searchsorted(s, v, sorter=s.argsort()), mixed, fl.randn(5))


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_combinations_by_index(reduce):
    fl.manual_seed(0)
    for dtype in (fl.float32, fl.bfloat16, fl.int64):
        x, source = fl.randint(1, 4, (6, 50)).to(dtype), fl.randint(1, 3, (10, 50)).to(dtype)
        index = fl.randint(0, 6, (10, 50))
        for include in (True, False):
            same(fl.scatter_reduce, x, 0, index, source, reduce, include_self=include)


def test_draws_are_those_of_the_cpu():
    weights = fl.rand(5, 2000)

    def drawn(function):
        def run(t):
            fl.manual_seed(3)
            return function(t)

        same(run, weights)

    drawn(lambda w: fl.multinomial(w, 10, replacement=True))
    drawn(lambda w: fl.multinomial(w, 10))
    drawn(lambda w: fl.multinomial(w[0], 1))
    drawn(fl.bernoulli)
    drawn(lambda w: fl.poisson(w * 5))
    drawn(lambda w: fl.poisson(w * 500))
    drawn(lambda w: fl._standard_gamma(w * 4))
    drawn(lambda w: fl._sample_dirichlet(w[:, :5] * 4))
    drawn(lambda w: fl.binomial(fl.full_like(w, 40), w))
    assert fl._standard_gamma(fl.tensor([math.nan, -1.0], device="cuda")).isnan().all()
    with pytest.raises(RuntimeError):
        fl.multinomial(-weights.cuda(), 1)
    with pytest.raises(RuntimeError):
        fl.bernoulli(weights.cuda() * 2)


def test_unique_and_counts():
    fl.manual_seed(0)
    x = fl.randint(0, 30, (40, 3))
    same(lambda t: fl.unique(t, return_inverse=True, return_counts=True), x)
    same(lambda t: fl.unique(t, dim=0, return_inverse=True, return_counts=True), x)
    same(lambda t: fl.unique_consecutive(t, return_inverse=True, return_counts=True), x)
    same(lambda t: fl.bincount(t.reshape(-1)), x)
    same(lambda t: fl.histc(t, 7), fl.randn(500))
    same(lambda t: fl.mode(t, 0), x)
    same(lambda t: fl.nanmedian(t, 1), x.float())
