"""DenseNet: every layer of a block sees the outputs of all layers before it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import flambeau
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint
from flambeau.vision.models._weights import model, weights

DenseNet121_Weights = weights("DenseNet121_Weights", IMAGENET1K_V1="densenet121-a639ec97.pth")
DenseNet161_Weights = weights("DenseNet161_Weights", IMAGENET1K_V1="densenet161-8d451a50.pth")
DenseNet169_Weights = weights("DenseNet169_Weights", IMAGENET1K_V1="densenet169-b2777c0a.pth")
DenseNet201_Weights = weights("DenseNet201_Weights", IMAGENET1K_V1="densenet201-c1103571.pth")

__all__ = [
    "DenseNet", "DenseNet121_Weights", "DenseNet161_Weights", "DenseNet169_Weights", "DenseNet201_Weights",
    "densenet121", "densenet161", "densenet169", "densenet201",
]  # fmt: skip


class _DenseLayer(nn.Module):
    """Normalise, narrow by 1x1, filter by 3x3; takes the list of what came before."""

    def __init__(
        self, num_input_features: int, growth_rate: int, bn_size: int, drop_rate: float, memory_efficient: bool = False
    ) -> None:
        super().__init__()
        width = bn_size * growth_rate
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, growth_rate, 3, padding=1, bias=False)
        self.drop_rate = float(drop_rate)
        self.memory_efficient = memory_efficient

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """The files of trained weights were written when layers were called norm.1 and conv.2."""
        for kind in ("norm", "conv"):
            for number in ("1", "2"):
                old = f"{prefix}{kind}.{number}."
                for key in [key for key in state_dict if key.startswith(old)]:
                    state_dict[f"{prefix}{kind}{number}.{key[len(old) :]}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def bn_function(self, *inputs: flambeau.Tensor) -> flambeau.Tensor:
        return self.conv1(self.relu1(self.norm1(flambeau.cat(inputs, 1))))

    def forward(self, input: Any) -> flambeau.Tensor:
        inputs = [input] if isinstance(input, flambeau.Tensor) else input
        if self.memory_efficient and any(x.requires_grad for x in inputs):
            narrow = checkpoint(self.bn_function, *inputs, use_reentrant=False)
        else:
            narrow = self.bn_function(*inputs)
        new = self.conv2(self.relu2(self.norm2(narrow)))
        return nn.functional.dropout(new, p=self.drop_rate, training=self.training) if self.drop_rate > 0 else new


class _DenseBlock(nn.ModuleDict):
    def __init__(
        self,
        num_layers: int,
        num_input_features: int,
        bn_size: int,
        growth_rate: int,
        drop_rate: float,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        for i in range(num_layers):
            seen = num_input_features + i * growth_rate
            layer = _DenseLayer(seen, growth_rate, bn_size, drop_rate, memory_efficient)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, init_features: flambeau.Tensor) -> flambeau.Tensor:
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return flambeau.cat(features, 1)


class _Transition(nn.Sequential):
    """Half the channels and half the size."""

    def __init__(self, num_input_features: int, num_output_features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(num_input_features)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(num_input_features, num_output_features, 1, bias=False)
        self.pool = nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """growth_rate: channels that each layer adds; block_config: layers in each block."""

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: tuple[int, ...] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        channels = num_init_features
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
                norm0=nn.BatchNorm2d(channels),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(3, 2, padding=1),
            )
        )
        for i, depth in enumerate(block_config):
            block = _DenseBlock(depth, channels, bn_size, growth_rate, drop_rate, memory_efficient)
            self.features.add_module(f"denseblock{i + 1}", block)
            channels += depth * growth_rate
            if i + 1 < len(block_config):
                self.features.add_module(f"transition{i + 1}", _Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)
            elif isinstance(module, nn.Linear):
                nn.init.constant_(module.bias, 0)

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        x = nn.functional.relu(self.features(x), inplace=True)
        return self.classifier(flambeau.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1))


@model(DenseNet121_Weights)
def densenet121(**options: Any) -> DenseNet:
    return DenseNet(32, (6, 12, 24, 16), 64, **options)


@model(DenseNet161_Weights)
def densenet161(**options: Any) -> DenseNet:
    return DenseNet(48, (6, 12, 36, 24), 96, **options)


@model(DenseNet169_Weights)
def densenet169(**options: Any) -> DenseNet:
    return DenseNet(32, (6, 12, 32, 32), 64, **options)


@model(DenseNet201_Weights)
def densenet201(**options: Any) -> DenseNet:
    return DenseNet(32, (6, 12, 48, 32), 64, **options)
