"""Convolutions of one to three spatial dimensions, transposed and lazy ones included."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple, _reverse_repeat_tuple, _single, own_constructor
from flambeau.nn.parameter import Parameter, UninitializedParameter

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions hold: sizes as tuples, a weight over groups of channels, and a bias."""

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    padding_mode: str
    weight: Tensor
    bias: Tensor | None
    _reversed_padding_repeated_twice: list[int]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own_constructor(cls)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if groups <= 0:
            raise ValueError(f"[{name}] expected groups > 0, got {groups}")
        if in_channels % groups:
            raise ValueError(f"[{name}] expected in_channels divisible by {groups} groups, got {in_channels}")
        if out_channels % groups:
            raise ValueError(f"[{name}] expected out_channels divisible by {groups} groups, got {out_channels}")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"[{name}] expected padding 'same', 'valid' or numbers, got {padding!r}")
            if padding == "same" and any(step != 1 for step in stride):
                raise ValueError(f"[{name}] expected stride 1 with padding='same', got {tuple(stride)}")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"[{name}] expected padding_mode among {_PADDING_MODES}, got {padding_mode!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._padding_around()
        first, second = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.weight = Parameter(fl.empty((first, second // groups, *kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(fl.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _padding_around(self) -> list[int]:
        """The padding as `nn.functional.pad` takes it: before and after each dimension, the last one first."""
        if not isinstance(self.padding, str):
            return list(_reverse_repeat_tuple(self.padding, 2))
        around = [0] * (2 * len(self.kernel_size))
        if self.padding == "same":
            for place, (step, size) in enumerate(zip(reversed(self.dilation), reversed(self.kernel_size))):
                total = step * (size - 1)
                around[2 * place : 2 * place + 2] = [total // 2, total - total // 2]
        return around

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within 1 / sqrt(fan in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = init._calculate_fan_in_and_fan_out(self.weight)[0]
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        dims = len(self.kernel_size)
        if self.padding != (0,) * dims:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * dims:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * dims:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")

    def _padded(self, input: Tensor) -> Tensor:
        return F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)


class _Conv(_ConvNd):
    """Convolutions, by the number of their spatial dimensions and the function that computes them."""

    _dims: int
    _function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        size = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, size(kernel_size), size(stride),
            padding if isinstance(padding, str) else size(padding), size(dilation), False, size(0), groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._padded(input), (0,) * self._dims
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Convolution over one dimension, with learned weights.

    - in_channels, out_channels: C and K; kernel_size: W.
    - stride, dilation; padding: a number, "same" or "valid"; groups: groups of channels that do not see each other.
    - bias: whether one is added; padding_mode: "zeros", "reflect", "replicate" or "circular"; device, dtype.

    (N, C, L) becomes (N, K, (L + 2 padding - dilation (W - 1) - 1) // stride + 1).

    >>> nn.Conv1d(2, 4, 3, padding=1)(flambeau.randn(1, 2, 5)).shape
    torch.Size([1, 4, 5])
    """

    _dims, _function = 1, staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Convolution over two dimensions, with learned weights.

    - in_channels, out_channels: C and K; kernel_size: a number, or (kH, kW).
    - stride, padding, dilation: a number for both dimensions, or one for each; padding may be "same" or "valid".
    - groups, bias, padding_mode, device, dtype: as for Conv1d.

    The weight is (K, C / groups, kH, kW). Channels-last models and inputs run fastest.

    >>> nn.Conv2d(3, 8, 3, stride=2)(flambeau.randn(1, 3, 9, 9)).shape
    torch.Size([1, 8, 4, 4])
    """

    _dims, _function = 2, staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Convolution over three dimensions, with learned weights.

    - in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype: as for Conv2d.

    >>> nn.Conv3d(1, 2, 2)(flambeau.randn(1, 1, 3, 3, 3)).shape
    torch.Size([1, 2, 2, 2, 2])
    """

    _dims, _function = 3, staticmethod(F.conv3d)


class _ConvTransposeNd(_ConvNd):
    """What transposed convolutions add: finding the output padding that leads to a wanted size."""

    padding: tuple[int, ...]
    _function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f"[{type(self).__name__}] expected padding_mode 'zeros', got {padding_mode!r}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _output_padding(
        self,
        input: Tensor,
        output_size: Sequence[int] | None,
        stride: Sequence[int],
        padding: Sequence[int],
        kernel_size: Sequence[int],
        num_spatial_dims: int,
        dilation: Sequence[int] | None = None,
    ) -> Sequence[int]:
        if output_size is None:
            return _single(self.output_padding)
        name = type(self).__name__
        batched = input.dim() == num_spatial_dims + 2
        whole = num_spatial_dims + (2 if batched else 1)
        if len(output_size) == whole:
            output_size = output_size[-num_spatial_dims:]
        if len(output_size) != num_spatial_dims:
            raise ValueError(
                f"[{name}] expected output_size of {num_spatial_dims} or {whole} elements, got {len(output_size)}"
            )
        output_padding = []
        for d, wanted in enumerate(output_size):
            spread = (dilation[d] if dilation is not None else 1) * (kernel_size[d] - 1)
            least = (input.size(d + whole - num_spatial_dims) - 1) * stride[d] - 2 * padding[d] + spread + 1
            if not least <= wanted <= least + stride[d] - 1:
                raise ValueError(
                    f"[{name}] expected output_size[{d}] in [{least}, {least + stride[d] - 1}] for an input of shape "
                    f"{tuple(input.shape)}, got {wanted}"
                )
            output_padding.append(wanted - least)
        return output_padding

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra: Sequence[int] = self.output_padding
        if output_size is not None:
            dims = len(self.kernel_size)
            extra = self._output_padding(
                input, output_size, self.stride, self.padding, self.kernel_size, dims, self.dilation
            )
        return self._function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


_ConvTransposeMixin = _ConvTransposeNd  # the name of older programs


class _ConvTranspose(_ConvTransposeNd):
    """Transposed convolutions, by the number of their spatial dimensions and the function that computes them."""

    _dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        size = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, size(kernel_size), size(stride), size(padding), size(dilation), True,
            size(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over one dimension: the gradient of a convolution, used to enlarge.

    - in_channels, out_channels, kernel_size, stride, padding, groups, bias, dilation, padding_mode, device, dtype.
    - output_padding: extra size at one end.

    The length becomes (L - 1) stride - 2 padding + dilation (W - 1) + output_padding + 1.

    >>> nn.ConvTranspose1d(2, 1, 2, stride=2)(flambeau.randn(1, 2, 3)).shape
    torch.Size([1, 1, 6])
    """

    _dims, _function = 1, staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over two dimensions: the gradient of a convolution, used to enlarge.

    - in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode, device, dtype.

    >>> nn.ConvTranspose2d(2, 1, 2, stride=2)(flambeau.randn(1, 2, 3, 3)).shape
    torch.Size([1, 1, 6, 6])
    """

    _dims, _function = 2, staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over three dimensions: the gradient of a convolution, used to enlarge.

    - in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode, device, dtype.

    >>> nn.ConvTranspose3d(2, 1, 2, stride=2)(flambeau.randn(1, 2, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """

    _dims, _function = 3, staticmethod(F.conv_transpose3d)


class _LazyConvXdMixin(LazyModuleMixin):
    """Takes in_channels from the first input."""

    groups: int
    transposed: bool
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    weight: Any  # an UninitializedParameter, until the first input is seen
    bias: Any

    def reset_parameters(self) -> None:
        # Called by the constructor before there is anything to fill.
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups:
            raise ValueError(
                f"[{type(self).__name__}] expected input channels divisible by {self.groups} groups, got {self.in_channels}"
            )
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        dims = self._get_num_spatial_dims()
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"[{type(self).__name__}] expected an input of {dims + 1} or {dims + 2} dimensions, got {input.dim()}"
            )
        return input.shape[1] if input.dim() == dims + 2 else input.shape[0]

    def _get_num_spatial_dims(self) -> int:
        return len(self.kernel_size)

    def _become_lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._become_lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """Conv1d that learns in_channels from its first input.

    - out_channels and the rest: as for Conv1d.

    >>> nn.LazyConv1d(4, 3)(flambeau.randn(1, 2, 5)).shape
    torch.Size([1, 4, 3])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """Conv2d that learns in_channels from its first input.

    - out_channels and the rest: as for Conv2d.

    >>> nn.LazyConv2d(4, 3)(flambeau.randn(1, 2, 5, 5)).shape
    torch.Size([1, 4, 3, 3])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """Conv3d that learns in_channels from its first input.

    - out_channels and the rest: as for Conv3d.

    >>> nn.LazyConv3d(4, 3)(flambeau.randn(1, 2, 3, 3, 3)).shape
    torch.Size([1, 4, 1, 1, 1])
    """

    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._become_lazy(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """ConvTranspose1d that learns in_channels from its first input.

    - out_channels and the rest: as for ConvTranspose1d.

    >>> nn.LazyConvTranspose1d(4, 3)(flambeau.randn(1, 2, 5)).shape
    torch.Size([1, 4, 7])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """ConvTranspose2d that learns in_channels from its first input.

    - out_channels and the rest: as for ConvTranspose2d.

    >>> nn.LazyConvTranspose2d(4, 3)(flambeau.randn(1, 2, 5, 5)).shape
    torch.Size([1, 4, 7, 7])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """ConvTranspose3d that learns in_channels from its first input.

    - out_channels and the rest: as for ConvTranspose3d.

    >>> nn.LazyConvTranspose3d(4, 2)(flambeau.randn(1, 2, 3, 3, 3)).shape
    torch.Size([1, 4, 4, 4, 4])
    """

    cls_to_become = ConvTranspose3d
