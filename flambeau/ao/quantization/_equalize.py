"""Equalization of layers: a channel between two layers is scaled down in one and up in the other, so that both weights use their
grids evenly. What the two compute together stays.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import flambeau as fl
from flambeau import Tensor, nn
from flambeau.ao.nn.intrinsic import _FusedModule
from flambeau.nn.modules.module import Module

__all__ = [
    "channel_range", "converged", "cross_layer_equalization", "equalize", "expand_groups_in_paired_modules_list",
    "get_module", "max_over_ndim", "min_over_ndim", "process_paired_modules_list_to_name",
]  # fmt: skip

_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d)


def _layer(module: Any) -> Any:
    return module[0] if isinstance(module, _FusedModule) else module


def _reduced(how: Any, input: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    return how(input, tuple(axes), keepdim) if axes else input


def max_over_ndim(input: Tensor, axis_list: list[int], keepdim: bool = False) -> Tensor:
    """The greatest values over dimensions."""
    return _reduced(fl.amax, input, axis_list, keepdim)


def min_over_ndim(input: Tensor, axis_list: list[int], keepdim: bool = False) -> Tensor:
    """The least values over dimensions."""
    return _reduced(fl.amin, input, axis_list, keepdim)


def channel_range(input: Tensor, axis: int = 0) -> Tensor:
    """The distance between the least and the greatest value of each channel."""
    others = [d for d in range(input.dim()) if d != axis]
    return max_over_ndim(input, others) - min_over_ndim(input, others)


def get_module(model: Module, name: str) -> Module:
    """The submodule of a name."""
    return model.get_submodule(name)


def cross_layer_equalization(module1: Any, module2: Any, output_axis: int = 0, input_axis: int = 1) -> None:
    """Gives outputs of the first layer and the inputs of the second that read them the same range of weights, in place."""
    for module in (module1, module2):
        if not isinstance(_layer(module), _KINDS):
            raise ValueError(f"[equalize] expected a linear layer or convolution, got {type(module).__name__}")
    first, second = _layer(module1), _layer(module2)
    ranges = channel_range(first.weight, output_axis), channel_range(second.weight, input_axis)
    if ranges[0].shape != ranges[1].shape:
        raise TypeError(
            f"[equalize] expected as many outputs as inputs, got {ranges[0].numel()} and {ranges[1].numel()}"
        )
    with fl.no_grad():
        ratio = (ranges[0] / ranges[1]).sqrt()
        usable = ratio.isfinite() & (ratio > 0)
        ratio = fl.where(usable, ratio, fl.ones_like(ratio))  # channels without weights stay
        shape = [-1 if d == output_axis else 1 for d in range(first.weight.dim())]
        inner = [-1 if d == input_axis else 1 for d in range(second.weight.dim())]
        first.weight.div_(ratio.view(shape))
        if first.bias is not None:
            first.bias.div_(ratio)
        second.weight.mul_(ratio.view(inner))


def process_paired_modules_list_to_name(model: Module, paired_modules_list: list[Any]) -> list[list[str]]:
    """Pairs of names for pairs of modules or names."""
    names = {id(module): name for name, module in model.named_modules()}
    return [[m if isinstance(m, str) else names[id(m)] for m in pair] for pair in paired_modules_list]


def expand_groups_in_paired_modules_list(paired_modules_list: list[Any]) -> list[list[Any]]:
    """Each two neighbours of longer groups."""
    for group in paired_modules_list:
        if len(group) < 2:
            raise ValueError(f"[equalize] expected groups of at least two modules, got {len(group)}")
    return [[a, b] for group in paired_modules_list for a, b in itertools.pairwise(group)]


def converged(curr_modules: dict[str, Any], prev_modules: dict[str, Any], threshold: float = 1e-4) -> bool:
    """Whether the weights of two dicts of modules differ by less than a threshold altogether."""
    if curr_modules.keys() != prev_modules.keys():
        raise ValueError("[equalize] expected the same names in both dicts, got others")
    change = sum(
        float((_layer(module).weight - _layer(prev_modules[name]).weight).detach().norm())
        for name, module in curr_modules.items()
        if prev_modules[name] is not None
    )
    return change < threshold


def equalize(model: Module, paired_modules_list: list[Any], threshold: float = 1e-4, inplace: bool = True) -> Module:
    """Equalizes neighbouring layers until nothing changes any more.

    Each pair (or longer chain) holds names or modules that follow each other, with nothing between but relu.
    """
    pairs = process_paired_modules_list_to_name(model, expand_groups_in_paired_modules_list(paired_modules_list))
    model = model if inplace else copy.deepcopy(model)
    names = {name for pair in pairs for name in pair}
    if not all(isinstance(_layer(get_module(model, name)), _KINDS) for name in names):
        raise ValueError("[equalize] expected linear layers or convolutions, got others")
    previous: dict[str, Any] = {}
    for _ in range(1000):
        current = {name: get_module(model, name) for name in names}
        if previous and converged(current, previous, threshold):
            break
        previous = {name: copy.deepcopy(module) for name, module in current.items()}
        for first, second in pairs:
            cross_layer_equalization(current[first], current[second])
    return model
