"""Padding of one to three dimensions: by a constant, by reflection, by the last value, and cyclically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple, own_constructor

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _PadNd(Module):
    """Padding before and after each of the last `_dims` dimensions, in a way that `nn.functional.pad` has a name for."""

    _dims: int
    _mode: str
    padding: Sequence[int]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own_constructor(cls)

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        least = self._dims + 1
        if input.dim() not in (least, least + 1):
            raise ValueError(
                f"[{type(self).__name__}] expected an input of {least} or {least + 1} dimensions, got {input.dim()}"
            )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return super().forward(input)


class _ConstantPadNd(_PadNd):
    _mode = "constant"
    value: float

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class CircularPad1d(_CircularPadNd):
    """(N, C, L) padded with the elements of the other end.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; at most the size.

    >>> nn.CircularPad1d(1)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 6])
    """

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """(N, C, H, W) padded with the elements of the other end.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; at most the size.

    >>> nn.CircularPad2d(1)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 6, 6])
    """

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """(N, C, D, H, W) padded with the elements of the other end.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; at most the size.

    >>> nn.CircularPad3d(1)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 6, 6, 6])
    """

    _dims = 3


class ConstantPad1d(_ConstantPadNd):
    """(N, C, L) padded with one number.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; value: the number.

    >>> nn.ConstantPad1d(1, 7.0)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 6])
    """

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """(N, C, H, W) padded with one number.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; value: the number.

    >>> nn.ConstantPad2d(1, 7.0)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 6, 6])
    """

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """(N, C, D, H, W) padded with one number.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; value: the number.

    >>> nn.ConstantPad3d(1, 7.0)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 6, 6, 6])
    """

    _dims = 3


class ZeroPad1d(_ZeroPadNd, ConstantPad1d):
    """(N, C, L) padded with zeros.

    - padding: a number for all sides, or (before, after) for each dimension, the last first.

    >>> nn.ZeroPad1d(1)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 6])
    """


class ZeroPad2d(_ZeroPadNd, ConstantPad2d):
    """(N, C, H, W) padded with zeros.

    - padding: a number for all sides, or (before, after) for each dimension, the last first.

    >>> nn.ZeroPad2d(1)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 6, 6])
    """


class ZeroPad3d(_ZeroPadNd, ConstantPad3d):
    """(N, C, D, H, W) padded with zeros.

    - padding: a number for all sides, or (before, after) for each dimension, the last first.

    >>> nn.ZeroPad3d(1)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 6, 6, 6])
    """


class ReflectionPad1d(_ReflectionPadNd):
    """(N, C, L) padded with its own elements mirrored at the edge.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; less than the size.

    >>> nn.ReflectionPad1d(1)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 6])
    """

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """(N, C, H, W) padded with its own elements mirrored at the edge.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; less than the size.

    >>> nn.ReflectionPad2d(1)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 6, 6])
    """

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """(N, C, D, H, W) padded with its own elements mirrored at the edge.

    - padding: a number for all sides, or (before, after) for each dimension, the last first; less than the size.

    >>> nn.ReflectionPad3d(1)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 6, 6, 6])
    """

    _dims = 3


class ReplicationPad1d(_ReplicationPadNd):
    """(N, C, L) padded with copies of the elements at the edge.

    - padding: a number for all sides, or (before, after) for each dimension, the last first.

    >>> nn.ReplicationPad1d(1)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 6])
    """

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """(N, C, H, W) padded with copies of the elements at the edge.

    - padding: a number for all sides, or (before, after) for each dimension, the last first.

    >>> nn.ReplicationPad2d(1)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 6, 6])
    """

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """(N, C, D, H, W) padded with copies of the elements at the edge.

    - padding: a number for all sides, or (before, after) for each dimension, the last first.

    >>> nn.ReplicationPad3d(1)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 6, 6, 6])
    """

    _dims = 3
