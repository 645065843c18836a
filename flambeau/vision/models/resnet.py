"""Residual networks, with the wide and the grouped ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import nn
from flambeau.vision.models._utils import _initialize
from flambeau.vision.models._weights import model, weights

ResNet18_Weights = weights("ResNet18_Weights", IMAGENET1K_V1="resnet18-f37072fd.pth")
ResNet34_Weights = weights("ResNet34_Weights", IMAGENET1K_V1="resnet34-b627a593.pth")
ResNet50_Weights = weights(
    "ResNet50_Weights", IMAGENET1K_V1="resnet50-0676ba61.pth", IMAGENET1K_V2="resnet50-11ad3fa6.pth"
)
ResNet101_Weights = weights(
    "ResNet101_Weights", IMAGENET1K_V1="resnet101-63fe2227.pth", IMAGENET1K_V2="resnet101-cd907fc2.pth"
)
ResNet152_Weights = weights(
    "ResNet152_Weights", IMAGENET1K_V1="resnet152-394f9c45.pth", IMAGENET1K_V2="resnet152-f82ba261.pth"
)
ResNeXt50_32X4D_Weights = weights(
    "ResNeXt50_32X4D_Weights",
    IMAGENET1K_V1="resnext50_32x4d-7cdf4587.pth",
    IMAGENET1K_V2="resnext50_32x4d-1a0047aa.pth",
)
ResNeXt101_32X8D_Weights = weights(
    "ResNeXt101_32X8D_Weights",
    IMAGENET1K_V1="resnext101_32x8d-8ba56ff5.pth",
    IMAGENET1K_V2="resnext101_32x8d-110c445d.pth",
)
ResNeXt101_64X4D_Weights = weights("ResNeXt101_64X4D_Weights", IMAGENET1K_V1="resnext101_64x4d-173b62eb.pth")
Wide_ResNet50_2_Weights = weights(
    "Wide_ResNet50_2_Weights",
    IMAGENET1K_V1="wide_resnet50_2-95faca4d.pth",
    IMAGENET1K_V2="wide_resnet50_2-9ba9bcbe.pth",
)
Wide_ResNet101_2_Weights = weights(
    "Wide_ResNet101_2_Weights",
    IMAGENET1K_V1="wide_resnet101_2-32ee1156.pth",
    IMAGENET1K_V2="wide_resnet101_2-d733dc28.pth",
)

__all__ = [
    "BasicBlock", "Bottleneck", "ResNet", "ResNet18_Weights", "ResNet34_Weights", "ResNet50_Weights",
    "ResNet101_Weights", "ResNet152_Weights", "ResNeXt50_32X4D_Weights", "ResNeXt101_32X8D_Weights",
    "ResNeXt101_64X4D_Weights", "Wide_ResNet50_2_Weights", "Wide_ResNet101_2_Weights", "resnet18", "resnet34", "resnet50", "resnet101",
    "resnet152", "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
]  # fmt: skip


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError(f"[BasicBlock] expected groups=1 and base_width=64, got {groups} and {base_width}")
        if dilation > 1:
            raise NotImplementedError(f"[BasicBlock] expected no dilation, got {dilation}")
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += shortcut
        return self.relu(out)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones that narrow and widen, beside a shortcut; the stride is in the 3x3."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += shortcut
        return self.relu(out)


class ResNet(nn.Module):
    """A stem, four stages of blocks, the mean over the image and a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: list[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: list[bool] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        dilate = replace_stride_with_dilation or [False, False, False]
        if len(dilate) != 3:
            raise ValueError(f"[ResNet] expected three values for the later stages, got {dilate}")
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation = 64, 1
        self.groups, self.base_width = groups, width_per_group
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        _initialize(self)
        for module in self.modules():
            if zero_init_residual and isinstance(module, (BasicBlock, Bottleneck)):
                last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
                nn.init.constant_(last.weight, 0)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> nn.Sequential:
        first_dilation = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                conv1x1(self.inplanes, planes * block.expansion, stride), self._norm_layer(planes * block.expansion)
            )
        shared = (self.groups, self.base_width)
        layers = [block(self.inplanes, planes, stride, downsample, *shared, first_dilation, self._norm_layer)]
        self.inplanes = planes * block.expansion
        layers += [
            block(self.inplanes, planes, 1, None, *shared, self.dilation, self._norm_layer) for _ in range(1, blocks)
        ]
        return nn.Sequential(*layers)

    def _forward_impl(self, x: flambeau.Tensor) -> flambeau.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(flambeau.flatten(self.avgpool(x), 1))

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        return self._forward_impl(x)


@model(ResNet18_Weights)
def resnet18(**options: Any) -> ResNet:
    return ResNet(BasicBlock, [2, 2, 2, 2], **options)


@model(ResNet34_Weights)
def resnet34(**options: Any) -> ResNet:
    return ResNet(BasicBlock, [3, 4, 6, 3], **options)


@model(ResNet50_Weights)
def resnet50(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 6, 3], **options)


@model(ResNet101_Weights)
def resnet101(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 23, 3], **options)


@model(ResNet152_Weights)
def resnet152(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 8, 36, 3], **options)


@model(ResNeXt50_32X4D_Weights)
def resnext50_32x4d(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 6, 3], **{"groups": 32, "width_per_group": 4, **options})


@model(ResNeXt101_32X8D_Weights)
def resnext101_32x8d(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 23, 3], **{"groups": 32, "width_per_group": 8, **options})


@model(ResNeXt101_64X4D_Weights)
def resnext101_64x4d(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 23, 3], **{"groups": 64, "width_per_group": 4, **options})


@model(Wide_ResNet50_2_Weights)
def wide_resnet50_2(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 6, 3], **{"width_per_group": 128, **options})


@model(Wide_ResNet101_2_Weights)
def wide_resnet101_2(**options: Any) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 23, 3], **{"width_per_group": 128, **options})
