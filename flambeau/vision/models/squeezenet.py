"""SqueezeNet: few parameters, from blocks that narrow before they widen."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import nn
from flambeau.vision.models._weights import model, weights

SqueezeNet1_0_Weights = weights("SqueezeNet1_0_Weights", IMAGENET1K_V1="squeezenet1_0-b66bff10.pth")
SqueezeNet1_1_Weights = weights("SqueezeNet1_1_Weights", IMAGENET1K_V1="squeezenet1_1-b8a52dc0.pth")

__all__ = ["SqueezeNet", "SqueezeNet1_0_Weights", "SqueezeNet1_1_Weights", "squeezenet1_0", "squeezenet1_1"]


class Fire(nn.Module):
    """1x1 to a few channels, then 1x1 and 3x3 side by side to many."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        parts = [self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))]
        return flambeau.cat(parts, 1)


# The blocks: (squeezed, expanded) channels, or None for a pooling.
_BLOCKS = {
    "1_0": (None, (16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256)),
    "1_1": (None, (16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256)),
}


class SqueezeNet(nn.Module):
    """version: "1_0" or the cheaper "1_1"."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        if version not in _BLOCKS:
            raise ValueError(f"[SqueezeNet] expected version 1_0 or 1_1, got {version!r}")
        self.num_classes = num_classes
        channels, kernel = (96, 7) if version == "1_0" else (64, 3)
        layers: list[nn.Module] = [nn.Conv2d(3, channels, kernel, stride=2), nn.ReLU(inplace=True)]
        for block in _BLOCKS[version]:
            if block is None:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
                continue
            narrow, wide = block
            layers.append(Fire(channels, narrow, wide, wide))
            channels = 2 * wide
        self.features = nn.Sequential(*layers)
        final = nn.Conv2d(channels, num_classes, 1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), final, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1))
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if module is final:
                    nn.init.normal_(module.weight, mean=0.0, std=0.01)
                else:
                    nn.init.kaiming_uniform_(module.weight)
                nn.init.constant_(module.bias, 0)  # type: ignore[arg-type]

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        return flambeau.flatten(self.classifier(self.features(x)), 1)


@model(SqueezeNet1_0_Weights)
def squeezenet1_0(**options: Any) -> SqueezeNet:
    return SqueezeNet("1_0", **options)


@model(SqueezeNet1_1_Weights)
def squeezenet1_1(**options: Any) -> SqueezeNet:
    return SqueezeNet("1_1", **options)
