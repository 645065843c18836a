"""Questions about configurations, grids and modules that programs around quantization ask."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    qint32,
    quint2x4,
    quint4x2,
    quint8,
)
from flambeau.ao.quantization.quant_type import QuantType
from flambeau.nn.modules.module import Module

__all__ = [
    "MatchAllNode", "NodePattern", "Pattern", "activation_dtype", "activation_is_dynamically_quantized",
    "activation_is_int32_quantized", "activation_is_int8_quantized", "activation_is_statically_quantized",
    "calculate_qmin_qmax", "check_min_max_valid", "determine_qparams", "get_combined_dict",
    "get_fqn_to_example_inputs", "get_qconfig_dtypes", "get_qparam_dict", "get_quant_type", "get_swapped_custom_module_class",
    "getattr_from_fqn", "has_no_children_ignoring_parametrizations", "is_per_channel", "is_per_tensor",
    "op_is_int8_dynamically_quantized", "to_underlying_dtype", "validate_qmin_qmax", "weight_dtype", "weight_is_quantized",
    "weight_is_statically_quantized",
]  # fmt: skip

NodePattern = Any
Pattern = Any

_EIGHT_BITS = (qint8, quint8, fl.int8, fl.uint8)
_STATIC = (*_EIGHT_BITS, qint32, fl.int32, fl.int16, fl.float8_e5m2, fl.float8_e4m3fn)
_PLAIN = (fl.uint8, fl.int8, fl.uint16, fl.int16, fl.int32, fl.float8_e5m2, fl.float8_e4m3fn)
_UNDERLYING: dict[Any, Any] = {
    quint8: fl.uint8, qint8: fl.int8, qint32: fl.int32, quint4x2: fl.uint8, quint2x4: fl.uint8,

}  # fmt: skip


class MatchAllNode:
    """Stands for any node in a pattern."""


# ---------------------------------------------------------------------------------------------- grids


def is_per_tensor(qscheme: Any) -> bool:
    return qscheme in (per_tensor_affine, per_tensor_symmetric)


def is_per_channel(qscheme: Any) -> bool:
    return qscheme in (per_channel_affine, per_channel_affine_float_qparams, per_channel_symmetric)


def to_underlying_dtype(qdtype: Any) -> Any:
    """The dtype that integers of a quantized dtype are stored in."""
    if qdtype not in _UNDERLYING and qdtype not in _PLAIN:
        raise AssertionError(f"[to_underlying_dtype] expected a quantized or integer dtype, got {qdtype}")
    return _UNDERLYING.get(qdtype, qdtype)


def get_qparam_dict(observer_or_fake_quant: Any) -> dict[str, Any]:
    """Scheme, dtype, grid and range that an observer chose."""
    observer = observer_or_fake_quant
    qscheme = getattr(observer, "qscheme", None)
    qparams: dict[str, Any] = {"qscheme": qscheme, "dtype": observer.dtype}
    if not qscheme:
        return qparams
    if is_per_tensor(qscheme):
        qparams["qscheme"] = per_tensor_affine
    elif qscheme is per_channel_symmetric:
        qparams["qscheme"] = per_channel_affine
    if is_per_channel(qscheme):
        qparams["axis"] = observer.ch_axis
    qparams["scale"], qparams["zero_point"] = observer.calculate_qparams()
    for name in ("quant_min", "quant_max"):
        if hasattr(observer, name):
            qparams[name] = getattr(observer, name)
    return qparams


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether a range was observed; warns where none was."""
    message = "must run observer before calling calculate_qparams. Returning default values."
    if not min_val.numel() or not max_val.numel():
        warnings.warn(message, stacklevel=2)
        return False
    if min_val.dim() == 0 and bool(min_val == float("inf")) and bool(max_val == float("-inf")):
        warnings.warn(message, stacklevel=2)
        return False
    if not bool((min_val <= max_val).all()):
        raise AssertionError(f"[check_min_max_valid] expected min <= max, got min {min_val} and max {max_val}")
    return True


def validate_qmin_qmax(quant_min: int, quant_max: int) -> None:
    """Refuses ranges of integers without zero, or without two places."""
    if not quant_min <= 0 <= quant_max:
        raise AssertionError("Used-specified quantization range must include 0.")
    if not quant_min < quant_max:
        raise AssertionError("qmin must be strictly less than qmax for user-specified quantization range.")


