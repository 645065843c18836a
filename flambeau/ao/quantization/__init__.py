"""Quantization of models in eager mode: dynamic (`quantize_dynamic`) and static.

Static: mark the quantized part with `QuantStub` and `DeQuantStub`, set `model.qconfig`, `fuse_modules`, `prepare`, run
examples, `convert`. `observer` has what chooses grids, `ao.nn.quantized` the layers. Training that knows of quantization and
graph mode are lacking.
"""

from __future__ import annotations

from flambeau._compat import absent
from flambeau.ao.quantization.dynamic import quantize_dynamic
from flambeau.ao.quantization.fuse_modules import fuse_modules
from flambeau.ao.quantization.observer import *  # noqa: F403
from flambeau.ao.quantization.observer import __all__ as _observers
from flambeau.ao.quantization.qconfig import *  # noqa: F403
from flambeau.ao.quantization.qconfig import __all__ as _configurations
from flambeau.ao.quantization.quantize import (
    convert,
    get_default_static_quant_module_mappings,
    prepare,
    propagate_qconfig_,
    quantize,
)
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper

__all__ = [
    "DeQuantStub", "QuantStub", "QuantWrapper", "convert", "fuse_modules", "get_default_static_quant_module_mappings",
    "prepare", "propagate_qconfig_", "quantize", "quantize_dynamic", *_observers, *_configurations,
]  # fmt: skip

__getattr__ = absent.names_of(__name__)
