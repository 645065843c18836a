"""fuse_modules: convolutions and linear layers with the batch norm and relu that follow them, as one module."""

from __future__ import annotations

import copy
from typing import Any

from flambeau import nn
from flambeau.ao.quantization.fuser_method_mappings import get_fuser_method
from flambeau.nn.modules.module import Module

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]


def fuse_known_modules(mod_list: list[Any], is_qat: bool, additional_fuser_method_mapping: Any = None) -> list[Any]:
    """One module that computes what all did, and nothing in place of the others."""
    kinds = [type(part) for part in mod_list]
    fuse = get_fuser_method(kinds, additional_fuser_method_mapping)
    if not is_qat and any(part.training for part in mod_list) and any("Norm" in kind.__name__ for kind in kinds):
        raise AssertionError(
            f"[fuse_modules] expected modules in eval mode, got {[k.__name__ for k in kinds]} in training"
        )
    fused = fuse(is_qat, *mod_list)
    fused.training = mod_list[0].training
    for handle in list(mod_list[0]._forward_pre_hooks.values()):
        fused.register_forward_pre_hook(handle)
    mod_list[0]._forward_pre_hooks.clear()
    for handle in list(mod_list[-1]._forward_hooks.values()):
        fused.register_forward_hook(handle)
    mod_list[-1]._forward_hooks.clear()
    rest = [nn.Identity() for _ in mod_list[1:]]
    for left in rest:
        left.training = mod_list[0].training
    return [fused, *rest]


def _fuse(model: Any, groups: Any, is_qat: bool, inplace: bool, fuser_func: Any, custom: Any) -> Module:
    model = model if inplace else copy.deepcopy(model)
    many = all(isinstance(group, (list, tuple)) for group in groups)
    extra = (custom or {}).get("additional_fuser_method_mapping", {})
    for names in groups if many else [groups]:
        parts = [model.get_submodule(name) for name in names]
        for name, part in zip(names, fuser_func(parts, is_qat, extra), strict=True):
            path, _, last = name.rpartition(".")
            setattr(model.get_submodule(path) if path else model, last, part)
    return model


def fuse_modules(
    model: Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: dict[str, Any] | None = None,
) -> Module:
    """The model with each list of modules, by name, replaced: the first by what all compute, the others by nothing."""
    return _fuse(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: dict[str, Any] | None = None,
) -> Module:
    """The same for training: batch norms stay and are trained on."""
    return _fuse(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
