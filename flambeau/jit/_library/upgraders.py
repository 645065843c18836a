"""Operators with the meaning they had in old archives, in the language of scripts: `NAME_0_V` is `aten::NAME` up to version V of the format."""

from typing import Optional

from flambeau import Tensor, ops

aten = ops.aten

__all__ = ["div_0_3", "div__0_3", "full_0_4", "linspace_0_7", "logspace_0_8"]


def div_0_3(self: Tensor, other: Tensor) -> Tensor:
    """Division of integers was that of C."""
    if self.is_floating_point() or other.is_floating_point() or self.is_complex() or other.is_complex():
        return aten.div(self, other)
    return aten.div(self, other, rounding_mode="trunc")


def div__0_3(self: Tensor, other: Tensor) -> Tensor:
    if self.is_floating_point() or other.is_floating_point() or self.is_complex() or other.is_complex():
        return aten.div_(self, other)
    return aten.div_(self, other, rounding_mode="trunc")


def full_0_4(size: list[int], fill_value: float) -> Tensor:
    """Integers filled a tensor of floats."""
    return aten.full(size, fill_value)


def linspace_0_7(start: float, end: float, steps: Optional[int] = None) -> Tensor:  # noqa: UP045
    """There were a hundred steps unless told."""
    return aten.linspace(start, end, 100 if steps is None else steps)


def logspace_0_8(start: float, end: float, steps: Optional[int] = None, base: float = 10.0) -> Tensor:  # noqa: UP045
    return aten.logspace(start, end, 100 if steps is None else steps, base)
