"""Parts of models as models: the first layers of a backbone, and what some of them return."""

from __future__ import annotations

from collections import OrderedDict

from flambeau import Tensor, nn
from flambeau.vision.models.mobilenetv3 import _make_divisible  # noqa: F401


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
