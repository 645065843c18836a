"""ShuffleNetV2: one half of the channels passes through, the other is filtered, then both are shuffled."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.vision.models._weights import variants

__all__ = ["ShuffleNetV2"]


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    batch, channels, height, width = x.shape
    return x.view(batch, groups, channels // groups, height, width).transpose(1, 2).reshape(x.shape)


def _conv(inside: int, outside: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outside)]


class InvertedResidual(nn.Module):
    """With a stride both branches filter the whole input; without one, each takes one half of the channels."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        if not 1 <= stride <= 3:
            raise ValueError(f"[InvertedResidual] expected a stride from 1 to 3, got {stride}")
        self.stride, half = stride, oup // 2
        self.branch1 = nn.Sequential()
        if stride > 1:
            self.branch1 = nn.Sequential(*_conv(inp, inp, 3, stride, inp), *_conv(inp, half), nn.ReLU(inplace=True))
        self.branch2 = nn.Sequential(
            *_conv(inp if stride > 1 else half, half),
            nn.ReLU(inplace=True),
            *_conv(half, half, 3, stride, half),
            *_conv(half, half),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        one, two = x.chunk(2, dim=1) if self.stride == 1 else (self.branch1(x), x)
        return channel_shuffle(flambeau.cat((one, self.branch2(two)), dim=1), 2)


class ShuffleNetV2(nn.Module):
    """stages_repeats: blocks in each of three stages; stages_out_channels: of the stem, the stages and the last layer."""

    def __init__(
        self,
        stages_repeats: list[int],
        stages_out_channels: list[int],
        num_classes: int = 1000,
        inverted_residual: Any = InvertedResidual,
    ) -> None:
        super().__init__()
        if len(stages_repeats) != 3 or len(stages_out_channels) != 5:
            raise ValueError("[ShuffleNetV2] expected three numbers of blocks and five widths")
        stem, *stages, last = stages_out_channels
        self.conv1 = nn.Sequential(*_conv(3, stem, 3, 2), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        channels = stem
        for number, (repeats, width) in enumerate(zip(stages_repeats, stages), 2):
            blocks = [inverted_residual(channels, width, 2)]
            blocks += [inverted_residual(width, width, 1) for _ in range(repeats - 1)]
            setattr(self, f"stage{number}", nn.Sequential(*blocks))
            channels = width
        self.conv5 = nn.Sequential(*_conv(channels, last), nn.ReLU(inplace=True))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.conv1(x))
        x = self.conv5(self.stage4(self.stage3(self.stage2(x))))
        return self.fc(x.mean([2, 3]))


def _make(widths: list[int], **options: Any) -> ShuffleNetV2:
    return ShuffleNetV2([4, 8, 4], widths, **options)


__all__ += variants(
    globals(),
    _make,
    shufflenet_v2_x0_5=[24, 48, 96, 192, 1024],
    shufflenet_v2_x1_0=[24, 116, 232, 464, 1024],
    shufflenet_v2_x1_5=[24, 176, 352, 704, 1024],
    shufflenet_v2_x2_0=[24, 244, 488, 976, 2048],
)
