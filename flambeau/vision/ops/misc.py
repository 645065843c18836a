"""Layers that vision models share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import nn

__all__ = [
    "MLP", "Conv2dNormActivation", "Conv3dNormActivation", "ConvNormActivation", "FrozenBatchNorm2d", "Permute",
    "SqueezeExcitation",
]  # fmt: skip


class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation by fixed statistics, weight and bias, which are buffers."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", flambeau.ones(num_features))
        self.register_buffer("bias", flambeau.zeros(num_features))
        self.register_buffer("running_mean", flambeau.zeros(num_features))
        self.register_buffer("running_var", flambeau.ones(num_features))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


class ConvNormActivation(nn.Sequential):
    """Convolution, normalisation and activation, each of the last two if wanted."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int] = 3,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str | None = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: int | Sequence[int] = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
        conv_layer: Callable[..., nn.Module] = nn.Conv2d,
    ) -> None:
        if padding is None:
            if isinstance(kernel_size, int) and isinstance(dilation, int):
                padding = (kernel_size - 1) // 2 * dilation
            else:
                count = len(kernel_size) if isinstance(kernel_size, Sequence) else len(dilation)  # type: ignore[arg-type]
                sizes = kernel_size if isinstance(kernel_size, Sequence) else [kernel_size] * count
                steps = dilation if isinstance(dilation, Sequence) else [dilation] * count
                padding = tuple((k - 1) // 2 * d for k, d in zip(sizes, steps))
        layers: list[nn.Module] = [
            conv_layer(
                in_channels,
                out_channels,
                kernel_size,
                stride,
                padding,
                dilation=dilation,
                groups=groups,
                bias=norm_layer is None if bias is None else bias,
            )
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class Conv2dNormActivation(ConvNormActivation):
    """The same over images."""

    def __init__(self, in_channels: int, out_channels: int, *args: Any, **kwargs: Any) -> None:
        names = (
            "kernel_size",
            "stride",
            "padding",
            "groups",
            "norm_layer",
            "activation_layer",
            "dilation",
            "inplace",
            "bias",
        )
        kwargs.update(zip(names, args))
        kwargs.setdefault("norm_layer", nn.BatchNorm2d)
        super().__init__(in_channels, out_channels, **kwargs)


class Conv3dNormActivation(ConvNormActivation):
    """The same over videos."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        kwargs.setdefault("norm_layer", nn.BatchNorm3d)
        super().__init__(in_channels, out_channels, conv_layer=nn.Conv3d, **kwargs)


class SqueezeExcitation(nn.Module):
    """Scales channels by what a small network makes of their means."""

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable[..., nn.Module] = nn.ReLU,
        scale_activation: Callable[..., nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def forward(self, input: flambeau.Tensor) -> flambeau.Tensor:
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input))))) * input


class MLP(nn.Sequential):
    """Linear layers with activation and dropout between them."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: list[int],
        norm_layer: Callable[..., nn.Module] | None = None,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        width = in_channels
        for size in hidden_channels[:-1]:
            layers.append(nn.Linear(width, size, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(size))
            layers += [activation_layer(**options), nn.Dropout(dropout, **options)]  # type: ignore[misc]
            width = size
        layers += [nn.Linear(width, hidden_channels[-1], bias=bias), nn.Dropout(dropout, **options)]
        super().__init__(*layers)


class Permute(nn.Module):
    """Reorders dimensions."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        return flambeau.permute(x, self.dims)