def calculate_qmin_qmax(
    quant_min: Any, quant_max: Any, has_customized_qrange: bool, dtype: Any, reduce_range: bool
) -> tuple[int, int]:
    """The smallest and largest integer of a grid."""
    from flambeau.ao.quantization.observer import range_of

    if not has_customized_qrange:
        return range_of(dtype, reduce_range)
    low, high = (0, 2**32 - 1) if dtype in (qint32, fl.int32) else (0, 255)
    if quant_min is not None and quant_max is not None:
        low, high = int(quant_min), int(quant_max)
    places = high - low + 1
    most = 2**32 if dtype in (qint32, fl.int32) else 2**16 if dtype in (fl.int16, fl.uint16) else 256
    if not 0 < places <= most:
        raise AssertionError(f"[calculate_qmin_qmax] expected up to {most} places for {dtype}, got {places}")
    return (low // 2, high // 2) if reduce_range else (low, high)


def determine_qparams(
    min_val: Tensor, max_val: Tensor, quant_min: int, quant_max: int, dtype: Any, eps: Tensor,
    has_customized_qrange: bool, qscheme: Any = per_tensor_affine,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Scales and zero points for ranges of values."""
    from flambeau.ao.quantization.observer import choose_grid

    if not check_min_max_valid(min_val, max_val):
        return fl.tensor([1.0], device=min_val.device), fl.tensor([0], device=min_val.device)
    return choose_grid(min_val, max_val, quant_min, quant_max, dtype, eps, has_customized_qrange, qscheme)


# ---------------------------------------------------------------------------------------------- configurations


def activation_dtype(qconfig: Any) -> Any:
    return qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> Any:
    return qconfig.weight().dtype


def _is_dynamic(observer: Any) -> bool:
    return bool(getattr(observer, "is_dynamic", False))


def get_qconfig_dtypes(qconfig: Any) -> tuple[Any, Any, bool]:
    """The dtypes of activations and weights, and whether activations are quantized as they come."""
    activation = qconfig.activation()
    return activation.dtype, qconfig.weight().dtype, _is_dynamic(activation)


def activation_is_statically_quantized(qconfig: Any) -> bool:
    activation = qconfig.activation()
    return activation.dtype in _STATIC and not _is_dynamic(activation)


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    return get_qconfig_dtypes(qconfig)[2]


def activation_is_int8_quantized(qconfig: Any) -> bool:
    return activation_dtype(qconfig) in _EIGHT_BITS


def activation_is_int32_quantized(qconfig: Any) -> bool:
    return activation_dtype(qconfig) in (qint32, fl.int32)


def weight_is_quantized(qconfig: Any) -> bool:
    return weight_dtype(qconfig) in (*_STATIC, quint4x2, fl.float16)


def weight_is_statically_quantized(qconfig: Any) -> bool:
    return weight_dtype(qconfig) in _EIGHT_BITS


def op_is_int8_dynamically_quantized(qconfig: Any) -> bool:
    of_activation, of_weight, dynamic = get_qconfig_dtypes(qconfig)
    return of_activation in _EIGHT_BITS and of_weight in _EIGHT_BITS and dynamic


def get_quant_type(qconfig: Any) -> QuantType:
    """Whether a configuration asks for static, dynamic or weight-only quantization."""
    if qconfig is None:
        raise AssertionError("[get_quant_type] expected a qconfig, got None")
    activation, weight = qconfig.activation(), qconfig.weight()
    of_weights = (*_STATIC, quint4x2, fl.float16)
    if weight.dtype in of_weights:
        if _is_dynamic(activation):
            return QuantType.DYNAMIC
        if activation.dtype in _STATIC:
            return QuantType.STATIC
        return QuantType.WEIGHT_ONLY
    if weight.dtype == fl.float32:
        if _is_dynamic(activation):
            return QuantType.DYNAMIC
        if activation.dtype in _STATIC or activation.dtype == fl.float16:
            return QuantType.STATIC
    raise Exception(
        f"[get_quant_type] expected dtypes that quantize something, got {activation.dtype} and {weight.dtype}"
    )


def get_combined_dict(default_dict: dict[Any, Any], additional_dict: dict[Any, Any]) -> dict[Any, Any]:
    return {**default_dict, **additional_dict}


# ---------------------------------------------------------------------------------------------- modules


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """The attribute at a path with dots."""
    for name in fqn.split("."):
        obj = getattr(obj, name)
    return obj


def get_swapped_custom_module_class(custom_module: Any, custom_module_class_mapping: Any, qconfig: Any) -> Any:
    """What takes the place of a custom module under a configuration."""
    table = custom_module_class_mapping.get(get_quant_type(qconfig), {})
    if type(custom_module) not in table:
        raise AssertionError(f"[custom module] expected a class for {type(custom_module)}, got none")
    return table[type(custom_module)]


def has_no_children_ignoring_parametrizations(module: Module) -> bool:
    children = list(module._modules)
    return not children or (children == ["parametrizations"])


def _parent_name(target: str) -> tuple[str, str]:
    parent, _, name = target.rpartition(".")
    return parent, name


def _assert_and_get_unique_device(module: Module) -> Any:
    """The device that a module lies on; None for one without tensors."""
    devices = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
    devices.discard(fl.device("meta"))
    if len(devices) > 1:
        raise AssertionError(f"[prepare] expected a module on one device, got {devices}")
    return next(iter(devices), None)


def _get_path_of_module(root: Module, submodule: Module) -> str | None:
    return next((name for name, module in root.named_modules() if module is submodule), None)


def _get_num_pos_args(f: Callable[..., Any]) -> int:
    return len(inspect.getfullargspec(f).args)


def _normalize_kwargs(func: Callable[..., Any], loc: dict[str, Any]) -> dict[str, Any]:
    """The defaults of a function, with the values that are given."""
    defaults = {
        name: p.default
        for name, p in inspect.signature(func).parameters.items()
        if p.default is not inspect.Parameter.empty
    }
    return {name: loc.get(name, default) for name, default in defaults.items()}


def get_fqn_to_example_inputs(model: Module, example_inputs: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """The positional arguments that each submodule gets when the model runs on examples."""
    names = {id(module): name for name, module in model.named_modules()}
    inputs: dict[str, tuple[Any, ...]] = {}
    handles = []

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        bound = inspect.signature(module.forward).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        inputs[names[id(module)]] = (*bound.args, *bound.kwargs.values())

    try:
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(note, with_kwargs=True))
        model(*example_inputs)
    finally:
        for handle in handles:
            handle.remove()
    return inputs
