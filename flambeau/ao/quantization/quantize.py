"""Quantization of modules in place of modules: static, dynamic, and trained with fake quantization.

`prepare` puts observers behind layers, the user runs examples, `convert` replaces the layers. `prepare_qat` also replaces
layers by ones that round their weights, and the user trains. `quantize_dynamic` needs no examples.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import nn
from flambeau._tensor.quantized_types import per_channel_affine, per_channel_symmetric, qint8, quint4x2, quint8
from flambeau.ao.nn.intrinsic import _FusedModule
from flambeau.ao.nn.quantized import FloatFunctional, FXFloatFunctional
from flambeau.ao.quantization import quantization_mappings as mappings
from flambeau.ao.quantization.observer import _is_activation_post_process
from flambeau.ao.quantization.qconfig import (
    _DYNAMIC_BY_DTYPE,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
)
from flambeau.ao.quantization.stubs import DeQuantStub, QuantWrapper
from flambeau.ao.quantization.utils import get_qparam_dict
from flambeau.nn.modules.module import Module

__all__ = [
    "add_quant_dequant", "convert", "get_default_custom_config_dict", "prepare", "prepare_qat", "propagate_qconfig_", "quantize",
    "quantize_dynamic", "quantize_qat", "swap_module",
]  # fmt: skip

_FUNCTIONAL = (FloatFunctional, FXFloatFunctional)


def get_default_custom_config_dict() -> dict[str, Any]:
    """Modules with rules of their own: recurrent layers and attention, which become several layers that are observed."""
    from flambeau.ao.nn import quantizable, quantized

    return {
        "float_to_observed_custom_module_class": {
            nn.LSTM: quantizable.LSTM,
            nn.MultiheadAttention: quantizable.MultiheadAttention,
        },
        "observed_to_quantized_custom_module_class": {
            quantizable.LSTM: quantized.LSTM,
            quantizable.MultiheadAttention: quantized.MultiheadAttention,
        },
    }


def propagate_qconfig_(
    module: Module, qconfig_dict: dict[Any, Any] | None = None, prepare_custom_config_dict: dict[str, Any] | None = None
) -> None:
    """Gives each submodule the qconfig of its name or class in the table, or that of the module around it."""
    table = qconfig_dict or {}
    custom = prepare_custom_config_dict or {}
    skipped_names = custom.get("non_traceable_module_name") or []
    skipped_classes = custom.get("non_traceable_module_class") or []

    def visit(owner: Module, path: str, around: Any) -> None:
        own = owner.__dict__.get("qconfig", table.get(path, table.get(type(owner), around)))
        owner.qconfig = own
        for name, child in owner.named_children():
            full = f"{path}.{name}" if path else name
            if type(owner) not in _FUNCTIONAL and full not in skipped_names and type(child) not in skipped_classes:
                visit(child, full, own)

    visit(module, "", table.get(""))


def _observe(module: Any, args: Any, result: Any) -> Any:
    return module.activation_post_process(result)


def _observe_input(module: Any, args: Any) -> Any:
    return module.activation_post_process(args[0])


def _get_observer_dict(mod: Module, target_dict: dict[str, Any], prefix: str = "") -> None:
    """Collects the observers of a model by their paths."""
    for name, module in mod.named_modules(prefix=prefix):
        if hasattr(module, "activation_post_process"):
            target_dict[f"{name}.activation_post_process" if name else "activation_post_process"] = (
                module.activation_post_process
            )


def _add_observer(module: Any, by_qconfig: bool = False) -> None:
    """An observer behind a module that has a configuration; one that is only noted as it comes sees the input instead.

    In training modules whose results always lie on one grid get it, unless their configuration is to say what they get.
    """
    special = mappings.DEFAULT_MODULE_TO_ACT_POST_PROCESS.get(type(module)) if module.training else None
    special = None if by_qconfig else special
    observer = module.qconfig.activation() if special is None else special()
    if type(module) in _FUNCTIONAL:
        module.activation_post_process = observer
        return
    module.add_module("activation_post_process", observer)
    if getattr(observer, "is_dynamic", False) and not isinstance(observer, nn.Identity):
        module.register_forward_pre_hook(_observe_input, prepend=True)
    else:
        module.register_forward_hook(_observe, prepend=True)


def prepare(
    model: Module,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: dict[str, Any] | None = None,
) -> Module:
    """The model with observers behind the layers that have a qconfig and a quantized form."""
    if prepare_custom_config_dict is None:
        prepare_custom_config_dict = get_default_custom_config_dict()
    custom = prepare_custom_config_dict.get("float_to_observed_custom_module_class", {})
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model, None, prepare_custom_config_dict)
    leaves = mappings.get_default_qconfig_propagation_list() - {nn.Sequential, DeQuantStub}
    wanted = leaves if allow_list is None else set(allow_list)
    named = set(observer_non_leaf_module_list or ())
    wanted |= named
    if not any(getattr(module, "qconfig", None) for module in model.modules()):
        warnings.warn(
            "[prepare] expected a model whose qconfig is set, got one without: nothing is observed", stacklevel=2
        )

    def visit(owner: Any) -> None:
        for name, child in list(owner.named_children()):
            config = getattr(child, "qconfig", None)
            if _is_activation_post_process(child):
                continue
            _need_valid(child)
            if type(child) in custom:
                if config is not None:
                    observed = custom[type(child)].from_float(child)
                    observed.qconfig = config
                    setattr(owner, name, observed)
                    if type(observed) not in mappings.no_observer_set():
                        _add_observer(observed)
            elif type(child) in wanted:
                if config is not None:
                    _add_observer(child, type(child) in named)
            elif config is not None and (_is_observed_whole(child, allow_list) or _has_fixed_grid(child)):
                _add_observer(child)
            else:
                visit(child)

    if type(model) in wanted and model.qconfig is not None and not list(model.children()):
        _add_observer(model)
    else:
        visit(model)
    return model


def _is_observed_whole(module: Any, allow_list: Any) -> bool:
    return isinstance(module, _FusedModule) and allow_list is None


def _has_fixed_grid(module: Any) -> bool:
    return module.training and type(module) in mappings.DEFAULT_MODULE_TO_ACT_POST_PROCESS


def _need_valid(module: Any) -> None:
    """Refuse what could not be converted later."""
    transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    config = getattr(module, "qconfig", None)
    if config is None or not isinstance(module, transposed) or not callable(config.weight):
        return
    scheme = getattr(config.weight(), "qscheme", None)
    if scheme in (per_channel_affine, per_channel_symmetric):
        raise AssertionError(
            f"[prepare] expected a weight observer with one scale for a transposed convolution, got {scheme}: "
            "Per channel weight observer is not supported yet for ConvTranspose{n}d."
        )


def prepare_qat(model: Module, mapping: dict[Any, Any] | None = None, inplace: bool = False) -> Module:
    """The model with observers that round, and layers that round their weights: to be trained, then converted."""
    if not model.training:
        raise AssertionError("[prepare_qat] expected a model in training mode, got one in eval mode")
    mapping = mappings.get_default_qat_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    convert(model, mapping, inplace=True, remove_qconfig=False)
    return prepare(model, inplace=True, observer_non_leaf_module_list=set(mapping.values()))


def _remove_hooks(module: Any) -> None:
    for hooks, own in ((module._forward_hooks, _observe), (module._forward_pre_hooks, _observe_input)):
        for key, hook in list(hooks.items()):
            if hook is own:
                del hooks[key]


def swap_module(
    mod: Any, mapping: dict[Any, Any], custom_module_class_mapping: Any = None, use_precomputed_fake_quant: bool = False
) -> Any:
    """What takes the place of a module; the module itself where there is nothing, or no configuration."""
    if getattr(mod, "qconfig", None) is None:
        return mod
    custom = custom_module_class_mapping or {}
    if type(mod) in custom:
        new = custom[type(mod)].from_observed(mod)
    elif type(mod) in mapping:
        if not _is_ready(mod, mapping[type(mod)]):
            return mod
        _remove_hooks(mod)
        if getattr(mapping[type(mod)], "_IS_REFERENCE", False):
            return _with_hooks_of(mod, mapping[type(mod)].from_float(mod, _weight_grids(mod)))
        import inspect

        options = {"use_precomputed_fake_quant": use_precomputed_fake_quant} if use_precomputed_fake_quant else {}
        if options and "use_precomputed_fake_quant" not in inspect.signature(mapping[type(mod)].from_float).parameters:
            options = {}
        new = mapping[type(mod)].from_float(mod, **options)
    else:
        return mod
    return new if new is mod else _with_hooks_of(mod, new)


def _with_hooks_of(mod: Any, new: Any) -> Any:
    """A module that takes the place of another, with the hooks of its user."""
    for source, target in (
        (mod._forward_pre_hooks, new._forward_pre_hooks),
        (mod._forward_hooks, new._forward_hooks),
    ):
        for key, hook in source.items():
            if hook is not _observe and hook is not _observe_input:
                target[key] = hook
    new.training = mod.training
    return new


def _weight_grids(mod: Any) -> dict[str, Any]:
    """The grids that the observer of a module's configuration chooses for its weights, by their names."""
    grids: dict[str, Any] = {}
    for name, parameter in mod.named_parameters(recurse=False):
        if name.startswith("weight"):
            observer = getattr(mod, "weight_fake_quant", None) or mod.qconfig.weight()
            observer(parameter)
            grids[name] = get_qparam_dict(observer)
    return grids


