"""Results of counts whose sizes the data decides, for graphs that hold such sizes as symbols."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.geometry import numel
from flambeau.ops.rules import unbacked


@unbacked("_unique")
def _unique(make: Any, self: Any, consecutive: bool, inverse: bool) -> Any:
    sizes = self.geometry.sizes
    count = make.size(0, numel(sizes))
    places = make.tensor(sizes if inverse else (0,), fl.int64)
    return make.tensor((count,), self.dtype), places, make.tensor((count,), fl.int64)


@unbacked("_unique_rows")
def _unique_rows(make: Any, self: Any, consecutive: bool) -> Any:
    rows = self.geometry.sizes[0]
    count = make.size(0, rows)
    return make.tensor((count,), fl.int64), make.tensor((rows,), fl.int64), make.tensor((count,), fl.int64)


@unbacked("bincount")
def bincount(make: Any, self: Any, weights: Any, minlength: int) -> Any:
    dtype = fl.int64
    if weights is not None:
        dtype = fl.float32 if weights.dtype == fl.float32 else fl.float64
    return make.tensor((make.size(minlength, None),), dtype)
