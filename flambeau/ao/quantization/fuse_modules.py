"""fuse_modules: convolutions and linear layers with the batch norm and relu that follow them, as one module."""

from __future__ import annotations

import copy
from typing import Any

from flambeau import nn
from flambeau.ao.nn import intrinsic
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["fuse_modules"]

_WITH_RELU = {nn.Conv1d: intrinsic.ConvReLU1d, nn.Conv2d: intrinsic.ConvReLU2d, nn.Linear: intrinsic.LinearReLU}
_WITH_RELU[nn.BatchNorm2d] = intrinsic.BNReLU2d
_NORMS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Linear: nn.BatchNorm1d}


def fuse_modules(
    model: Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = None,
    fuse_custom_config_dict: dict[str, Any] | None = None,
) -> Module:
    """The model with each list of modules, by name, replaced: the first by what all compute, the others by nothing."""
    if fuser_func is not None or fuse_custom_config_dict:
        raise NotImplementedError("[fuse_modules] expected no fuser_func and no fuse_custom_config_dict, got one")
    model = model if inplace else copy.deepcopy(model)
    groups = (
        modules_to_fuse if all(isinstance(group, (list, tuple)) for group in modules_to_fuse) else [modules_to_fuse]
    )
    for names in groups:
        parts = [model.get_submodule(name) for name in names]
        _set(model, names[0], _fused(parts))
        for name in names[1:]:
            left = nn.Identity()
            left.training = parts[0].training
            _set(model, name, left)
    return model


def _set(model: Module, name: str, value: Module) -> None:
    path, _, last = name.rpartition(".")
    setattr(model.get_submodule(path) if path else model, last, value)


def _fused(parts: list[Any]) -> Module:
    first, rest = parts[0], list(parts[1:])
    kinds = [type(part).__name__ for part in parts]
    if rest and type(first) in _NORMS and type(rest[0]) is _NORMS[type(first)]:
        if first.training or rest[0].training:
            raise AssertionError(f"[fuse_modules] expected modules in eval mode, got {kinds} in training")
        fold = fuse_linear_bn_eval if isinstance(first, nn.Linear) else fuse_conv_bn_eval
        first = fold(first, rest.pop(0))
    if rest and type(first) in _WITH_RELU and type(rest[0]) is nn.ReLU:
        first = _WITH_RELU[type(first)](first, rest.pop(0))
        first.training = parts[0].training
    if rest or first is parts[0]:
        raise NotImplementedError(f"[fuse_modules] expected a layer with batch norm, relu or both, got {kinds}")
    return first
