"""Video classification: residual networks over (N, C, T, H, W)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import Tensor, nn
from flambeau.vision.models._utils import _initialize, _normal
from flambeau.vision.models._weights import variants

__all__ = ["VideoResNet"]


class Conv3DSimple(nn.Conv3d):
    """3x3x3."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int | None = None, stride: int = 1) -> None:
        super().__init__(in_planes, out_planes, (3, 3, 3), stride=stride, padding=1, bias=False)

    @staticmethod
    def get_downsample_stride(stride: int) -> tuple[int, int, int]:
        return stride, stride, stride


class Conv3DNoTemporal(nn.Conv3d):
    """1x3x3: frames by themselves."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int | None = None, stride: int = 1) -> None:
        super().__init__(in_planes, out_planes, (1, 3, 3), stride=(1, stride, stride), padding=(0, 1, 1), bias=False)

    @staticmethod
    def get_downsample_stride(stride: int) -> tuple[int, int, int]:
        return 1, stride, stride


class Conv2Plus1D(nn.Sequential):
    """1x3x3, then 3x1x1."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv3d(in_planes, midplanes, (1, 3, 3), stride=(1, stride, stride), padding=(0, 1, 1), bias=False),
            nn.BatchNorm3d(midplanes),
            nn.ReLU(inplace=True),
            nn.Conv3d(midplanes, out_planes, (3, 1, 1), stride=(stride, 1, 1), padding=(1, 0, 0), bias=False),
        )

    @staticmethod
    def get_downsample_stride(stride: int) -> tuple[int, int, int]:
        return stride, stride, stride


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, conv_builder: Any, stride: int = 1, downsample: nn.Module | None = None
    ) -> None:
        super().__init__()
        # As many parameters as a full 3x3x3 convolution has.
        midplanes = (inplanes * planes * 3 * 3 * 3) // (inplanes * 3 * 3 + 3 * planes)
        self.conv1 = nn.Sequential(
            conv_builder(inplanes, planes, midplanes, stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv2 = nn.Sequential(conv_builder(planes, planes, midplanes), nn.BatchNorm3d(planes))
        self.relu = nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.conv2(self.conv1(x)) + (x if self.downsample is None else self.downsample(x)))


def _conv(inside: int, out: int, kernel: Any, stride: Any, padding: Any) -> list[nn.Module]:
    conv = nn.Conv3d(inside, out, kernel_size=kernel, stride=stride, padding=padding, bias=False)
    return [conv, nn.BatchNorm3d(out), nn.ReLU(inplace=True)]


class BasicStem(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*_conv(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3)))


class R2Plus1dStem(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*_conv(3, 45, (1, 7, 7), (1, 2, 2), (0, 3, 3)), *_conv(45, 64, (3, 1, 1), 1, (1, 0, 0)))


class VideoResNet(nn.Module):
    """conv_makers: the kind of convolution of each of four stages."""

    def __init__(
        self,
        block: Any,
        conv_makers: Sequence[Any],
        layers: list[int],
        stem: Callable[..., nn.Module],
        num_classes: int = 400,
        zero_init_residual: bool = False,
    ) -> None:
        super().__init__()
        self.inplanes = 64
        self.stem = stem()
        for i, (maker, depth) in enumerate(zip(conv_makers, layers)):
            setattr(self, f"layer{i + 1}", self._make_layer(block, maker, 64 * 2**i, depth, 2 if i else 1))
        self.avgpool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        _initialize(self, _normal)

    def _make_layer(self, block: Any, maker: Any, planes: int, depth: int, stride: int) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            steps = maker.get_downsample_stride(stride)
            downsample = nn.Sequential(*_conv(self.inplanes, planes * block.expansion, 1, steps, 0)[:2])
        blocks = [block(self.inplanes, planes, maker, stride, downsample)]
        self.inplanes = planes * block.expansion
        blocks += [block(self.inplanes, planes, maker) for _ in range(depth - 1)]
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(self.avgpool(x).flatten(1))


def _make(row: tuple[list[Any], Any], **options: Any) -> VideoResNet:
    makers, stem = row
    return VideoResNet(BasicBlock, makers, [2, 2, 2, 2], stem, **options)


__all__ += variants(
    globals(),
    _make,
    r3d_18=([Conv3DSimple] * 4, BasicStem),
    mc3_18=([Conv3DSimple] + [Conv3DNoTemporal] * 3, BasicStem),
    r2plus1d_18=([Conv2Plus1D] * 4, R2Plus1dStem),
)
