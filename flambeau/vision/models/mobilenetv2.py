"""MobileNetV2: inverted residuals, wide inside and narrow between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau
from flambeau import nn
from flambeau.vision.models._utils import _initialize, _make_divisible, _normal
from flambeau.vision.models._weights import model, weights
from flambeau.vision.ops.misc import Conv2dNormActivation

MobileNet_V2_Weights = weights(
    "MobileNet_V2_Weights", IMAGENET1K_V1="mobilenet_v2-b0353104.pth", IMAGENET1K_V2="mobilenet_v2-7ebf99e0.pth"
)

__all__ = ["MobileNetV2", "MobileNet_V2_Weights", "mobilenet_v2"]

# Expansion, channels, repetitions, stride of the first.
_SETTING = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]]


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow without activation; a shortcut where shapes allow."""

    def __init__(
        self,
        inp: int,
        oup: int,
        stride: int,
        expand_ratio: int,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"[InvertedResidual] expected a stride of 1 or 2, got {stride}")
        norm_layer = norm_layer or nn.BatchNorm2d
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.ReLU6)
        hidden = round(inp * expand_ratio)
        layers: list[nn.Module] = [] if expand_ratio == 1 else [layer(inp, hidden, kernel_size=1)]
        layers.append(layer(hidden, hidden, stride=stride, groups=hidden))
        layers += [nn.Conv2d(hidden, oup, 1, bias=False), norm_layer(oup)]
        self.conv = nn.Sequential(*layers)
        self.stride, self.out_channels, self._is_cn = stride, oup, stride > 1
        self.use_res_connect = stride == 1 and inp == oup

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """inverted_residual_setting: rows of expansion, channels, repetitions and first stride."""

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: list[list[int]] | None = None,
        round_nearest: int = 8,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        block, norm_layer = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.ReLU6)
        channels = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features: list[nn.Module] = [layer(3, channels, stride=2)]
        for expansion, width, repetitions, stride in inverted_residual_setting or _SETTING:
            wanted = _make_divisible(width * width_mult, round_nearest)
            for i in range(repetitions):
                first = stride if i == 0 else 1
                features.append(block(channels, wanted, first, expand_ratio=expansion, norm_layer=norm_layer))
                channels = wanted
        features.append(layer(channels, self.last_channel, kernel_size=1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes))
        _initialize(self, _normal)

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(flambeau.flatten(x, 1))


@model(MobileNet_V2_Weights)
def mobilenet_v2(**options: Any) -> MobileNetV2:
    return MobileNetV2(**options)
