"""Which configuration each part of a model gets: for all of it, by class or function, by name, by place."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import flambeau as fl
from flambeau import nn
from flambeau.ao.quantization import observer as observers
from flambeau.ao.quantization.qconfig import (
    QConfig,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]


_GLOBAL_DICT_KEY = ""
_OBJECT_TYPE_DICT_KEY, _MODULE_NAME_REGEX_DICT_KEY = "object_type", "module_name_regex"
_MODULE_NAME_DICT_KEY, _MODULE_NAME_OBJECT_TYPE_ORDER_DICT_KEY = "module_name", "module_name_object_type_order"


class QConfigMapping:
    """Configurations by what they are for; the more particular one wins."""

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: OrderedDict[Any, Any] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[Any, Any] = OrderedDict()

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        """For everything that has no other one."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: Any) -> QConfigMapping:
        """For a class of modules, a function, or a method by its name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        """For modules whose name matches; the first that does counts."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        """For a module and all in it that has no other one."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig: Any
    ) -> QConfigMapping:
        """For the n-th call of a class or function in a module."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def to_dict(self) -> dict[str, Any]:
        return {
            "": self.global_qconfig,
            "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()),
            "module_name": list(self.module_name_qconfigs.items()),
            "module_name_object_type_order": [
                (*key, value) for key, value in self.module_name_object_type_order_qconfigs.items()
            ],
        }

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        mapping = cls()
        mapping.set_global(qconfig_dict.get(""))
        for name, setter in (
            ("object_type", mapping.set_object_type), ("module_name_regex", mapping.set_module_name_regex),
            ("module_name", mapping.set_module_name), ("module_name_object_type_order", mapping.set_module_name_object_type_order),
        ):  # fmt: skip
            for entry in qconfig_dict.get(name, []):
                setter(*entry)
        return mapping

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} (", " global_qconfig", f"  {self.global_qconfig}"]
        for name in ("object_type", "module_name_regex", "module_name", "module_name_object_type_order"):
            table = getattr(self, f"{name}_qconfigs")
            lines.append(f" {name}_qconfigs")
            lines += [f"  {key}: {value}" for key, value in table.items()] or ["  OrderedDict()"]
        return "\n".join([*lines, ")"])

    def find(self, path: str, kind: Any, order: tuple[str, Any, int] | None = None) -> Any:
        """The configuration of a module or of a call in it, by its path, its class or function, and its number."""
        if order is not None and order in self.module_name_object_type_order_qconfigs:
            return self.module_name_object_type_order_qconfigs[order]
        name = path
        while name:
            if name in self.module_name_qconfigs:
                return self.module_name_qconfigs[name]
            name = name.rpartition(".")[0]
        for pattern, config in self.module_name_regex_qconfigs.items():
            if re.match(pattern, path):
                return config
        return self.object_type_qconfigs.get(kind, self.global_qconfig)


def _with_methods(module: Any, function: Any) -> tuple[Any, ...]:
    return module, function, function.__name__, f"{function.__name__}_"


_UNIT_KINDS = (
    *_with_methods(nn.Hardsigmoid, fl.nn.functional.hardsigmoid), *_with_methods(nn.Sigmoid, fl.sigmoid), nn.Softmax,
)  # fmt: skip
_SIGNED_KINDS = _with_methods(nn.Tanh, fl.tanh)


def _default_mapping(is_qat: bool, default: QConfig) -> QConfigMapping:
    from flambeau.ao.quantization import fake_quantize as fakes

    mapping = QConfigMapping().set_global(default)
    mapping.set_object_type("reshape", default_reuse_input_qconfig)
    whole = fakes.default_weight_fake_quant if is_qat else observers.default_weight_observer
    transposed = QConfig(default.activation, whole)
    for n in (1, 2, 3):
        mapping.set_object_type(getattr(nn, f"ConvTranspose{n}d"), transposed)
        mapping.set_object_type(getattr(fl.nn.functional, f"conv_transpose{n}d"), transposed)
    norm = QConfig(default.activation, observers.default_placeholder_observer)
    mapping.set_object_type(fl.nn.functional.layer_norm, norm).set_object_type(nn.LayerNorm, norm)
    mapping.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    unit = (
        fakes.default_fixed_qparams_range_0to1_fake_quant
        if is_qat
        else observers.default_fixed_qparams_range_0to1_observer
    )
    signed = (
        fakes.default_fixed_qparams_range_neg1to1_fake_quant if is_qat
        else observers.default_fixed_qparams_range_neg1to1_observer
    )  # fmt: skip
    for kinds, activation in ((_UNIT_KINDS, unit), (_SIGNED_KINDS, signed)):
        for kind in kinds:
            mapping.set_object_type(kind, QConfig(activation, whole))
    return mapping


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """What PyTorch uses for a backend, after training."""
    return _default_mapping(False, get_default_qconfig(backend, version))


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """What PyTorch uses for a backend, in training."""
    return _default_mapping(True, get_default_qat_qconfig(backend, version))


def _get_symmetric_qnnpack_qconfig_mapping() -> QConfigMapping:
    return get_default_qconfig_mapping("qnnpack").set_global(default_symmetric_qnnpack_qconfig)


def _get_symmetric_qnnpack_qat_qconfig_mapping() -> QConfigMapping:
    return get_default_qat_qconfig_mapping("qnnpack").set_global(default_symmetric_qnnpack_qat_qconfig)
