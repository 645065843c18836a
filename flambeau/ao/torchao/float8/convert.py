"""Linear layers of a model become ones with products of 8-bit floats."""

from __future__ import annotations

from collections.abc import Callable

from flambeau import nn
from flambeau.ao.torchao.float8.config import Float8LinearConfig
from flambeau.ao.torchao.float8.linear import Float8Linear
from flambeau.nn.modules.module import Module

__all__ = ["convert_to_float8_training", "swap_linear_layers"]


def swap_linear_layers(
    module: Module,
    from_float_func: Callable[[nn.Linear], nn.Linear],
    *,
    module_filter_fn: Callable[[nn.Module, str], bool] | None = None,
) -> Module:
    """Replaces linear layers in place by what a function makes of them; a linear layer alone is not altered but returned new."""

    def chosen(layer: nn.Module, name: str) -> bool:
        return isinstance(layer, nn.Linear) and (module_filter_fn is None or module_filter_fn(layer, name))

    if isinstance(module, nn.Linear) and chosen(module, ""):
        if next(module.children(), None) is not None:
            raise AssertionError("[swap_linear_layers] expected a linear layer without layers in it, got one with some")
        return from_float_func(module)
    for name, layer in list(module.named_modules()):
        if name and isinstance(layer, nn.Linear) and chosen(layer, name):
            path, _, last = name.rpartition(".")
            setattr(module.get_submodule(path) if path else module, last, from_float_func(layer))
    return module


def convert_to_float8_training(
    module: Module,
    *,
    module_filter_fn: Callable[[nn.Module, str], bool] | None = None,
    config: Float8LinearConfig | None = None,
) -> Module:
    """Makes linear layers multiply 8-bit floats, in place. Parameters stay what they are.

    - module_filter_fn: which layers, by the layer and its full name; by default all. Sizes that 16 does not divide gain nothing.
    - config: scales and dtypes, such as `Float8LinearConfig.from_recipe_name("rowwise")`; by default a scale for each tensor.
    """
    settings = Float8LinearConfig() if config is None else config
    return swap_linear_layers(
        module, lambda layer: Float8Linear.from_float(layer, settings), module_filter_fn=module_filter_fn
    )
