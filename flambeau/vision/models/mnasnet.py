"""MNASNet: inverted residuals found by search for mobile devices."""

from __future__ import annotations

from functools import partial
from typing import Any

from flambeau import Tensor, nn
from flambeau.vision.models._utils import _initialize
from flambeau.vision.models._weights import variants

__all__ = ["MNASNet"]

_MOMENTUM = 1 - 0.9997
# kernel, stride, expansion, channels, repetitions
_STAGES = [(3, 2, 3, 24, 3), (5, 2, 3, 40, 3), (5, 2, 6, 80, 3), (3, 1, 6, 96, 2), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1)]


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, momentum=_MOMENTUM)


class _InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; a shortcut where shapes allow."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        self.apply_residual = inside == outside and stride == 1
        self.layers = nn.Sequential(
            nn.Conv2d(inside, wide, 1, bias=False),
            _norm(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, wide, kernel, padding=kernel // 2, stride=stride, groups=wide, bias=False),
            _norm(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, outside, 1, bias=False),
            _norm(outside),
        )

    def forward(self, input: Tensor) -> Tensor:
        return self.layers(input) + input if self.apply_residual else self.layers(input)


def _round(value: float, divisor: int = 8) -> int:
    near = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return near if near >= 0.9 * value else near + divisor


class MNASNet(nn.Module):
    """alpha: multiplier of all widths."""

    def __init__(self, alpha: float, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        if alpha <= 0:
            raise ValueError(f"[MNASNet] expected alpha > 0, got {alpha}")
        self.alpha, self.num_classes = alpha, num_classes
        stem, first, *widths = (_round(width * alpha) for width in (32, 16, *(row[3] for row in _STAGES)))
        layers: list[nn.Module] = [
            nn.Conv2d(3, stem, 3, padding=1, stride=2, bias=False),
            _norm(stem),
            nn.ReLU(inplace=True),
            nn.Conv2d(stem, stem, 3, padding=1, groups=stem, bias=False),
            _norm(stem),
            nn.ReLU(inplace=True),
            nn.Conv2d(stem, first, 1, bias=False),
            _norm(first),
        ]
        channels = first
        for (kernel, stride, expansion, _, repetitions), width in zip(_STAGES, widths):
            blocks = []
            for i in range(repetitions):
                blocks.append(_InvertedResidual(channels, width, kernel, 1 if i else stride, expansion))
                channels = width
            layers.append(nn.Sequential(*blocks))
        layers += [nn.Conv2d(channels, 1280, 1, bias=False), _norm(1280), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout, inplace=True), nn.Linear(1280, num_classes))
        _initialize(self, partial(nn.init.kaiming_uniform_, mode="fan_out", nonlinearity="sigmoid"))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.layers(x).mean([2, 3]))


def _make(alpha: float, **options: Any) -> MNASNet:
    return MNASNet(alpha, **options)


__all__ += variants(globals(), _make, mnasnet0_5=0.5, mnasnet0_75=0.75, mnasnet1_0=1.0, mnasnet1_3=1.3)
