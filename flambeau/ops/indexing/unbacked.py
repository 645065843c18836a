"""Results of selections whose sizes the data decides, for graphs that hold such sizes as symbols."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.geometry import numel
from flambeau.ops.rules import unbacked


@unbacked("nonzero")
def nonzero(make: Any, self: Any) -> Any:
    sizes = self.geometry.sizes
    return make.tensor((make.size(0, numel(sizes)), len(sizes)), fl.int64)


@unbacked("nonzero.as_tuple", "_nonzero_numpy")
def nonzero_tuple(make: Any, self: Any) -> Any:
    sizes = self.geometry.sizes
    count = make.size(0, numel(sizes))
    return tuple(make.tensor((count,), fl.int64) for _ in range(max(len(sizes), 1)))


@unbacked("masked_select")
def masked_select(make: Any, self: Any, mask: Any) -> Any:
    sizes = fl.broadcast_tensors(self, mask)[0].geometry.sizes
    return make.tensor((make.size(0, numel(sizes)),), self.dtype)
