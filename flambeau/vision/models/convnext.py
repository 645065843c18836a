"""ConvNeXt: convolutional blocks in the manner of transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.vision.models._weights import variants
from flambeau.vision.ops.misc import Conv2dNormActivation, Permute
from flambeau.vision.ops.stochastic_depth import StochasticDepth

__all__ = ["CNBlock", "CNBlockConfig", "ConvNeXt", "LayerNorm2d"]


class LayerNorm2d(nn.LayerNorm):
    """Normalises the channels of each pixel of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """A 7x7 depthwise convolution, then two linear layers on each pixel, scaled and added."""

    def __init__(
        self, dim: int, layer_scale: float, stochastic_depth_prob: float, norm_layer: Callable[..., nn.Module] | None = None
    ) -> None:  # fmt: skip
        super().__init__()
        norm_layer = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim, bias=True),
            Permute([0, 2, 3, 1]),
            norm_layer(dim),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute([0, 3, 1, 2]),
        )
        self.layer_scale = nn.Parameter(flambeau.ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input: Tensor) -> Tensor:
        return self.stochastic_depth(self.layer_scale * self.block(input)) + input


class CNBlockConfig:
    """A stage: channels in, channels after it (None for the last), number of blocks."""

    def __init__(self, input_channels: int, out_channels: int | None, num_layers: int) -> None:
        self.input_channels, self.out_channels, self.num_layers = input_channels, out_channels, num_layers


class ConvNeXt(nn.Module):
    """A stem, stages with a halving of the size after each but the last, and a classifier."""

    def __init__(
        self,
        block_setting: list[CNBlockConfig],
        stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if not block_setting:
            raise ValueError("[ConvNeXt] expected at least one stage, got none")
        block, norm_layer = block or CNBlock, norm_layer or partial(LayerNorm2d, eps=1e-6)
        stem = Conv2dNormActivation(
            3, block_setting[0].input_channels, kernel_size=4, stride=4, padding=0, norm_layer=norm_layer,
            activation_layer=None, bias=True,
        )  # fmt: skip
        layers: list[nn.Module] = [stem]
        last, count = sum(stage.num_layers for stage in block_setting) - 1.0, 0
        for stage in block_setting:
            blocks = []
            for _ in range(stage.num_layers):
                blocks.append(block(stage.input_channels, layer_scale, stochastic_depth_prob * count / last))
                count += 1
            layers.append(nn.Sequential(*blocks))
            if stage.out_channels is not None:
                down = nn.Conv2d(stage.input_channels, stage.out_channels, kernel_size=2, stride=2)
                layers.append(nn.Sequential(norm_layer(stage.input_channels), down))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        width = block_setting[-1].out_channels or block_setting[-1].input_channels
        self.classifier = nn.Sequential(norm_layer(width), nn.Flatten(1), nn.Linear(width, num_classes))
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


def _make(row: tuple[list[int], list[int], float], **options: Any) -> ConvNeXt:
    """A row is the widths of the stages, their depths and the probability of dropping a block."""
    widths, depths, drop = row
    stages = [CNBlockConfig(w, after, n) for w, after, n in zip(widths, [*widths[1:], None], depths)]
    return ConvNeXt(stages, options.pop("stochastic_depth_prob", drop), **options)


__all__ += variants(
    globals(),
    _make,
    convnext_tiny=([96, 192, 384, 768], [3, 3, 9, 3], 0.1),
    convnext_small=([96, 192, 384, 768], [3, 3, 27, 3], 0.4),
    convnext_base=([128, 256, 512, 1024], [3, 3, 27, 3], 0.5),
    convnext_large=([192, 384, 768, 1536], [3, 3, 27, 3], 0.5),
)
