"""RegNet: stages whose widths follow a quantized line, of residual blocks with grouped convolutions."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau import Tensor, nn
from flambeau.vision.models._utils import _make_divisible
from flambeau.vision.models._weights import variants
from flambeau.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation

__all__ = ["RegNet"]


class ResBottleneckBlock(nn.Module):
    """1x1, grouped 3x3, squeeze, 1x1, and a projected shortcut where shapes change."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        norm_layer: Callable[..., nn.Module],
        activation_layer: Callable[..., nn.Module],
        group_width: int,
        bottleneck_multiplier: float,
        se_ratio: float | None,
    ) -> None:
        super().__init__()
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation_layer)
        plain = partial(Conv2dNormActivation, kernel_size=1, norm_layer=norm_layer, activation_layer=None)
        self.proj = plain(width_in, width_out, stride=stride) if width_in != width_out or stride != 1 else None
        width = round(width_out * bottleneck_multiplier)
        parts: OrderedDict[str, nn.Module] = OrderedDict(
            a=layer(width_in, width, kernel_size=1),
            b=layer(width, width, kernel_size=3, stride=stride, groups=width // group_width),
        )
        if se_ratio:
            parts["se"] = SqueezeExcitation(width, round(se_ratio * width_in), activation=activation_layer)
        parts["c"] = plain(width, width_out)
        self.f = nn.Sequential(parts)
        self.activation = activation_layer(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation((x if self.proj is None else self.proj(x)) + self.f(x))


class BlockParams:
    """Widths, depths and group widths of the stages."""

    def __init__(
        self, depths: list[int], widths: list[int], group_widths: list[int], bottleneck: float, se_ratio: float | None
    ) -> None:
        self.depths, self.widths, self.group_widths = depths, widths, group_widths
        self.bottleneck_multiplier, self.se_ratio = bottleneck, se_ratio

    @classmethod
    def from_init_params(
        cls,
        depth: int,
        w_0: int,
        w_a: float,
        w_m: float,
        group_width: int,
        bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
    ) -> BlockParams:
        """Widths w_0 + w_a * i, rounded to powers of w_m times w_0 and then to multiples of 8; equal ones are a stage."""
        if w_a < 0 or w_0 <= 0 or w_m <= 1 or w_0 % 8:
            raise ValueError(f"[RegNet] expected w_0 a multiple of 8, w_a >= 0 and w_m > 1, got {w_0}, {w_a}, {w_m}")
        powers = [round(math.log((w_0 + w_a * i) / w_0) / math.log(w_m)) for i in range(depth)]
        block_widths = [int(round(w_0 * w_m**power / 8) * 8) for power in powers]
        widths = list(dict.fromkeys(block_widths))
        depths = [block_widths.count(width) for width in widths]
        groups = [min(group_width, int(width * bottleneck_multiplier)) for width in widths]
        inside = [_make_divisible(int(w * bottleneck_multiplier), g) for w, g in zip(widths, groups)]
        return cls(depths, [int(w / bottleneck_multiplier) for w in inside], groups, bottleneck_multiplier, se_ratio)


class RegNet(nn.Module):
    """A stem, the stages and a classifier."""

    def __init__(
        self,
        block_params: BlockParams,
        num_classes: int = 1000,
        stem_width: int = 32,
        norm_layer: Callable[..., nn.Module] | None = None,
        activation: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm_layer, activation = norm_layer or nn.BatchNorm2d, activation or nn.ReLU
        self.stem = Conv2dNormActivation(
            3, stem_width, kernel_size=3, stride=2, norm_layer=norm_layer, activation_layer=activation
        )
        width, stages = stem_width, OrderedDict()
        p = block_params
        for number, (out, depth, group) in enumerate(zip(p.widths, p.depths, p.group_widths), 1):
            blocks = OrderedDict()
            for i in range(depth):
                blocks[f"block{number}-{i}"] = ResBottleneckBlock(
                    width, out, 1 if i else 2, norm_layer, activation, group, p.bottleneck_multiplier, p.se_ratio
                )
                width = out
            stages[f"block{number}"] = nn.Sequential(blocks)
        self.trunk_output = nn.Sequential(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, std=math.sqrt(2.0 / fan_out))
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.trunk_output(self.stem(x))).flatten(1))


def _make(row: tuple[int, int, float, float, int], se_ratio: float | None = None, **options: Any) -> RegNet:
    """A row is depth, w_0, w_a, w_m and the group width."""
    options.setdefault("norm_layer", partial(nn.BatchNorm2d, eps=1e-05, momentum=0.1))
    return RegNet(BlockParams.from_init_params(*row, se_ratio=se_ratio), **options)


__all__ += variants(
    globals(),
    partial(_make, se_ratio=0.25),
    regnet_y_400mf=(16, 48, 27.89, 2.09, 8),
    regnet_y_800mf=(14, 56, 38.84, 2.4, 16),
    regnet_y_1_6gf=(27, 48, 20.71, 2.65, 24),
    regnet_y_3_2gf=(21, 80, 42.63, 2.66, 24),
    regnet_y_8gf=(17, 192, 76.82, 2.19, 56),
    regnet_y_16gf=(18, 200, 106.23, 2.48, 112),
    regnet_y_32gf=(20, 232, 115.89, 2.53, 232),
    regnet_y_128gf=(27, 456, 160.83, 2.52, 264),
)
__all__ += variants(
    globals(),
    _make,
    regnet_x_400mf=(22, 24, 24.48, 2.54, 16),
    regnet_x_800mf=(16, 56, 35.73, 2.28, 16),
    regnet_x_1_6gf=(18, 80, 34.01, 2.25, 24),
    regnet_x_3_2gf=(25, 88, 26.31, 2.25, 48),
    regnet_x_8gf=(23, 80, 49.56, 2.88, 120),
    regnet_x_16gf=(22, 216, 55.59, 2.1, 128),
    regnet_x_32gf=(23, 320, 69.86, 2.0, 168),
)
