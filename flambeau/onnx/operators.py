"""Functions that models call in place of `x.shape` so that a trace keeps the size a tensor."""

from __future__ import annotations

from typing import Any

import flambeau as fl

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x: Any) -> Any:
    """The sizes of a tensor as a tensor."""
    return fl._shape_as_tensor(x) if hasattr(fl, "_shape_as_tensor") else fl.tensor(list(x.shape))


def reshape_from_tensor_shape(x: Any, shape: Any) -> Any:
    """A reshape to sizes given as a tensor."""
    return fl.reshape(x, [int(size) for size in shape])
