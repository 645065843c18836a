"""Pooling: maxima, means and p-norms over windows, adaptive and fractional windows, and the undoing of max pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple, own_constructor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
    "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip


class _Pooling(Module):
    """Pooling by a function of `nn.functional`."""

    _function: Callable[..., Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own_constructor(cls)


class _MaxPoolNd(_Pooling):
    __constants__: ClassVar = ["return_indices"]  # of classes derived from these, in scripts
    _with_indices: Callable[..., Any]
    return_indices: bool
    ceil_mode: bool

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        pool = self._with_indices if self.return_indices else self._function
        return pool(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Largest element of each window of (N, C, L).

    - kernel_size, stride (kernel_size when not given), padding, dilation; return_indices: also where each was; ceil_mode.

    >>> nn.MaxPool1d(2)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 2])
    """

    _function, _with_indices = staticmethod(F.max_pool1d), staticmethod(F.max_pool1d_with_indices)


class MaxPool2d(_MaxPoolNd):
    """Largest element of each window of (N, C, H, W).

    - kernel_size, stride (kernel_size when not given), padding, dilation; return_indices: also where each was; ceil_mode.

    >>> nn.MaxPool2d(2)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """

    _function, _with_indices = staticmethod(F.max_pool2d), staticmethod(F.max_pool2d_with_indices)


class MaxPool3d(_MaxPoolNd):
    """Largest element of each window of (N, C, D, H, W).

    - kernel_size, stride (kernel_size when not given), padding, dilation; return_indices: also where each was; ceil_mode.

    >>> nn.MaxPool3d(2)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    _function, _with_indices = staticmethod(F.max_pool3d), staticmethod(F.max_pool3d_with_indices)


class _MaxUnpoolNd(_Pooling):
    _dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        size = _ntuple(self._dims)
        self.kernel_size = size(kernel_size)
        self.stride = size(stride if stride is not None else kernel_size)
        self.padding = size(padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Values of MaxPool1d put back where they were, zeros elsewhere.

    - kernel_size, stride (kernel_size when not given), padding: those of the pooling.

    >>> values, indices = nn.MaxPool1d(2, return_indices=True)(flambeau.ones(1, 2, 4))
    >>> nn.MaxUnpool1d(2)(values, indices).shape
    torch.Size([1, 2, 4])
    """

    _dims, _function = 1, staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpoolNd):
    """Values of MaxPool2d put back where they were, zeros elsewhere.

    - kernel_size, stride (kernel_size when not given), padding: those of the pooling.

    >>> values, indices = nn.MaxPool2d(2, return_indices=True)(flambeau.ones(1, 2, 4, 4))
    >>> nn.MaxUnpool2d(2)(values, indices).shape
    torch.Size([1, 2, 4, 4])
    """

    _dims, _function = 2, staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpoolNd):
    """Values of MaxPool3d put back where they were, zeros elsewhere.

    - kernel_size, stride (kernel_size when not given), padding: those of the pooling.

    >>> values, indices = nn.MaxPool3d(2, return_indices=True)(flambeau.ones(1, 2, 4, 4, 4))
    >>> nn.MaxUnpool3d(2)(values, indices).shape
    torch.Size([1, 2, 4, 4, 4])
    """

    _dims, _function = 3, staticmethod(F.max_unpool3d)


