"""Definitions that sort and count give what the CPU's kernels give, on shapes and values that samples do not have."""

import math

import pytest

import flambeau as fl
from flambeau.ops.rules import definition

SHAPES = [(0,), (1,), (7,), (5, 6), (3, 0), (), (4, 5, 2)]


def copies(args):
    return [a.clone() if isinstance(a, fl.Tensor) else a for a in args]


def check(name, *args, **kwargs):
    got = definition.find(name)(*copies(args), **kwargs)
    want = fl._C._operator_object(name)(*copies(args), **kwargs)
    got, want = ([x] if isinstance(x, fl.Tensor) else list(x) for x in (got, want))
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        assert fl.allclose(g.double(), w.double(), equal_nan=True, rtol=1e-5, atol=1e-5)


def values(shape, dtype, high=5):
    fl.manual_seed(len(shape) + high)
    x = fl.randint(0, high, shape).to(dtype)
    if dtype is fl.float32 and x.numel() > 2:
        x.view(-1)[:2] = math.nan
    return x


@pytest.mark.parametrize("dtype", [fl.int64, fl.float32, fl.bool, fl.uint8], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unique_values(shape, dtype):
    for high in (2, 100):
        x = values(shape, dtype, high)
        for consecutive in (True, False):
            check("_unique", x, consecutive, True)
            check("_unique", x, consecutive, False)
            if x.dim():
                check("_unique_rows", x, consecutive)
        check("nonzero_static", x, size=3)


@pytest.mark.parametrize("dtype", [fl.int64, fl.float32, fl.bfloat16], ids=str)
def test_modes_and_medians(dtype):
    for shape in SHAPES:
        x = values(shape, dtype)
        check("median", x)
        check("nanmedian", x)
        for dim in range(x.dim()):
            for keepdim in (True, False) if x.numel() else ():
                for name in ("mode", "median.dim", "nanmedian.dim"):
                    check(name, x, dim, keepdim)


def test_counts():
    for n in (0, 1, 50):
        x = values((n,), fl.int64, 9)
        for weights in (None, fl.randn(n), fl.randn(n).double(), fl.randint(0, 5, (n,))):
            check("bincount", x, weights, 0)
            check("bincount", x, weights, 20)
        for dtype in (fl.float32, fl.float64, fl.bfloat16, fl.float16):
            for range_ in ((10, 0, 0), (7, -1, 1), (100, 0.0, 2.0)):
                check("histc", fl.randn(n).to(dtype), *range_)
    points, edges = fl.randn(50, 2), [fl.linspace(-1, 1, 6), fl.linspace(-2, 0.5, 4)]
    for weight in (None, fl.rand(50)):
        check("_histogramdd", points, edges, True, weight)
        check("_histogramdd", points, edges, False, weight)
    for found in ([1, 3, 5], []):
        check("_isin_sorted", fl.randint(0, 7, (2, 3)), fl.tensor(found, dtype=fl.int64), True)
    check("repeat_interleave.Tensor", fl.tensor([0, 3, 1]))
    check("_sparse_groups", fl.randint(0, 4, (2, 9)), [4, 4])


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16], ids=str)
def test_bags(mode, dtype):
    fl.manual_seed(0)
    weight = fl.randn(10, 4).to(dtype)
    for n, offsets in ((0, [0]), (5, [0, 2, 2, 5]), (12, [0, 0, 7])):
        index = fl.randint(0, 10, (n,))
        for padding in (-1, 3):
            check("_embedding_bag", weight, index, fl.tensor(offsets), False, mode, False, None, False, padding)
            ended = fl.tensor([*offsets, n])
            check("_embedding_bag", weight, index, ended, False, mode, False, None, True, padding)
    if mode == 0:
        check("_embedding_bag", weight, index, fl.tensor([0, 4]), False, 0, False, fl.randn(12).to(dtype), False, -1)
    for order in (1.0, 2.0, math.inf):
        check("embedding_renorm_", fl.randn(10, 4), fl.tensor([1, 4, 1]), 1.0, order)


@pytest.mark.parametrize("lead", [(2, 3), (3,)], ids=str)
def test_windows(lead):
    fl.manual_seed(0)
    for ndim in (1, 2, 3):
        x = fl.randint(0, 9, (*lead, *(5, 7, 4)[:ndim])).float()
        for outs in ([1] * ndim, [2, 3, 4][:ndim], [8] * ndim):
            check("adaptive_max_pool1d" if ndim == 1 else f"_adaptive_max_pool{ndim}d", x, outs)
        if ndim > 1:
            samples = fl.rand(lead[0] if len(lead) == 2 else 1, 3, ndim)
            check(f"_fractional_max_pool{ndim}d", x, [2] * ndim, [2] * ndim, samples)


@pytest.mark.parametrize("seed", range(3))
def test_draws_are_those_of_the_cpu(seed):
    def drawn(name, *args):
        found = []
        for f in (definition.find(name), fl._C._operator_object(name)):
            fl.manual_seed(seed)
            found.append(f(*copies(args)))
        assert found[0].shape == found[1].shape and fl.equal(*found)

    for shape in ((5,), (3, 7), (1, 100)):
        weights = fl.rand(shape)
        weights.view(-1)[0] = 0
        for replacement in (True, False):
            drawn("multinomial", weights, 1, replacement)
            drawn("multinomial", weights, 3, replacement)
        drawn("bernoulli", weights)
        drawn("bernoulli_.Tensor", fl.zeros(2, *shape), weights)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_scattered_reductions(reduce, include_self):
    for dtype in (fl.float32, fl.int64):
        x, source = values((4, 5), fl.int64).to(dtype), values((3, 5), fl.int64, 9).to(dtype)
        index = fl.tensor([[0, 3, 1, 1, 2]] * 3)
        check("scatter_reduce.two", x, 0, index, source, reduce, include_self=include_self)
