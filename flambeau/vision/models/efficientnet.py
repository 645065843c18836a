"""EfficientNet: inverted residuals, scaled in width and depth together; version 2 begins with fused blocks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.vision.models._utils import _initialize, _make_divisible
from flambeau.vision.models._weights import variants
from flambeau.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation
from flambeau.vision.ops.stochastic_depth import StochasticDepth

__all__ = ["EfficientNet", "FusedMBConv", "FusedMBConvConfig", "MBConv", "MBConvConfig"]


@dataclass
class _Stage:
    """Blocks of one size: expansion, kernel, stride of the first, channels, number of blocks."""

    expand_ratio: float
    kernel: int
    stride: int
    input_channels: int
    out_channels: int
    num_layers: int


class MBConvConfig(_Stage):
    """A stage of blocks with depthwise filters, scaled by a width and a depth multiplier."""

    def __init__(
        self,
        expand_ratio: float,
        kernel: int,
        stride: int,
        input_channels: int,
        out_channels: int,
        num_layers: int,
        width_mult: float = 1.0,
        depth_mult: float = 1.0,
        block: Callable[..., nn.Module] | None = None,
    ) -> None:
        channels = (_make_divisible(c * width_mult, 8) for c in (input_channels, out_channels))
        super().__init__(expand_ratio, kernel, stride, *channels, math.ceil(num_layers * depth_mult))  # type: ignore[call-arg]
        self.block = block or MBConv


class FusedMBConvConfig(_Stage):
    """A stage of blocks with one full convolution in place of a depthwise one."""

    def __init__(self, *args: Any, block: Callable[..., nn.Module] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.block = block or FusedMBConv


class _Residual(nn.Module):
    """A block with a shortcut where shapes allow."""

    def __init__(self, cnf: Any, layers: list[nn.Module], stochastic_depth_prob: float) -> None:
        super().__init__()
        if not 1 <= cnf.stride <= 2:
            raise ValueError(f"[{type(self).__name__}] expected a stride of 1 or 2, got {cnf.stride}")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.out_channels = cnf.out_channels

    def forward(self, input: Tensor) -> Tensor:
        result = self.block(input)
        return self.stochastic_depth(result) + input if self.use_res_connect else result


class MBConv(_Residual):
    """Widen, filter each channel, squeeze, narrow."""

    def __init__(
        self,
        cnf: MBConvConfig,
        stochastic_depth_prob: float,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = SqueezeExcitation,
    ) -> None:
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        expanded = _make_divisible(cnf.input_channels * cnf.expand_ratio, 8)
        layers: list[nn.Module] = []
        if expanded != cnf.input_channels:
            layers.append(layer(cnf.input_channels, expanded, kernel_size=1))
        layers += [
            layer(expanded, expanded, kernel_size=cnf.kernel, stride=cnf.stride, groups=expanded),
            se_layer(expanded, max(1, cnf.input_channels // 4), activation=partial(nn.SiLU, inplace=True)),
            layer(expanded, cnf.out_channels, kernel_size=1, activation_layer=None),
        ]
        super().__init__(cnf, layers, stochastic_depth_prob)


class FusedMBConv(_Residual):
    """Widen by a full convolution, narrow."""

    def __init__(
        self, cnf: FusedMBConvConfig, stochastic_depth_prob: float, norm_layer: Callable[..., nn.Module]
    ) -> None:
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        expanded = _make_divisible(cnf.input_channels * cnf.expand_ratio, 8)
        first = partial(layer, cnf.input_channels, kernel_size=cnf.kernel, stride=cnf.stride)
        layers: list[nn.Module] = (
            [first(expanded), layer(expanded, cnf.out_channels, kernel_size=1, activation_layer=None)]
            if expanded != cnf.input_channels
            else [first(cnf.out_channels)]
        )
        super().__init__(cnf, layers, stochastic_depth_prob)


class EfficientNet(nn.Module):
    """A stem, the stages, a last convolution and a classifier."""

    def __init__(
        self,
        inverted_residual_setting: Sequence[Any],
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_layer: Callable[..., nn.Module] | None = None,
        last_channel: int | None = None,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("[EfficientNet] expected at least one stage, got none")
        norm_layer = norm_layer or nn.BatchNorm2d
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        features: list[nn.Module] = [layer(3, inverted_residual_setting[0].input_channels, kernel_size=3, stride=2)]
        total, count = sum(stage.num_layers for stage in inverted_residual_setting), 0
        for stage in inverted_residual_setting:
            blocks = []
            for i in range(stage.num_layers):
                own = copy.copy(stage)
                if i:
                    own.input_channels, own.stride = own.out_channels, 1
                blocks.append(own.block(own, stochastic_depth_prob * count / total, norm_layer))
                count += 1
            features.append(nn.Sequential(*blocks))
        narrow = inverted_residual_setting[-1].out_channels
        wide = last_channel if last_channel is not None else 4 * narrow
        features.append(layer(narrow, wide, kernel_size=1))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout, inplace=True), nn.Linear(wide, num_classes))
        bound = 1.0 / math.sqrt(num_classes)
        _initialize(self, lambda weight: nn.init.uniform_(weight, -bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flambeau.flatten(self.avgpool(self.features(x)), 1))


# expansion, kernel, stride, channels in and out, blocks
_B0 = [
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1),
]  # fmt: skip
# The number of fused stages at the front, then the stages.
_V2 = {
    "s": (3, [(1, 3, 1, 24, 24, 2), (4, 3, 2, 24, 48, 4), (4, 3, 2, 48, 64, 4), (4, 3, 2, 64, 128, 6),
              (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15)]),
    "m": (3, [(1, 3, 1, 24, 24, 3), (4, 3, 2, 24, 48, 5), (4, 3, 2, 48, 80, 5), (4, 3, 2, 80, 160, 7),
              (6, 3, 1, 160, 176, 14), (6, 3, 2, 176, 304, 18), (6, 3, 1, 304, 512, 5)]),
    "l": (3, [(1, 3, 1, 32, 32, 4), (4, 3, 2, 32, 64, 7), (4, 3, 2, 64, 96, 7), (4, 3, 2, 96, 192, 10),
              (6, 3, 1, 192, 224, 19), (6, 3, 2, 224, 384, 25), (6, 3, 1, 384, 640, 7)]),
}  # fmt: skip


def _first(row: tuple[float, float, float, float | None], **options: Any) -> EfficientNet:
    """A row is width, depth, dropout, and eps of the normalisation where it is not the default."""
    width, depth, dropout, eps = row
    stages = [MBConvConfig(*stage, width_mult=width, depth_mult=depth) for stage in _B0]
    if eps is not None:
        options.setdefault("norm_layer", partial(nn.BatchNorm2d, eps=eps, momentum=0.01))
    return EfficientNet(stages, options.pop("dropout", dropout), **options)


def _second(row: tuple[str, float], **options: Any) -> EfficientNet:
    size, dropout = row
    fused, stages = _V2[size]
    settings = [(FusedMBConvConfig if i < fused else MBConvConfig)(*stage) for i, stage in enumerate(stages)]
    options.setdefault("norm_layer", partial(nn.BatchNorm2d, eps=1e-3))
    return EfficientNet(settings, options.pop("dropout", dropout), last_channel=1280, **options)


__all__ += variants(
    globals(),
    _first,
    efficientnet_b0=(1.0, 1.0, 0.2, None),
    efficientnet_b1=(1.0, 1.1, 0.2, None),
    efficientnet_b2=(1.1, 1.2, 0.3, None),
    efficientnet_b3=(1.2, 1.4, 0.3, None),
    efficientnet_b4=(1.4, 1.8, 0.4, None),
    efficientnet_b5=(1.6, 2.2, 0.4, 1e-3),
    efficientnet_b6=(1.8, 2.6, 0.5, 1e-3),
    efficientnet_b7=(2.0, 3.1, 0.5, 1e-3),
)
__all__ += variants(
    globals(), _second, efficientnet_v2_s=("s", 0.2), efficientnet_v2_m=("m", 0.3), efficientnet_v2_l=("l", 0.4)
)
