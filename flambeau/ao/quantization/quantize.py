"""Static quantization: `prepare` puts observers behind layers, the user runs examples, `convert` replaces the layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flambeau import nn
from flambeau._compat.settings import refuse
from flambeau.ao.nn import intrinsic
from flambeau.ao.nn.quantized import modules as quantized
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub
from flambeau.nn.modules.module import Module

__all__ = ["convert", "get_default_static_quant_module_mappings", "prepare", "propagate_qconfig_", "quantize"]

_MAPPING: dict[Any, Any] = {
    QuantStub: quantized.Quantize,
    DeQuantStub: quantized.DeQuantize,
    nn.Linear: quantized.Linear,
    nn.Conv1d: quantized.Conv1d,
    nn.Conv2d: quantized.Conv2d,
    intrinsic.LinearReLU: quantized.LinearReLU,
    intrinsic.ConvReLU1d: quantized.ConvReLU1d,
    intrinsic.ConvReLU2d: quantized.ConvReLU2d,
    quantized.FloatFunctional: quantized.QFunctional,
    **dict.fromkeys(
        (nn.BatchNorm2d, nn.BatchNorm3d, intrinsic.BNReLU2d, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d,
         nn.InstanceNorm2d, nn.ELU, nn.Hardswish, nn.LeakyReLU, nn.PReLU, nn.Softmax), quantized.OnValues,
    ),
}  # fmt: skip


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """What `convert` replaces modules by."""
    return dict(_MAPPING)


def propagate_qconfig_(
    module: Module, qconfig_dict: dict[Any, Any] | None = None, prepare_custom_config_dict: dict[str, Any] | None = None
) -> None:
    """Gives each submodule the qconfig of its name or class in the table, or that of the module around it."""
    refuse("propagate_qconfig_", prepare_custom_config_dict=prepare_custom_config_dict)
    table = qconfig_dict or {}

    def visit(owner: Module, path: str, around: Any) -> None:
        own = owner.__dict__.get("qconfig", table.get(path, table.get(type(owner), around)))
        owner.qconfig = own
        for name, child in owner.named_children():
            if type(owner) is not quantized.FloatFunctional:
                visit(child, f"{path}.{name}" if path else name, own)

    visit(module, "", table.get(""))


def prepare(
    model: Module,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: dict[str, Any] | None = None,
) -> Module:
    """The model with observers behind the layers that have a qconfig and a quantized form."""
    refuse(
        "prepare",
        observer_non_leaf_module_list=observer_non_leaf_module_list,
        prepare_custom_config_dict=prepare_custom_config_dict,
    )
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    wanted = set(_MAPPING) - {DeQuantStub} if allow_list is None else set(allow_list)
    if not any(getattr(module, "qconfig", None) for module in model.modules()):
        raise ValueError("[prepare] expected a model whose qconfig is set, got one without")

    def visit(owner: Module) -> None:
        for child in owner.children():
            if type(child) not in wanted:
                visit(child)
            elif child.qconfig is not None:
                observer = child.qconfig.activation()
                if type(child) is quantized.FloatFunctional:
                    child.activation_post_process = observer
                else:
                    child.add_module("activation_post_process", observer)
                    child.register_forward_hook(_observe)

    if type(model) in wanted and model.qconfig is not None:
        model = nn.Sequential(model)
    visit(model)
    return model


def _observe(module: Any, args: Any, result: Any) -> Any:
    return module.activation_post_process(result)


def convert(
    module: Module,
    mapping: dict[Any, Any] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: dict[str, Any] | None = None,
    use_precomputed_fake_quant: bool = False,
) -> Module:
    """The model with quantized layers in place of those that were observed."""
    refuse(
        "convert",
        is_reference=is_reference,
        convert_custom_config_dict=convert_custom_config_dict,
        use_precomputed_fake_quant=use_precomputed_fake_quant,
    )
    module = module if inplace else copy.deepcopy(module)
    known = _MAPPING if mapping is None else mapping

    def visit(owner: Module) -> None:
        for name, child in list(owner.named_children()):
            if type(child) in known and _was_observed(child):
                for key, hook in list(child._forward_hooks.items()):
                    if hook is _observe:
                        del child._forward_hooks[key]
                quantized = known[type(child)].from_float(child)
                quantized.training = child.training
                setattr(owner, name, quantized)
            else:
                visit(child)

    visit(module)
    if remove_qconfig:
        for part in module.modules():
            part.__dict__.pop("qconfig", None)
    return module


def _was_observed(module: Module) -> bool:
    if type(module) is DeQuantStub:
        return getattr(module, "qconfig", None) is not None
    return hasattr(module, "activation_post_process") and hasattr(module.activation_post_process, "calculate_qparams")


def quantize(
    model: Module,
    run_fn: Callable[..., Any],
    run_args: Any,
    mapping: dict[Any, Any] | None = None,
    inplace: bool = False,
) -> Module:
    """prepare, `run_fn(model, *run_args)` for the observers, and convert."""
    model = prepare(model.eval() if inplace else copy.deepcopy(model).eval(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)
