"""The helpers of torch_xla.utils.utils that training programs use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["SampleGenerator"]


class SampleGenerator:
    """A data loader that gives the same batch a number of times, for measurements."""

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data, self._count = data, sample_count

    def __iter__(self) -> Iterator[Any]:
        return (self._data for _ in range(self._count))

    def __len__(self) -> int:
        return self._count
