"""Where a quantized model differs from the float model it was made of, layer by layer.

`compare_weights` compares state dicts, `compare_model_outputs` what layers of either model compute, and `compare_model_stub` what a
quantized layer and its float form compute of the same input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.nn.intrinsic import _FusedModule
from flambeau.ao.nn.quantized import DeQuantize
from flambeau.ao.quantization.quantization_mappings import get_default_compare_output_module_list
from flambeau.ao.quantization.stubs import DeQuantStub
from flambeau.nn.modules.module import Module

__all__ = [
    "Logger", "OutputLogger", "Shadow", "ShadowLogger", "compare_model_outputs", "compare_model_stub", "compare_weights",
    "get_logger_dict", "get_matching_activations", "prepare_model_outputs", "prepare_model_with_stubs",
]  # fmt: skip

_RECURRENT = "_all_weight_values"


# ---------------------------------------------------------------------------------------------- weights


def compare_weights(float_dict: dict[str, Any], quantized_dict: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Weights of two state dicts that belong together: by the quantized name, `float` and `quantized`."""
    weights_by_name: dict[str, dict[str, Any]] = {}
    for key, value in quantized_dict.items():
        owner, _, last = key.rpartition(".")
        if last == "_packed_params" and isinstance(value, tuple):
            owner, weight = owner.removesuffix("_packed_params").rstrip("."), value[0]
        elif last == "weight":
            weight = value
        else:
            continue
        name = next((n for n in (f"{owner}.weight", f"{owner}.0.weight", "weight") if n in float_dict), None)
        if name is not None and getattr(weight, "is_quantized", True):
            weights_by_name[key] = {"float": float_dict[name], "quantized": weight}
    return weights_by_name | _recurrent_weights(float_dict, quantized_dict)


