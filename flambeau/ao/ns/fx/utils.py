"""How far two tensors are apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor

__all__ = ["compute_cosine_similarity", "compute_normalized_l2_error", "compute_sqnr"]


def _of_pairs(measure: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Any]:
    """The measure of tensors, and of lists of tensors one by one."""

    def function(x: Any, y: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [function(a, b) for a, b in zip(x, y, strict=True)]
        x, y = (t.dequantize() if t.is_quantized else t for t in (x, y))
        return measure(x, y)

    function.__name__ = function.__qualname__ = measure.__name__
    function.__doc__ = measure.__doc__
    return function


@_of_pairs
def compute_sqnr(x: Tensor, y: Tensor) -> Tensor:
    """Signal to quantization noise, in decibels."""
    return 20 * fl.log10(fl.norm(x) / fl.norm(x - y))


@_of_pairs
def compute_normalized_l2_error(x: Tensor, y: Tensor) -> Tensor:
    """The norm of the difference over that of the first tensor."""
    return fl.sqrt(((x - y) ** 2).sum() / (x**2).sum())


@_of_pairs
def compute_cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of the angle between the tensors."""
    return fl.nn.functional.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))
