"""GoogLeNet and Inception v3: blocks of parallel branches whose results are joined.

A block is a table: for each branch the names of its layers and their (channels, kernel, stride, padding).
"""

from __future__ import annotations

import warnings
from collections import namedtuple
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models._weights import variants

__all__ = ["GoogLeNet", "GoogLeNetOutputs", "Inception3", "InceptionOutputs"]

GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])


class BasicConv2d(nn.Module):
    """Convolution, normalisation, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **options)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


def _initialize(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            std = float(getattr(module, "stddev", 0.1 if isinstance(net, Inception3) else 0.01))
            nn.init.trunc_normal_(module.weight, mean=0.0, std=std, a=-2, b=2)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.weight, 1)
            nn.init.constant_(module.bias, 0)


def _warn_about_initialization(name: str) -> None:
    warnings.warn(
        f"The default weight initialization of {name} will be changed in future releases of torchvision. If you wish to keep "
        "the old behavior (which leads to long initialization times due to scipy/scipy#11299), please set init_weights=True.",
        FutureWarning,
        stacklevel=3,
    )


def _normalized(x: Tensor) -> Tensor:
    """From the statistics of ImageNet to the range from -1 to 1."""
    scale = flambeau.tensor([0.229, 0.224, 0.225], dtype=x.dtype, device=x.device) / 0.5
    shift = (flambeau.tensor([0.485, 0.456, 0.406], dtype=x.dtype, device=x.device) - 0.5) / 0.5
    return x * scale.view(3, 1, 1) + shift.view(3, 1, 1)


# ---------------------------------------------------------------- GoogLeNet


class Inception(nn.Module):
    """1x1; 1x1 and 3x3; 1x1 and 3x3; pool and 1x1."""

    def __init__(
        self, in_channels: int, ch1x1: int, ch3x3red: int, ch3x3: int, ch5x5red: int, ch5x5: int, pool_proj: int
    ) -> None:
        super().__init__()

        def narrow_and_filter(narrow: int, out: int) -> nn.Sequential:
            return nn.Sequential(
                BasicConv2d(in_channels, narrow, kernel_size=1), BasicConv2d(narrow, out, kernel_size=3, padding=1)
            )

        self.branch1 = BasicConv2d(in_channels, ch1x1, kernel_size=1)
        self.branch2 = narrow_and_filter(ch3x3red, ch3x3)
        self.branch3 = narrow_and_filter(ch5x5red, ch5x5)  # 3x3, as in the trained weights
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=True),
            BasicConv2d(in_channels, pool_proj, kernel_size=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return flambeau.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class _GoogLeNetAux(nn.Module):
    """A classifier on features from the middle, for training."""

    def __init__(self, in_channels: int, num_classes: int, dropout: float = 0.7) -> None:
        super().__init__()
        self.conv = BasicConv2d(in_channels, 128, kernel_size=1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = flambeau.flatten(self.conv(F.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(F.relu(self.fc1(x), inplace=True)))


# Channels in, then those of the branches; a number is the kernel of a pooling layer.
_GOOGLENET = {
    "3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64), "pool3": 3,
    "4a": (480, 192, 96, 208, 16, 48, 64), "4b": (512, 160, 112, 224, 24, 64, 64), "4c": (512, 128, 128, 256, 24, 64, 64),
    "4d": (512, 112, 144, 288, 32, 64, 64), "4e": (528, 256, 160, 320, 32, 128, 128), "pool4": 2,
    "5a": (832, 256, 160, 320, 32, 128, 128), "5b": (832, 384, 192, 384, 48, 128, 128),
}  # fmt: skip


class GoogLeNet(nn.Module):
    """aux_logits: in training, two more classifiers; transform_input: inputs are normalised by ImageNet's statistics."""

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool | None = None,
        blocks: Any = None,
        dropout: float = 0.2,
        dropout_aux: float = 0.7,
    ) -> None:
        super().__init__()
        if init_weights is None:
            _warn_about_initialization("GoogleNet")
            init_weights = True
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = BasicConv2d(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = BasicConv2d(64, 64, kernel_size=1)
        self.conv3 = BasicConv2d(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        for name, row in _GOOGLENET.items():
            if isinstance(row, int):
                setattr(self, f"max{name}", nn.MaxPool2d(row, stride=2, ceil_mode=True))
            else:
                setattr(self, f"inception{name}", Inception(*row))  # type: ignore[misc]
        self.aux1 = _GoogLeNetAux(512, num_classes, dropout_aux) if aux_logits else None
        self.aux2 = _GoogLeNetAux(528, num_classes, dropout_aux) if aux_logits else None
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(1024, num_classes)
        if init_weights:
            _initialize(self)

    def forward(self, x: Tensor) -> Any:
        if self.transform_input:
            x = _normalized(x)
        x = self.maxpool2(self.conv3(self.conv2(self.maxpool1(self.conv1(x)))))
        aux: dict[str, Tensor | None] = {"4b": None, "4e": None}
        for name in _GOOGLENET:
            if name in aux and self.training:  # before 4b and 4e
                classifier = self.aux1 if name == "4b" else self.aux2
                aux[name] = None if classifier is None else classifier(x)
            x = getattr(self, f"max{name}" if name.startswith("pool") else f"inception{name}")(x)
        x = self.fc(self.dropout(flambeau.flatten(self.avgpool(x), 1)))
        return GoogLeNetOutputs(x, aux["4e"], aux["4b"]) if self.training and self.aux_logits else x


# ---------------------------------------------------------------- Inception v3


class _Block(nn.Module):
    """Layers by name in a table `rows`: name -> (channels in, channels out, options of the convolution)."""

    def __init__(self, rows: dict[str, tuple[int, int, dict[str, Any]]]) -> None:
        super().__init__()
        for name, (inside, out, options) in rows.items():
            setattr(self, name, BasicConv2d(inside, out, **options))

    def chain(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = getattr(self, name)(x)
        return x

    def joined(self, x: Tensor, *branches: tuple[str, ...]) -> Tensor:
        return flambeau.cat([self.chain(x, *names) for names in branches], 1)


def _k(height: int, width: int | None = None, stride: int = 1, padded: bool = True) -> dict[str, Any]:
    """A kernel as options of a convolution, padded to keep the size."""
    width = height if width is None else width
    padding = (height // 2, width // 2) if padded else 0
    return {"kernel_size": (height, width), "stride": stride, "padding": padding}


class InceptionA(_Block):
    def __init__(self, in_channels: int, pool_features: int) -> None:
        super().__init__({
            "branch1x1": (in_channels, 64, _k(1)),
            "branch5x5_1": (in_channels, 48, _k(1)),
            "branch5x5_2": (48, 64, _k(5)),
            "branch3x3dbl_1": (in_channels, 64, _k(1)),
            "branch3x3dbl_2": (64, 96, _k(3)),
            "branch3x3dbl_3": (96, 96, _k(3)),
            "branch_pool": (in_channels, pool_features, _k(1)),
        })  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        triple = ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3")
        pooled = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return flambeau.cat([self.joined(x, ("branch1x1",), ("branch5x5_1", "branch5x5_2"), triple), pooled], 1)


class InceptionB(_Block):
    def __init__(self, in_channels: int) -> None:
        super().__init__({
            "branch3x3": (in_channels, 384, _k(3, stride=2, padded=False)),
            "branch3x3dbl_1": (in_channels, 64, _k(1)),
            "branch3x3dbl_2": (64, 96, _k(3)),
            "branch3x3dbl_3": (96, 96, _k(3, stride=2, padded=False)),
        })  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        triple = ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3")
        pooled = F.max_pool2d(x, kernel_size=3, stride=2)
        return flambeau.cat([self.joined(x, ("branch3x3",), triple), pooled], 1)


class InceptionC(_Block):
    def __init__(self, in_channels: int, channels_7x7: int) -> None:
        c = channels_7x7
        super().__init__({
            "branch1x1": (in_channels, 192, _k(1)),
            "branch7x7_1": (in_channels, c, _k(1)),
            "branch7x7_2": (c, c, _k(1, 7)),
            "branch7x7_3": (c, 192, _k(7, 1)),
            "branch7x7dbl_1": (in_channels, c, _k(1)),
            "branch7x7dbl_2": (c, c, _k(7, 1)),
            "branch7x7dbl_3": (c, c, _k(1, 7)),
            "branch7x7dbl_4": (c, c, _k(7, 1)),
            "branch7x7dbl_5": (c, 192, _k(1, 7)),
            "branch_pool": (in_channels, 192, _k(1)),
        })  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        single = tuple(f"branch7x7_{i}" for i in (1, 2, 3))
        double = tuple(f"branch7x7dbl_{i}" for i in (1, 2, 3, 4, 5))
        pooled = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return flambeau.cat([self.joined(x, ("branch1x1",), single, double), pooled], 1)


class InceptionD(_Block):
    def __init__(self, in_channels: int) -> None:
        super().__init__({
            "branch3x3_1": (in_channels, 192, _k(1)),
            "branch3x3_2": (192, 320, _k(3, stride=2, padded=False)),
            "branch7x7x3_1": (in_channels, 192, _k(1)),
            "branch7x7x3_2": (192, 192, _k(1, 7)),
            "branch7x7x3_3": (192, 192, _k(7, 1)),
            "branch7x7x3_4": (192, 192, _k(3, stride=2, padded=False)),
        })  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        long = tuple(f"branch7x7x3_{i}" for i in (1, 2, 3, 4))
        pooled = F.max_pool2d(x, kernel_size=3, stride=2)
        return flambeau.cat([self.joined(x, ("branch3x3_1", "branch3x3_2"), long), pooled], 1)


class InceptionE(_Block):
    def __init__(self, in_channels: int) -> None:
        super().__init__({
            "branch1x1": (in_channels, 320, _k(1)),
            "branch3x3_1": (in_channels, 384, _k(1)),
            "branch3x3_2a": (384, 384, _k(1, 3)),
            "branch3x3_2b": (384, 384, _k(3, 1)),
            "branch3x3dbl_1": (in_channels, 448, _k(1)),
            "branch3x3dbl_2": (448, 384, _k(3)),
            "branch3x3dbl_3a": (384, 384, _k(1, 3)),
            "branch3x3dbl_3b": (384, 384, _k(3, 1)),
            "branch_pool": (in_channels, 192, _k(1)),
        })  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        single = self.joined(self.branch3x3_1(x), ("branch3x3_2a",), ("branch3x3_2b",))
        deep = self.chain(x, "branch3x3dbl_1", "branch3x3dbl_2")
        double = self.joined(deep, ("branch3x3dbl_3a",), ("branch3x3dbl_3b",))
        pooled = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return flambeau.cat([self.branch1x1(x), single, double, pooled], 1)


class InceptionAux(nn.Module):
    """A classifier on features from the middle, for training."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv0 = BasicConv2d(in_channels, 128, kernel_size=1)
        self.conv1 = BasicConv2d(128, 768, kernel_size=5)
        self.conv1.stddev = 0.01
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.conv0(F.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(flambeau.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class Inception3(nn.Module):
    """aux_logits: in training, one more classifier; transform_input: inputs are normalised by ImageNet's statistics."""

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        inception_blocks: Any = None,
        init_weights: bool | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if init_weights is None:
            _warn_about_initialization("inception_v3")
            init_weights = True
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv2d(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = BasicConv2d(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        for name, channels, pooled in (("5b", 192, 32), ("5c", 256, 64), ("5d", 288, 64)):
            setattr(self, f"Mixed_{name}", InceptionA(channels, pooled))
        self.Mixed_6a = InceptionB(288)
        for name, channels in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
            setattr(self, f"Mixed_{name}", InceptionC(768, channels))
        self.AuxLogits = InceptionAux(768, num_classes) if aux_logits else None
        self.Mixed_7a = InceptionD(768)
        self.Mixed_7b = InceptionE(1280)
        self.Mixed_7c = InceptionE(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(2048, num_classes)
        if init_weights:
            _initialize(self)

    def forward(self, x: Tensor) -> Any:
        if self.transform_input:
            x = _normalized(x)
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        for name in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e"):
            x = getattr(self, f"Mixed_{name}")(x)
        aux = self.AuxLogits(x) if self.AuxLogits is not None and self.training else None
        x = self.avgpool(self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))))
        x = self.fc(flambeau.flatten(self.dropout(x), 1))
        return InceptionOutputs(x, aux) if self.training and self.aux_logits else x


def _make(network: Any, **options: Any) -> Any:
    return network(**options)


__all__ += variants(globals(), _make, googlenet=GoogLeNet, inception_v3=Inception3)
