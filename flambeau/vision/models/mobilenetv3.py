"""MobileNetV3: inverted residuals with squeeze-and-excitation and hard activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau
from flambeau import nn
from flambeau.vision.models._utils import _initialize, _make_divisible, _normal
from flambeau.vision.models._weights import model, weights
from flambeau.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation

MobileNet_V3_Large_Weights = weights(
    "MobileNet_V3_Large_Weights",
    IMAGENET1K_V1="mobilenet_v3_large-8738ca79.pth",
    IMAGENET1K_V2="mobilenet_v3_large-5c1a4163.pth",
)
MobileNet_V3_Small_Weights = weights("MobileNet_V3_Small_Weights", IMAGENET1K_V1="mobilenet_v3_small-047dcff4.pth")

__all__ = [
    "InvertedResidual", "InvertedResidualConfig", "MobileNetV3", "MobileNet_V3_Large_Weights",
    "MobileNet_V3_Small_Weights", "mobilenet_v3_large", "mobilenet_v3_small",
]  # fmt: skip


class InvertedResidualConfig:
    """One block: channels in, expanded and out, kernel, whether to squeeze, "RE" or "HS", stride, dilation."""

    def __init__(
        self,
        input_channels: int,
        kernel: int,
        expanded_channels: int,
        out_channels: int,
        use_se: bool,
        activation: str,
        stride: int,
        dilation: int,
        width_mult: float,
    ) -> None:
        self.input_channels = self.adjust_channels(input_channels, width_mult)
        self.kernel = kernel
        self.expanded_channels = self.adjust_channels(expanded_channels, width_mult)
        self.out_channels = self.adjust_channels(out_channels, width_mult)
        self.use_se, self.use_hs = use_se, activation == "HS"
        self.stride, self.dilation = stride, dilation

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        return _make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """Widen, filter each channel, squeeze, narrow; a shortcut where shapes allow."""

    def __init__(
        self,
        cnf: InvertedResidualConfig,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = partial(SqueezeExcitation, scale_activation=nn.Hardsigmoid),  # noqa: B008
    ) -> None:
        super().__init__()
        if not 1 <= cnf.stride <= 2:
            raise ValueError(f"[InvertedResidual] expected a stride of 1 or 2, got {cnf.stride}")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        activation = nn.Hardswish if cnf.use_hs else nn.ReLU
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation)
        layers: list[nn.Module] = []
        if cnf.expanded_channels != cnf.input_channels:
            layers.append(layer(cnf.input_channels, cnf.expanded_channels, kernel_size=1))
        layers.append(
            layer(
                cnf.expanded_channels,
                cnf.expanded_channels,
                kernel_size=cnf.kernel,
                stride=1 if cnf.dilation > 1 else cnf.stride,
                dilation=cnf.dilation,
                groups=cnf.expanded_channels,
            )
        )
        if cnf.use_se:
            layers.append(se_layer(cnf.expanded_channels, _make_divisible(cnf.expanded_channels // 4, 8)))
        layers.append(
            Conv2dNormActivation(
                cnf.expanded_channels, cnf.out_channels, kernel_size=1, norm_layer=norm_layer, activation_layer=None
            )
        )
        self.block = nn.Sequential(*layers)
        self.out_channels = cnf.out_channels
        self._is_cn = cnf.stride > 1

    def forward(self, input: flambeau.Tensor) -> flambeau.Tensor:
        result = self.block(input)
        return result + input if self.use_res_connect else result


class MobileNetV3(nn.Module):
    """A stem, the blocks, a last convolution and a classifier with one hidden layer."""

    def __init__(
        self,
        inverted_residual_setting: list[InvertedResidualConfig],
        last_channel: int,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
        **options: Any,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("[MobileNetV3] expected at least one block, got none")
        block = block or InvertedResidual
        norm_layer = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.Hardswish)
        first = inverted_residual_setting[0].input_channels
        last = inverted_residual_setting[-1].out_channels
        self.features = nn.Sequential(
            layer(3, first, kernel_size=3, stride=2),
            *(block(setting, norm_layer) for setting in inverted_residual_setting),
            layer(last, 6 * last, kernel_size=1),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * last, last_channel),
            nn.Hardswish(inplace=True),
            nn.Dropout(p=dropout, inplace=True),
            nn.Linear(last_channel, num_classes),
        )
        _initialize(self, _normal)

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        return self.classifier(flambeau.flatten(self.avgpool(self.features(x)), 1))


# kernel, expanded, out, squeeze, activation, stride; the input of a block is the output of the one before.
_LARGE = [
    (3, 16, 16, False, "RE", 1),
    (3, 64, 24, False, "RE", 2),
    (3, 72, 24, False, "RE", 1),
    (5, 72, 40, True, "RE", 2),
    (5, 120, 40, True, "RE", 1),
    (5, 120, 40, True, "RE", 1),
    (3, 240, 80, False, "HS", 2),
    (3, 200, 80, False, "HS", 1),
    (3, 184, 80, False, "HS", 1),
    (3, 184, 80, False, "HS", 1),
    (3, 480, 112, True, "HS", 1),
    (3, 672, 112, True, "HS", 1),
    (5, 672, 160, True, "HS", 2),
    (5, 960, 160, True, "HS", 1),
    (5, 960, 160, True, "HS", 1),
]
_SMALL = [
    (3, 16, 16, True, "RE", 2),
    (3, 72, 24, False, "RE", 2),
    (3, 88, 24, False, "RE", 1),
    (5, 96, 40, True, "HS", 2),
    (5, 240, 40, True, "HS", 1),
    (5, 240, 40, True, "HS", 1),
    (5, 120, 48, True, "HS", 1),
    (5, 144, 48, True, "HS", 1),
    (5, 288, 96, True, "HS", 2),
    (5, 576, 96, True, "HS", 1),
    (5, 576, 96, True, "HS", 1),
]


def _build(
    rows: list[Any],
    tail: int,
    hidden: int,
    width_mult: float = 1.0,
    reduced_tail: bool = False,
    dilated: bool = False,
    **options: Any,
) -> MobileNetV3:
    """The last `tail` blocks may be halved in width, or dilated instead of strided."""
    divider = 2 if reduced_tail else 1
    settings, channels = [], 16
    for i, (kernel, expanded, out, squeeze, activation, stride) in enumerate(rows):
        last = i >= len(rows) - tail
        shrink = divider if last else 1
        # The block that enters the tail still expands to its full width.
        grow = shrink if i > len(rows) - tail else 1
        settings.append(
            InvertedResidualConfig(
                channels,
                kernel,
                expanded // grow,
                out // shrink,
                squeeze,
                activation,
                stride,
                2 if dilated and last else 1,
                width_mult,
            )
        )
        channels = out // shrink
    hidden = InvertedResidualConfig.adjust_channels(hidden // divider, width_mult)
    return MobileNetV3(settings, hidden, **options)


@model(MobileNet_V3_Large_Weights)
def mobilenet_v3_large(**options: Any) -> MobileNetV3:
    return _build(_LARGE, 3, 1280, **options)


@model(MobileNet_V3_Small_Weights)
def mobilenet_v3_small(**options: Any) -> MobileNetV3:
    return _build(_SMALL, 3, 1024, **options)
