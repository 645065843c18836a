"""Features from the middle of a model, by module name."""

from __future__ import annotations

from typing import Any

from flambeau import nn

__all__ = ["create_feature_extractor", "get_graph_node_names"]


def get_graph_node_names(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[list[str], list[str]]:
    """Names that `create_feature_extractor` takes: those of the modules."""
    names = [name for name, _ in model.named_modules() if name]
    return names, names


class _Extractor(nn.Module):
    """Runs a model and returns what some of its modules returned."""

    def __init__(self, model: nn.Module, names: dict[str, str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        features: dict[str, Any] = {}
        hooks = []
        for name, shown in self.names.items():
            module = self.model.get_submodule(name)
            hooks.append(module.register_forward_hook(lambda m, a, out, shown=shown: features.__setitem__(shown, out)))
        try:
            self.model(*args, **kwargs)
        finally:
            for hook in hooks:
                hook.remove()
        return {shown: features[shown] for shown in self.names.values()}


def create_feature_extractor(model: nn.Module, return_nodes: Any = None, **options: Any) -> nn.Module:
    """A module that returns the outputs of the named modules in a dictionary."""
    names = return_nodes if isinstance(return_nodes, dict) else {name: name for name in return_nodes}
    for name in names:
        model.get_submodule(name)
    return _Extractor(model, dict(names))
