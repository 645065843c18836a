"""What models share: widths, initial weights, and the first layers of a backbone as a model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import Tensor, nn


def _make_divisible(value: float, divisor: int, min_value: int | None = None) -> int:
    """The multiple of divisor nearest to value, but not below nine tenths of it."""
    near = max(min_value or divisor, int(value + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * value else near


def _initialize(net: nn.Module, linear: Callable[[Tensor], Any] | None = None) -> None:
    """Convolutions by their fan out, norms as the identity, the weights of linear layers by `linear`, if given."""
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Conv3d)):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif linear is not None and isinstance(module, nn.Linear):
            linear(module.weight)
            nn.init.zeros_(module.bias)


def _normal(weight: Tensor) -> Tensor:
    """Small numbers, as most models begin with in their last layers."""
    return nn.init.normal_(weight, 0, 0.01)


class IntermediateLayerGetter(nn.ModuleDict):
    """Runs the children of a model up to the last one that is named, and returns what the named ones returned.

    return_layers: child -> name in the result.
    """

    def __init__(self, model: nn.Module, return_layers: dict[str, str]) -> None:
        children = dict(model.named_children())
        if not set(return_layers) <= set(children):
            raise ValueError(f"[IntermediateLayerGetter] expected children of the model, got {sorted(return_layers)}")
        missing = set(return_layers)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for name, module in children.items():
            layers[name] = module
            missing.discard(name)
            if not missing:
                break
        super().__init__(layers)
        self.return_layers = {str(k): str(v) for k, v in return_layers.items()}

    def forward(self, x: Tensor) -> OrderedDict[str, Tensor]:
        out: OrderedDict[str, Tensor] = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                out[self.return_layers[name]] = x
        return out