def _recurrent_weights(float_dict: dict[str, Any], quantized_dict: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The two matrices of each layer and direction of dynamic recurrent layers."""
    weights_by_name: dict[str, dict[str, Any]] = {}
    for key, cell in quantized_dict.items():
        place = key.split(".")
        if place[-1] != "param" or place[-3:-2] != [_RECURRENT]:
            continue
        owner, row = ".".join(place[:-3]), int(place[-2])
        prefix = f"{owner}." if owner else ""
        both_ways = f"{prefix}weight_ih_l0_reverse" in float_dict
        layer, end = (row // 2, "_reverse" if row % 2 else "") if both_ways else (row, "")
        weights = [matrix.unpack()[0] for matrix in cell.matrices]
        weights_by_name[key] = {
            "float": [float_dict[f"{prefix}weight_{part}_l{layer}{end}"] for part in ("ih", "hh")],
            "quantized": [weight.dequantize() if weight.is_quantized else weight.float() for weight in weights],
        }
    return weights_by_name


# ---------------------------------------------------------------------------------------------- loggers


class Logger(Module):
    """Keeps what passes in `stats`."""

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, list[Any]] = {}
        self.dtype = fl.quint8

    def forward(self, x: Any) -> Any:
        raise TypeError("[Logger] expected a class that says what it keeps, got the base class")


class ShadowLogger(Logger):
    """Keeps results of a quantized layer and of its float form."""

    def __init__(self) -> None:
        super().__init__()
        self.stats["float"], self.stats["quantized"] = [], []

    def forward(self, x: Any, y: Any) -> None:  # type: ignore[override]
        first, second = (v[0] if isinstance(v, (tuple, list)) else v for v in (x, y))
        self.stats["quantized"].append(first.detach())
        self.stats["float"].append(second.detach())


class OutputLogger(Logger):
    """Keeps results of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stats["tensor_val"] = []

    def forward(self, x: Any) -> Any:
        self.stats["tensor_val"].append(x)
        return x


def get_logger_dict(mod: Module, prefix: str = "") -> dict[str, dict[str, Any]]:
    """What the loggers in a model have kept, by the names of their owners."""
    start = f"{prefix}." if prefix else ""
    stats_by_name = {}
    for name, module in mod.named_modules():
        logger = next((child for child in module.children() if isinstance(child, Logger)), None)
        if logger is not None:
            stats_by_name[f"{start}{name}{'.' if name else ''}stats"] = logger.stats
    return stats_by_name


# ---------------------------------------------------------------------------------------------- shadows


def _dequantized(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.dequantize() if value.is_quantized else value
    return type(value)(map(_dequantized, value)) if isinstance(value, (list, tuple)) else value


class Shadow(Module):
    """A quantized module that computes with its float form beside it; both results are logged, the quantized one is returned."""

    def __init__(self, q_module: Module, float_module: Module, logger_cls: Any) -> None:
        super().__init__()
        self.orig_module, self.shadow_module = q_module, float_module
        self.dequant = DeQuantize()
        self.logger = logger_cls()

    def _both(self, name: str, args: Any) -> Any:
        result = getattr(self.orig_module, name)(*args)
        self.logger(result, getattr(self.shadow_module, name)(*map(_dequantized, args)))
        return result

    def forward(self, *x: Any) -> Any:
        return self._both("__call__", x)

    def add(self, x: Any, y: Any) -> Any:
        return self._both("add", (x, y))

    def add_scalar(self, x: Any, y: float) -> Any:
        return self._both("add_scalar", (x, y))

    def mul(self, x: Any, y: Any) -> Any:
        return self._both("mul", (x, y))

    def mul_scalar(self, x: Any, y: float) -> Any:
        return self._both("mul_scalar", (x, y))

    def cat(self, x: Any, dim: int = 0) -> Any:
        return self._both("cat", (x, dim))

    def add_relu(self, x: Any, y: Any) -> Any:
        return self._both("add_relu", (x, y))


def _leaf_types(module: Module) -> list[type]:
    return [type(part) for part in module.modules()]


def prepare_model_with_stubs(
    float_module: Module, q_module: Module, module_swap_list: Iterable[Any], logger_cls: Any
) -> None:
    """Puts shadows into the quantized model, where the class of the float module is in the list."""
    wanted, floats = set(module_swap_list), dict(float_module.named_children())
    for name, child in list(q_module.named_children()):
        match = floats.get(name)
        if match is None:
            continue
        if type(match) not in wanted:
            prepare_model_with_stubs(match, child, wanted, logger_cls)
        elif _leaf_types(child) != _leaf_types(match):
            q_module._modules[name] = Shadow(child, match, logger_cls)


def compare_model_stub(
    float_model: Module, q_model: Module, module_swap_list: Iterable[Any], *data: Any, logger_cls: Any = ShadowLogger
) -> dict[str, dict[str, Any]]:
    """What quantized modules and their float form compute of the same: by name, `float` and `quantized`."""
    prepare_model_with_stubs(float_model, q_model, module_swap_list, logger_cls)
    q_model(*data)
    return get_logger_dict(q_model)


# ---------------------------------------------------------------------------------------------- results


def _log_results(model: Module, logger_cls: Any, kinds: set[Any]) -> None:
    for module in list(model.modules()):
        is_leaf = not list(module.children()) or isinstance(module, _FusedModule) or type(module) in kinds
        if type(module) in kinds and is_leaf and type(module) is not fl.nn.Sequential:
            module.activation_post_process = logger_cls()
            if not isinstance(module, fl.nn.Sequential):  # which call the logger as their last member
                module.register_forward_hook(_log)


def _log(module: Any, args: Any, result: Any) -> None:
    module.activation_post_process(result)


def prepare_model_outputs(
    float_module: Module, q_module: Module, logger_cls: Any = OutputLogger, allow_list: Any = None
) -> None:
    """Puts loggers behind modules of both models."""
    usual = get_default_compare_output_module_list() - {DeQuantStub, DeQuantize}
    kinds = set(usual if allow_list is None else allow_list)
    for model in (float_module, q_module):
        _log_results(model, logger_cls, kinds)


def get_matching_activations(float_module: Module, q_module: Module) -> dict[str, dict[str, Any]]:
    """What loggers of the same name in both models have kept: `float` and `quantized`."""
    floats = get_logger_dict(float_module)
    results: dict[str, dict[str, Any]] = {}
    for key, stats in get_logger_dict(q_module).items():
        match = next((name for name in (key, key.replace(".stats", ".0.stats")) if name in floats), None)
        if match is not None and stats.get("tensor_val") and floats[match].get("tensor_val"):
            results[key] = {"float": floats[match]["tensor_val"], "quantized": stats["tensor_val"]}
    return results


def compare_model_outputs(
    float_model: Module, q_model: Module, *data: Any, logger_cls: Any = OutputLogger, allow_list: Any = None
) -> dict[str, dict[str, Any]]:
    """What modules of either model compute of the same data: by name, `float` and `quantized`."""
    prepare_model_outputs(float_model, q_model, logger_cls, allow_list)
    float_model(*data)
    q_model(*data)
    return get_matching_activations(float_model, q_model)
