"""Feature pyramids: maps of several sizes, each with what the smaller ones know."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.ops.misc import Conv2dNormActivation

__all__ = ["FeaturePyramidNetwork"]


class ExtraFPNBlock(nn.Module):
    """Further maps, from the results, the inputs and the names of a pyramid."""

    def forward(self, results: list[Tensor], x: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        raise NotImplementedError


class LastLevelMaxPool(ExtraFPNBlock):
    """Every second pixel of the smallest map."""

    def forward(self, x: list[Tensor], y: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:  # type: ignore[override]
        return [*x, F.max_pool2d(x[-1], kernel_size=1, stride=2, padding=0)], [*names, "pool"]


class LastLevelP6P7(ExtraFPNBlock):
    """Two convolutions with stride on the smallest map."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
        self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        for module in (self.p6, self.p7):
            nn.init.kaiming_uniform_(module.weight, a=1)
            nn.init.constant_(module.bias, 0)  # type: ignore[arg-type]
        self.use_P5 = in_channels == out_channels

    def forward(self, p: list[Tensor], c: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        p6 = self.p6(p[-1] if self.use_P5 else c[-1])
        return [*p, p6, self.p7(F.relu(p6))], [*names, "p6", "p7"]


class FeaturePyramidNetwork(nn.Module):
    """Every map is projected to the same width and gets the next smaller one, enlarged, added."""

    def __init__(
        self,
        in_channels_list: list[int],
        out_channels: int,
        extra_blocks: ExtraFPNBlock | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"norm_layer": norm_layer, "activation_layer": None}
        self.inner_blocks = nn.ModuleList(
            Conv2dNormActivation(width, out_channels, kernel_size=1, padding=0, **options) for width in in_channels_list
        )
        self.layer_blocks = nn.ModuleList(
            Conv2dNormActivation(out_channels, out_channels, kernel_size=3, **options) for _ in in_channels_list
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    nn.init.constant_(module.bias, 0)
        self.extra_blocks = extra_blocks

    def forward(self, x: dict[str, Tensor]) -> OrderedDict[str, Tensor]:
        names, maps = list(x), list(x.values())
        inner = self.inner_blocks[-1](maps[-1])
        results = [self.layer_blocks[-1](inner)]
        for i in range(len(maps) - 2, -1, -1):
            lateral = self.inner_blocks[i](maps[i])
            inner = lateral + F.interpolate(inner, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.layer_blocks[i](inner))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, maps, names)
        return OrderedDict(zip(names, results))
