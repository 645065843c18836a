"""Shape rules of reductions, scans and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops.geometry import Geometry, Int, Ints, of_self, of_self_twice, reduced
from flambeau.ops.rules import shape

shape("cumsum", "cumprod", "logcumsumexp")(of_self)
shape("cummax", "cummin")(of_self_twice)


@shape(
    *(
        "sum mean prod amax amin all any count_nonzero nansum max min _norm_0 _norm_1 _norm_2 _norm_inf "
        "_norm_neg_inf _norm_p argmax argmin var var.dim var.correction std std.dim std.correction "
        "_logsumexp"
    ).split()
)
def reduction(self: Geometry, dim: Any, keepdim: Any) -> Ints:
    return reduced(self.sizes, dim, bool(keepdim))


@shape(*("var_mean var_mean.dim var_mean.correction std_mean std_mean.dim std_mean.correction max.dim min.dim").split())
def reduction_to_two(self: Geometry, dim: Any, keepdim: Any) -> list[Ints]:
    sizes = reduced(self.sizes, dim, bool(keepdim))
    return [sizes, sizes]


@shape("_search")
def search(values: Geometry) -> Ints:
    return values.sizes


@shape("_isin_sorted")
def isin(self: Geometry) -> Ints:
    return self.sizes


@shape("_histogramdd")
def histogram(edges: Sequence[Geometry]) -> Ints:
    return tuple(e.sizes[0] - 1 for e in edges)


@shape("histc")
def histc(bins: Int) -> Ints:
    return (bins,)
