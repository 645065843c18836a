"""Backbones with feature pyramids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import Tensor, nn
from flambeau.vision import models
from flambeau.vision.models._utils import IntermediateLayerGetter
from flambeau.vision.ops import FrozenBatchNorm2d
from flambeau.vision.ops.feature_pyramid_network import ExtraFPNBlock, FeaturePyramidNetwork, LastLevelMaxPool


class BackboneWithFPN(nn.Module):
    """Layers of a backbone and a pyramid over them."""

    def __init__(
        self,
        backbone: nn.Module,
        return_layers: dict[str, str],
        in_channels_list: list[int],
        out_channels: int,
        extra_blocks: ExtraFPNBlock | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers)
        self.fpn = FeaturePyramidNetwork(in_channels_list, out_channels, extra_blocks or LastLevelMaxPool(), norm_layer)
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return self.fpn(self.body(x))


def _checked_layers(trainable_layers: int | None, trained: bool, most: int, default: int) -> int:
    """How many stages are trained: all of a backbone with random weights."""
    if not trained:
        return most
    layers = default if trainable_layers is None else trainable_layers
    if not 0 <= layers <= most:
        raise ValueError(f"[backbone] expected from 0 to {most} trainable layers, got {layers}")
    return layers


def resnet_fpn_extractor(
    backbone: Any,
    trainable_layers: int,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
    norm_layer: Callable[..., nn.Module] | None = None,
) -> BackboneWithFPN:
    """Stages of a ResNet; those that are not trained are frozen."""
    trained = ["layer4", "layer3", "layer2", "layer1", "conv1"][:trainable_layers]
    if trainable_layers == 5:
        trained.append("bn1")
    for name, parameter in backbone.named_parameters():
        if not name.startswith(tuple(trained)) or not trained:
            parameter.requires_grad_(False)
    layers = returned_layers or [1, 2, 3, 4]
    widths = [backbone.inplanes // 8 * 2 ** (i - 1) for i in layers]
    names = {f"layer{k}": str(v) for v, k in enumerate(layers)}
    return BackboneWithFPN(backbone, names, widths, 256, extra_blocks, norm_layer)


def resnet_fpn_backbone(
    *,
    backbone_name: str,
    weights: Any = None,
    norm_layer: Callable[..., nn.Module] = FrozenBatchNorm2d,
    trainable_layers: int = 3,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
) -> BackboneWithFPN:
    backbone = models.get_model(backbone_name, weights=weights, norm_layer=norm_layer)
    return resnet_fpn_extractor(backbone, trainable_layers, returned_layers, extra_blocks)


def mobilenet_extractor(backbone: Any, fpn: bool, trainable_layers: int) -> nn.Module:
    """Stages of a MobileNet, which end where the feature map is halved."""
    features = backbone.features
    stages = [0, *(i for i, b in enumerate(features) if getattr(b, "_is_cn", False)), len(features) - 1]
    frozen = len(features) if trainable_layers == 0 else stages[len(stages) - trainable_layers]
    for block in features[:frozen]:
        for parameter in block.parameters():
            parameter.requires_grad_(False)
    if fpn:
        chosen = [stages[-2], stages[-1]]
        names = {str(place): str(i) for i, place in enumerate(chosen)}
        return BackboneWithFPN(features, names, [features[i].out_channels for i in chosen], 256)
    narrowed = nn.Sequential(features, nn.Conv2d(features[-1].out_channels, 256, 1))
    narrowed.out_channels = 256
    return narrowed
