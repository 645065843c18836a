"""Normalisations that need no statistics of other samples: layer, RMS, group, and across channels."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def register_affine(module: Module, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
    """The parameters of a normalisation, those that are wanted; the others are None."""
    for name, wanted in (("weight", weight), ("bias", bias)):
        parameter = Parameter(fl.empty(shape, device=device, dtype=dtype)) if wanted else None
        module.register_parameter(name, parameter)


def reset_affine(module: Any) -> None:
    """Set weight to 1 and bias to 0, where they are."""
    if module.weight is not None:
        init.ones_(module.weight)
    if module.bias is not None:
        init.zeros_(module.bias)


class LocalResponseNorm(Module):
    """Each element divided by a power of the mean square of its neighbours among the channels.

    - size: number of channels; alpha, beta, k: `x / (k + alpha * mean) ** beta`.

    >>> nn.LocalResponseNorm(2)(flambeau.ones(1, 2, 3)).shape
    torch.Size([1, 2, 3])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """LocalResponseNorm over channels, under an older name.

    - size, alpha, beta, k: as for LocalResponseNorm.

    >>> nn.CrossMapLRN2d(2)(flambeau.ones(1, 2, 1, 1)).shape
    torch.Size([1, 2, 1, 1])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"[CrossMapLRN2d] expected an input of 4 dimensions, got {input.dim()}")
        channels, reach = input.shape[1], (self.size + 1) // 2
        # Sums of the squares of the first n channels; a window is the difference of two of them.
        sums = F.pad((input * input).cumsum(1), (0, 0, 0, 0, 1, 0))
        ends = [min(channel + reach, channels) for channel in range(channels)]
        starts = [max(0, channel - reach + 1) for channel in range(channels)]
        window = sums[:, ends] - sums[:, starts] + sums[:, [int(start > 0) for start in starts]]
        return input / (window * (self.alpha / self.size) + self.k).pow(self.beta)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LayerNorm(Module):
    """Last dimensions scaled to mean 0 and variance 1, times weight plus bias.

    - normalized_shape: the last sizes; eps: added to the variance; elementwise_affine: learn a weight; bias: and a bias; device, dtype.

    >>> nn.LayerNorm(2)(flambeau.tensor([1.0, 3.0])).detach().round(decimals=3)
    tensor([-1.,  1.])
    """

    normalized_shape: tuple[int, ...]
    eps: float
    elementwise_affine: bool

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine

        register_affine(self, shape, elementwise_affine, elementwise_affine and bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        return fl.native_layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)[0]

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Groups of channels of each sample scaled to mean 0 and variance 1, times weight plus bias.

    - num_groups: must divide num_channels; eps: added to the variance; affine: learn weight and bias; device, dtype.

    The input is (N, C, ...).

    >>> nn.GroupNorm(2, 4)(flambeau.randn(1, 4, 3)).shape
    torch.Size([1, 4, 3])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"[GroupNorm] expected num_channels divisible by {num_groups} groups, got {num_channels}")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine

        register_affine(self, num_channels, affine, affine and bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Last dimensions divided by their root mean square, times weight.

    - normalized_shape: the last sizes; eps: added to the mean square; elementwise_affine: learn a weight; device, dtype.

    >>> nn.RMSNorm(2)(flambeau.tensor([3.0, 4.0])).detach()
    tensor([0.8485, 1.1314])
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(fl.empty(shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
