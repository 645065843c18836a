"""VGG networks: stacks of 3x3 convolutions, with or without batch normalisation."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import nn
from flambeau.vision.models._utils import _initialize, _normal
from flambeau.vision.models._weights import model, weights

VGG11_Weights = weights("VGG11_Weights", IMAGENET1K_V1="vgg11-8a719046.pth")
VGG11_BN_Weights = weights("VGG11_BN_Weights", IMAGENET1K_V1="vgg11_bn-6002323d.pth")
VGG13_Weights = weights("VGG13_Weights", IMAGENET1K_V1="vgg13-19584684.pth")
VGG13_BN_Weights = weights("VGG13_BN_Weights", IMAGENET1K_V1="vgg13_bn-abd245e5.pth")
VGG16_Weights = weights("VGG16_Weights", IMAGENET1K_V1="vgg16-397923af.pth")
VGG16_BN_Weights = weights("VGG16_BN_Weights", IMAGENET1K_V1="vgg16_bn-6c64b313.pth")
VGG19_Weights = weights("VGG19_Weights", IMAGENET1K_V1="vgg19-dcbb9e9d.pth")
VGG19_BN_Weights = weights("VGG19_BN_Weights", IMAGENET1K_V1="vgg19_bn-c79401a0.pth")

__all__ = [
    "VGG", "VGG11_BN_Weights", "VGG11_Weights", "VGG13_BN_Weights", "VGG13_Weights", "VGG16_BN_Weights",
    "VGG16_Weights", "VGG19_BN_Weights", "VGG19_Weights", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn",
    "vgg19", "vgg19_bn",
]  # fmt: skip

_WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Convolutions, then three linear layers."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            _initialize(self, _normal)

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        return self.classifier(flambeau.flatten(self.avgpool(self.features(x)), 1))


def make_layers(cfg: list[str | int], batch_norm: bool = False) -> nn.Sequential:
    """Convolutions of the widths in cfg, and a pooling at each "M"."""
    layers: list[nn.Module] = []
    channels = 3
    for width in cfg:
        if width == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(channels, int(width), 3, padding=1))
        layers += [nn.BatchNorm2d(int(width))] if batch_norm else []
        layers.append(nn.ReLU(inplace=True))
        channels = int(width)
    return nn.Sequential(*layers)


def _build(depths: tuple[int, ...], norm: bool = False, **options: Any) -> VGG:
    """depths: convolutions in each of the five stages, which end in a pooling."""
    cfg = [item for width, depth in zip(_WIDTHS, depths) for item in (*[width] * depth, "M")]
    return VGG(make_layers(cfg, norm), **options)  # type: ignore[arg-type]


@model(VGG11_Weights)
def vgg11(**options: Any) -> VGG:
    return _build((1, 1, 2, 2, 2), **options)


@model(VGG11_BN_Weights)
def vgg11_bn(**options: Any) -> VGG:
    return _build((1, 1, 2, 2, 2), True, **options)


@model(VGG13_Weights)
def vgg13(**options: Any) -> VGG:
    return _build((2, 2, 2, 2, 2), **options)


@model(VGG13_BN_Weights)
def vgg13_bn(**options: Any) -> VGG:
    return _build((2, 2, 2, 2, 2), True, **options)


@model(VGG16_Weights)
def vgg16(**options: Any) -> VGG:
    return _build((2, 2, 3, 3, 3), **options)


@model(VGG16_BN_Weights)
def vgg16_bn(**options: Any) -> VGG:
    return _build((2, 2, 3, 3, 3), True, **options)


@model(VGG19_Weights)
def vgg19(**options: Any) -> VGG:
    return _build((2, 2, 4, 4, 4), **options)


@model(VGG19_BN_Weights)
def vgg19_bn(**options: Any) -> VGG:
    return _build((2, 2, 4, 4, 4), True, **options)
