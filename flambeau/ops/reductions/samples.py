"""Samples of reductions, scans and statistics."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Constant, Make, call, samples


@samples("max.dim", "min.dim", "argmax", "argmin")
def extremes(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1)
    yield call(make.strided(3, 2), 0, True)


@samples("aminmax")
def extremes_of_all(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))


@samples("var", "std", "var_mean", "std_mean")
def spread(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make.strided(3, 2), False)


@samples("var.dim", "std.dim", "var_mean.dim", "std_mean.dim")
def spread_dims(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [1])
    yield call(make(2, 2, 3), [0, 2], False, True)


@samples("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def spread_correction(make: Make) -> Iterator[Call]:
    yield call(make(2, 4), [1], correction=2)
    yield call(make(2, 3), correction=0, keepdim=True)


@samples("_norm_p")
def norm_p(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 3.0, [1])
    yield call(make(2, 3), 1.5, [0], True)


@samples("_norm_0", "_norm_1", "_norm_2", "_norm_inf", "_norm_neg_inf")
def norms(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [1])
    yield call(make.strided(2, 3), [0, 1], True)


@samples("norm")
def norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make(2, 3), 3, [1], True)


@samples("renorm")
def renorm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 2, 0, 0.7)


@samples("dist")
def dist(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3), 3)


@samples("_logsumexp", "logsumexp", "special_logsumexp")
def logsumexp(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [1])
    yield call(make.strided(2, 3), [0, 1], True)


@samples("diff")
def diff(make: Make) -> Iterator[Call]:
    yield call(make(2, 4))
    yield call(make(4), 2, 0, make(1))


@samples("cov", "corrcoef")
def cov(make: Make) -> Iterator[Call]:
    yield call(make(2, 4))


@samples("trapz.x", "trapezoid.x", "cumulative_trapezoid.x")
def trapezoid(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3))


@samples("count_nonzero")
def count_nonzero(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make(2, 3), [1])


@samples("sum_to_size")
def sum_to_size(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [1, 3])
    yield call(make(2, 3), [3])


@samples("segment_reduce")
def segment_reduce(make: Make) -> Iterator[Call]:
    for reduce in ("sum", "mean", "prod") if make.dtype.is_complex else ("sum", "mean", "max", "min", "prod"):
        yield call(make(5), reduce, lengths=make.index([2, 3]))


@samples("searchsorted.Tensor")
def searchsorted(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 3, 5]), make.index([[2, 3]]))


@samples("searchsorted.Scalar")
def searchsorted_number(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 3, 5]), 3)


@samples("bucketize.Scalar")
def bucketize_number(make: Make) -> Iterator[Call]:
    yield call(3, make.index([1, 3, 5]))


@samples("bucketize.Tensor")
def bucketize(make: Make) -> Iterator[Call]:
    yield call(make.index([[2, 3]]), make.index([1, 3, 5]))


@samples("_search")
def search(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 3, 5]), make.index([2, 3]), False, False)


@samples("isin")
def isin(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 2, 3]), make.index([2, 3]))


@samples("_isin_sorted")
def isin_sorted(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 2, 3]), make.index([2, 3]), False)


@samples("bincount")
def bincount(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 2, 2]))


@samples("_histogramdd")
def histogramdd(make: Make) -> Iterator[Call]:
    yield call(make.constant(4, 1), [Constant(make.positive(3).sort()[0])], False)


@samples("histogram.bins_tensor")
def histogram(make: Make) -> Iterator[Call]:
    yield call(make.constant(4), Constant(make.positive(3).sort()[0]))


@samples("histogram.bin_ct", "histc")
def histogram_count(make: Make) -> Iterator[Call]:
    yield call(make.constant(4), 3)


@samples("quantile", "nanquantile")
def quantile(make: Make) -> Iterator[Call]:
    yield call(make(2, 4), 0.3)
    yield call(make(2, 4), Constant(make.real(2, low=0.2)), 1, True)


@samples("cummax", "cummin", "logcumsumexp", "cumsum", "cumprod")
def scans(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1)
    yield call(make.strided(3, 2), 0)
    yield call(make(), 0)


@samples("_unique", "_unique_rows")
def unique(make: Make) -> Iterator[Call]:
    yield call(make.index([[1, 2], [1, 2]]), False)


@samples("allclose", "equal")
def comparisons(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(2, 3))


samples.without(
    "its result is of uint64, which the reference device lacks; tests/test_reference_names.py tests it", "hash_tensor"
)