class _AvgPoolNd(_Pooling):
    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Mean of each window of (N, C, L).

    - kernel_size, stride (kernel_size when not given), padding, ceil_mode; count_include_pad: padding counts in the mean.

    >>> nn.AvgPool1d(2)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 2])
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        size = _ntuple(1)
        self.kernel_size = size(kernel_size)
        self.stride = size(stride if stride is not None else kernel_size)
        self.padding = size(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolWithDivisor(_AvgPoolNd):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolWithDivisor):
    """Mean of each window of (N, C, H, W).

    - kernel_size, stride (kernel_size when not given), padding, ceil_mode; count_include_pad: padding counts in the mean.

    >>> nn.AvgPool2d(2)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """

    _function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolWithDivisor):
    """Mean of each window of (N, C, D, H, W).

    - kernel_size, stride (kernel_size when not given), padding, ceil_mode; count_include_pad: padding counts in the mean.

    >>> nn.AvgPool3d(2)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    _function = staticmethod(F.avg_pool3d)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name, default in (("padding", 0), ("ceil_mode", False), ("count_include_pad", True)):
            self.__dict__.setdefault(name, default)


class _FractionalMaxPoolNd(_Pooling):
    """Max pooling over windows of random steps, so that the output has a given size or share of the input's."""

    _dims: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name, size = type(self).__name__, _ntuple(self._dims)
        self.kernel_size = size(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = size(output_size) if output_size is not None else None
        self.output_ratio = size(output_ratio) if output_ratio is not None else None
        if output_size is None and output_ratio is None:
            raise ValueError(f"[{name}] expected output_size or output_ratio, got neither")
        if output_size is not None and output_ratio is not None:
            raise ValueError(f"[{name}] expected only one of output_size and output_ratio, got both")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"[{name}] expected output_ratio between 0 and 1, got {output_ratio}")

    def forward(self, input: Tensor) -> Any:
        return self._function(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Largest element of (N, C, H, W) over windows of random positions, so that sizes shrink by a fraction.

    - kernel_size; output_size or output_ratio: of the result; return_indices.

    >>> nn.FractionalMaxPool2d(2, output_size=2)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """

    _dims, _function = 2, staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Largest element of (N, C, D, H, W) over windows of random positions, so that sizes shrink by a fraction.

    - kernel_size; output_size or output_ratio: of the result; return_indices.

    >>> nn.FractionalMaxPool3d(2, output_size=2)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    _dims, _function = 3, staticmethod(F.fractional_max_pool3d)


class _LPPoolNd(_Pooling):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """Norm of each window, `sum(x ** p) ** (1 / p)` of (N, C, L).

    - norm_type: p; kernel_size, stride, ceil_mode.

    >>> nn.LPPool1d(2, 2)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 2])
    """

    _function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPoolNd):
    """Norm of each window, `sum(x ** p) ** (1 / p)` of (N, C, H, W).

    - norm_type: p; kernel_size, stride, ceil_mode.

    >>> nn.LPPool2d(2, 2)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """

    _function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPoolNd):
    """Norm of each window, `sum(x ** p) ** (1 / p)` of (N, C, D, H, W).

    - norm_type: p; kernel_size, stride, ceil_mode.

    >>> nn.LPPool3d(2, 2)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    _function = staticmethod(F.lp_pool3d)


class _AdaptiveMaxPoolNd(_Pooling):
    return_indices: bool

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._function(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Largest element over windows chosen so that the result has a given size of (N, C, L).

    - output_size: a number, or one for each dimension; return_indices: also where each was.

    >>> nn.AdaptiveMaxPool1d(2)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 2])
    """

    _function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Largest element over windows chosen so that the result has a given size of (N, C, H, W).

    - output_size: a number, or one for each dimension; return_indices: also where each was.

    >>> nn.AdaptiveMaxPool2d(2)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Largest element over windows chosen so that the result has a given size of (N, C, D, H, W).

    - output_size: a number, or one for each dimension; return_indices: also where each was.

    >>> nn.AdaptiveMaxPool3d(2)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    _function = staticmethod(F.adaptive_max_pool3d)


class _AdaptiveAvgPoolNd(_Pooling):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Mean over windows chosen so that the result has a given size of (N, C, L).

    - output_size: a number, or one for each dimension; None keeps a size.

    >>> nn.AdaptiveAvgPool1d(1)(flambeau.zeros(1, 2, 4)).shape
    torch.Size([1, 2, 1])
    """

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Mean over windows chosen so that the result has a given size of (N, C, H, W).

    - output_size: a number, or one for each dimension; None keeps a size.

    >>> nn.AdaptiveAvgPool2d(1)(flambeau.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 2, 1, 1])
    """

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Mean over windows chosen so that the result has a given size of (N, C, D, H, W).

    - output_size: a number, or one for each dimension; None keeps a size.

    >>> nn.AdaptiveAvgPool3d(1)(flambeau.zeros(1, 2, 4, 4, 4)).shape
    torch.Size([1, 2, 1, 1, 1])
    """

    _function = staticmethod(F.adaptive_avg_pool3d)