def _is_ready(mod: Any, target: Any) -> bool:
    """Whether a module has what its quantized form needs: activations of static layers have been observed."""
    needs = target.__module__.startswith(("flambeau.ao.nn.quantized.modules", "flambeau.ao.nn.intrinsic.quantized"))
    static = needs and ".dynamic" not in target.__module__ and "embedding" not in target.__module__
    if not static or isinstance(mod, (DeQuantStub, nn.Dropout, nn.ReLU6)):
        return True
    observer = getattr(mod, "activation_post_process", None)
    return observer is not None and hasattr(observer, "calculate_qparams")


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
    if convert_custom_config_dict is None:
        convert_custom_config_dict = get_default_custom_config_dict()
    custom = convert_custom_config_dict.get("observed_to_quantized_custom_module_class", {})
    module = module if inplace else copy.deepcopy(module)
    if mapping is None:
        known = (
            mappings.get_default_static_quant_reference_module_mappings()
            if is_reference
            else mappings.get_default_static_quant_module_mappings()
        )
    else:
        known = mapping

    def visit(owner: Any) -> None:
        for name, child in list(owner.named_children()):
            if not isinstance(child, _FusedModule) and type(child) not in custom and type(child) not in known:
                visit(child)
            new = swap_module(child, known, custom, use_precomputed_fake_quant)
            if new is not child:
                setattr(owner, name, new)
            elif mapping is None and type(child) in mappings.DEFAULT_MODULE_TO_ACT_POST_PROCESS:
                _remove_hooks(child)
                child._modules.pop("activation_post_process", None)
            elif type(child) in known or isinstance(child, _FusedModule):
                visit(child)

    visit(module)
    if remove_qconfig:
        for part in module.modules():
            part.__dict__.pop("qconfig", None)
    return module


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


