"""How many numbers share a scale."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Granularity", "PerAxis", "PerGroup", "PerRow", "PerTensor", "PerToken"]


@dataclass(frozen=True)
class Granularity:
    """Base class."""


@dataclass(frozen=True)
class PerTensor(Granularity):
    """All numbers of a tensor."""


@dataclass(frozen=True)
class PerRow(Granularity):
    """The numbers of a row."""

    dim: int = -1


@dataclass(frozen=True)
class PerToken(Granularity):
    """The numbers of a row of activations."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """The numbers at an index of a dimension."""

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """So many numbers of a row, one after the other."""

    group_size: int
