"""Elementwise operators in terms of those that ATen has."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import aten_parts


@aten_parts("_clamp")
def clamp_as_aten(self: Any, min: Any, max: Any) -> Any:
    numbers = not isinstance(min, fl.Tensor) and not isinstance(max, fl.Tensor)
    return (fl.ops.aten.clamp.default, (self, min, max)) if numbers else NotImplemented