def quantize_qat(model: Module, run_fn: Callable[..., Any], run_args: Any, inplace: bool = False) -> Module:
    """prepare_qat, `run_fn(model, *run_args)` to train it, and convert."""
    model = prepare_qat(model.train() if inplace else copy.deepcopy(model).train(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def add_quant_dequant(module: Any) -> Any:
    """A QuantWrapper around each leaf that has a configuration."""
    if not list(module.children()) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        setattr(module, name, add_quant_dequant(child))
    return module


def quantize_dynamic(
    model: Module, qconfig_spec: Any = None, dtype: Any = qint8, mapping: Any = None, inplace: bool = False
) -> Module:
    """Replace layers by ones with smaller weights that round their inputs as they come.

    `qconfig_spec` names the layers, by class or by full name, or is a dict with a configuration for each, where None leaves
    a layer as it is; without it all that can be replaced are.
    """
    recurrent = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell)
    if qconfig_spec is None:
        defaults: dict[Any, Any] = {
            qint8: dict.fromkeys(recurrent, default_dynamic_qconfig),
            fl.float16: dict.fromkeys(recurrent, float16_dynamic_qconfig),
            quint8: dict.fromkeys((nn.EmbeddingBag, nn.Embedding), float_qparams_weight_only_qconfig),
            quint4x2: {nn.EmbeddingBag: float_qparams_weight_only_qconfig_4bit},
        }
        if dtype not in defaults:
            raise RuntimeError(f"[quantize_dynamic] expected dtype torch.qint8 or torch.float16, got {dtype}")
        qconfig_spec = defaults[dtype]
    else:
        if dtype not in _DYNAMIC_BY_DTYPE:
            raise RuntimeError(f"[quantize_dynamic] expected dtype torch.qint8 or torch.float16, got {dtype}")
        if not isinstance(qconfig_spec, dict):
            qconfig_spec = dict.fromkeys(qconfig_spec, _DYNAMIC_BY_DTYPE[dtype])
    mapping = {**mappings.get_default_dynamic_quant_module_mappings(), **(mapping or {})}
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    return convert(model, mapping, inplace=True)
