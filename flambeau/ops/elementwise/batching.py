"""Batching rules of elementwise operators."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.batching import Held, on_value, pointwise
from flambeau.ops.rules import batching

batching("conj_physical")(on_value)


@batching("masked_fill")
def masked_fill(mode: Any, func: Any, self: Any, mask: Any, value: Any) -> Any:
    if not isinstance(value, Held):
        return pointwise(mode, func, self, mask, value)
    dtype = self.value.dtype if isinstance(self, Held) else self.dtype
    return pointwise(mode, fl.ops.aten.where.self, mask, Held(value.value.to(dtype)), self)
