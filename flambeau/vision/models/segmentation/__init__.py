"""Segmentation: a class for every pixel. Models return {"out": logits, "aux": logits of the auxiliary head}."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models import mobilenetv3, resnet
from flambeau.vision.models._utils import IntermediateLayerGetter
from flambeau.vision.models._weights import variants

__all__ = ["FCN", "LRASPP", "DeepLabV3"]


class _SegmentationModel(nn.Module):
    """Features of the backbone, classified and resized to the input."""

    def __init__(self, backbone: nn.Module, classifier: nn.Module, aux_classifier: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.classifier, self.aux_classifier = backbone, classifier, aux_classifier

    def forward(self, x: Tensor) -> OrderedDict[str, Tensor]:
        size, features = x.shape[-2:], self.backbone(x)
        heads = {"out": self.classifier, "aux": self.aux_classifier}
        return OrderedDict(
            (name, F.interpolate(head(features[name]), size=size, mode="bilinear", align_corners=False))
            for name, head in heads.items()
            if head is not None
        )


class FCN(_SegmentationModel):
    """Fully convolutional network."""


class DeepLabV3(_SegmentationModel):
    """Dilated convolutions of several rates in parallel."""


def _conv_norm(inside: int, out: int, kernel: int = 1, dilation: int = 1) -> list[nn.Module]:
    padding = 0 if kernel == 1 else dilation
    conv = nn.Conv2d(inside, out, kernel, padding=padding, dilation=dilation, bias=False)
    return [conv, nn.BatchNorm2d(out), nn.ReLU()]


class FCNHead(nn.Sequential):
    def __init__(self, in_channels: int, channels: int) -> None:
        inside = in_channels // 4
        super().__init__(*_conv_norm(in_channels, inside, 3), nn.Dropout(0.1), nn.Conv2d(inside, channels, 1))


class ASPPPooling(nn.Sequential):
    """The mean over the image, resized to it."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), *_conv_norm(in_channels, out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(super().forward(x), size=x.shape[-2:], mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    """Convolutions of several dilations and the mean, joined and projected."""

    def __init__(self, in_channels: int, atrous_rates: Sequence[int], out_channels: int = 256) -> None:
        super().__init__()
        branches: list[nn.Module] = [nn.Sequential(*_conv_norm(in_channels, out_channels))]
        branches += [nn.Sequential(*_conv_norm(in_channels, out_channels, 3, rate)) for rate in atrous_rates]
        branches.append(ASPPPooling(in_channels, out_channels))
        self.convs = nn.ModuleList(branches)
        self.project = nn.Sequential(*_conv_norm(len(branches) * out_channels, out_channels), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.project(flambeau.cat([branch(x) for branch in self.convs], dim=1))


class DeepLabHead(nn.Sequential):
    def __init__(self, in_channels: int, num_classes: int, atrous_rates: Sequence[int] = (12, 24, 36)) -> None:
        super().__init__(ASPP(in_channels, atrous_rates), *_conv_norm(256, 256, 3), nn.Conv2d(256, num_classes, 1))


class LRASPPHead(nn.Module):
    """Deep features weighted by their mean over the image, with a class score from shallow ones."""

    def __init__(self, low_channels: int, high_channels: int, num_classes: int, inter_channels: int) -> None:
        super().__init__()
        self.cbr = nn.Sequential(
            nn.Conv2d(high_channels, inter_channels, 1, bias=False), nn.BatchNorm2d(inter_channels), nn.ReLU(inplace=True)
        )  # fmt: skip
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(high_channels, inter_channels, 1, bias=False), nn.Sigmoid()
        )
        self.low_classifier = nn.Conv2d(low_channels, num_classes, 1)
        self.high_classifier = nn.Conv2d(inter_channels, num_classes, 1)

    def forward(self, input: dict[str, Tensor]) -> Tensor:
        low, high = input["low"], input["high"]
        x = F.interpolate(self.cbr(high) * self.scale(high), size=low.shape[-2:], mode="bilinear", align_corners=False)
        return self.low_classifier(low) + self.high_classifier(x)


class LRASPP(nn.Module):
    """A light head for mobile backbones; the backbone returns "low" and "high"."""

    def __init__(
        self, backbone: nn.Module, low_channels: int, high_channels: int, num_classes: int, inter_channels: int = 128
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = LRASPPHead(low_channels, high_channels, num_classes, inter_channels)

    def forward(self, input: Tensor) -> OrderedDict[str, Tensor]:
        out = self.classifier(self.backbone(input))
        return OrderedDict(out=F.interpolate(out, size=input.shape[-2:], mode="bilinear", align_corners=False))


def _mobile_stages(features: nn.Sequential) -> list[int]:
    """Where the feature map of a MobileNet is halved, and its last layer."""
    strided = [i for i, block in enumerate(features) if getattr(block, "_is_cn", False)]
    return [0, *strided, len(features) - 1]


def _backbone(name: str, weights: Any) -> Any:
    """A dilated backbone, which has an eighth of the size of the image, by name."""
    if name.startswith("resnet"):
        return getattr(resnet, name)(weights=weights, replace_stride_with_dilation=[False, True, True])
    return mobilenetv3.mobilenet_v3_large(weights=weights, dilated=True).features


def _make(
    row: tuple[Any, str],
    num_classes: int | None = None,
    aux_loss: bool | None = None,
    weights_backbone: Any = None,
    **options: Any,
) -> nn.Module:
    kind, name = row
    backbone, classes = _backbone(name, weights_backbone), 21 if num_classes is None else num_classes
    if name.startswith("resnet"):
        layers, widths = {"layer4": "out", "layer3": "aux"}, (2048, 1024)
    else:
        stages = _mobile_stages(backbone)
        places = (stages[-1], stages[-4])
        layers, widths = dict(zip(map(str, places), ("out", "aux"))), tuple(backbone[i].out_channels for i in places)
    if not aux_loss:
        layers = {k: v for k, v in layers.items() if v == "out"}
    head = FCNHead if kind is FCN else DeepLabHead
    auxiliary = FCNHead(widths[1], classes) if aux_loss else None
    return kind(IntermediateLayerGetter(backbone, layers), head(widths[0], classes), auxiliary, **options)


def _make_lraspp(row: Any, num_classes: int | None = None, weights_backbone: Any = None, **options: Any) -> LRASPP:
    backbone = _backbone("mobilenet_v3_large", weights_backbone)
    stages = _mobile_stages(backbone)
    low, high = stages[-4], stages[-1]
    features = IntermediateLayerGetter(backbone, {str(low): "low", str(high): "high"})
    classes = 21 if num_classes is None else num_classes
    return LRASPP(features, backbone[low].out_channels, backbone[high].out_channels, classes, **options)


__all__ += variants(
    globals(),
    _make,
    fcn_resnet50=(FCN, "resnet50"),
    fcn_resnet101=(FCN, "resnet101"),
    deeplabv3_resnet50=(DeepLabV3, "resnet50"),
    deeplabv3_resnet101=(DeepLabV3, "resnet101"),
    deeplabv3_mobilenet_v3_large=(DeepLabV3, "mobilenet_v3_large"),
)
__all__ += variants(globals(), _make_lraspp, lraspp_mobilenet_v3_large=None)
