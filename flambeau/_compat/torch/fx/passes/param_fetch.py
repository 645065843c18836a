"""Plain attributes of modules as notes of the nodes that call them, for backends that lower modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import nn
from flambeau.fx.graph_module import GraphModule
from flambeau.nn.modules.module import Module

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes", "module_fetch_book"]

_CONVOLUTION = ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]


def default_matching(name: str, target_version: int) -> str:
    """Attributes keep their names in all versions."""
    return name


# Class of module -> version, attributes to fetch, and how their names change between versions.
module_fetch_book: dict[Any, tuple[int, list[str], Callable[[str, int], str]]] = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (1, _CONVOLUTION, default_matching),
    nn.Conv3d: (1, _CONVOLUTION, default_matching),
    nn.BatchNorm2d: (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.AvgPool2d: (1, ["kernel_size", "stride", "padding", "count_include_pad", "ceil_mode"], default_matching),
    nn.ReLU: (1, ["inplace"], default_matching),
    nn.MaxPool2d: (
        1,
        ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"],
        default_matching,
    ),
}


def extract_attrs_for_lowering(mod: Module) -> dict[str, Any]:
    """The class of a module by name, and its attributes."""
    kind = type(mod)
    attributes: dict[str, Any] = {"name": f"torch.{kind.__module__.partition('.')[2]}.{kind.__name__}"}
    if kind not in module_fetch_book:
        raise RuntimeError(
            f"[param_fetch] expected a module of the book, got {kind.__name__}; add it to module_fetch_book"
        )
    version, names, matching = module_fetch_book[kind]
    if version < getattr(mod, "_version", 1):
        raise RuntimeError(f"[param_fetch] expected a {kind.__name__} of version {version}, got {mod._version}")
    for name in names:
        attributes[name] = getattr(mod, matching(name, getattr(mod, "_version", 1)))
    return attributes


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Set `attrs_for_lowering` of each node that calls a module, inside of nested graph modules too."""
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        called = modules[str(node.target)]
        if isinstance(called, GraphModule):
            lift_lowering_attrs_to_nodes(called)
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(called)
