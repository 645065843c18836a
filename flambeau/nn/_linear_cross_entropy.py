"""How `nn.functional.linear_cross_entropy` splits its batch, so that the scores of all rows never exist at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flambeau as fl

ACC_POLICIES = ("accurate", "balanced", "compact", "auto")


def _ratio(method: str | None) -> float | None:
    """The number in "aspect_ratio:number", 2 for "auto"."""
    if method is None:
        return None
    if method == "auto":
        return 2.0
    name, _, number = method.partition(":")
    try:
        ratio = float(number)
    except ValueError:
        ratio = 0.0
    if name != "aspect_ratio" or not ratio > 0.0:
        raise ValueError(
            f"[LinearCrossEntropyOptions] expected chunking_method auto or aspect_ratio:number, got {method!r}"
        )
    return ratio


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """Rows of a piece are given by `batch_chunk_size`, or chosen so that the scores of a piece are at most
    `aspect_ratio` times as many as the elements of the input. Sums are kept in `acc_dtype`, by default float32 for the
    reduced precisions; every `acc_policy` keeps them so.

    >>> nn.LinearCrossEntropyOptions(batch_chunk_size=64).batch_chunk_size
    64
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        where = "[LinearCrossEntropyOptions]"
        if self.acc_policy not in ACC_POLICIES:
            raise ValueError(f"{where} expected acc_policy among {ACC_POLICIES}, got {self.acc_policy!r}")
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise ValueError(f"{where} expected a positive batch_chunk_size or None, got {size!r}")
        if self.acc_dtype not in (None, fl.float16, fl.bfloat16, fl.float32, fl.float64):
            raise ValueError(f"{where} expected a floating acc_dtype or None, got {self.acc_dtype}")
        _ratio(self.chunking_method)

    def rows(self, batch: int, features: int, classes: int) -> int:
        """Rows in a piece of the batch."""
        if self.batch_chunk_size is not None:
            return self.batch_chunk_size
        ratio = _ratio(self.chunking_method)
        if ratio is None:
            return max(1, batch)
        return max(1, min(batch, int(ratio * batch * features / max(1, classes))))

    def sum_dtype(self, dtype: Any) -> Any:
        """The dtype in which losses of tensors of a dtype are summed."""
        wide = fl.float32 if dtype in (fl.float16, fl.bfloat16) else dtype
        if self.acc_dtype not in (None, dtype, wide):
            raise RuntimeError(
                f"[linear_cross_entropy] expected acc_dtype {wide} for inputs of {dtype}, got {self.acc_dtype}"
            )
        return self.acc_dtype or wide
