"""Quantization of models, in three modes over the same observers and layers.

Eager: mark the quantized part with `QuantStub` and `DeQuantStub`, set `model.qconfig`, `fuse_modules`, `prepare` (or
`prepare_qat`), run examples (or train), `convert`. Graphs: `quantize_fx` finds the parts by itself in a traced model,
`quantize_pt2e` in an exported one. `quantize_dynamic` needs no examples. docs/quantization.md says which to take.
"""

from __future__ import annotations

from flambeau._compat import absent
from flambeau.ao.quantization import fake_quantize as _fakes
from flambeau.ao.quantization import fuser_method_mappings as _fusers
from flambeau.ao.quantization import observer as _observers
from flambeau.ao.quantization import qconfig as _configurations
from flambeau.ao.quantization import quantization_mappings as _mappings
from flambeau.ao.quantization import quantize as _flows
from flambeau.ao.quantization.fake_quantize import *  # noqa: F403
from flambeau.ao.quantization.fuse_modules import fuse_modules, fuse_modules_qat
from flambeau.ao.quantization.fuser_method_mappings import *  # noqa: F403
from flambeau.ao.quantization.observer import *  # noqa: F403
from flambeau.ao.quantization.qconfig import *  # noqa: F403
from flambeau.ao.quantization.qconfig_mapping import (
    QConfigMapping,
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from flambeau.ao.quantization.quant_type import QuantType
from flambeau.ao.quantization.quantization_mappings import *  # noqa: F403
from flambeau.ao.quantization.quantize import *  # noqa: F403
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper

__all__ = [
    "DeQuantStub", "QConfigMapping", "QuantStub", "QuantType", "QuantWrapper", "default_eval_fn", "fuse_modules", "fuse_modules_qat",
    "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping", *_fakes.__all__,
    *_fusers.__all__, *_observers.__all__, *_configurations.__all__, *_mappings.__all__, *_flows.__all__,
]  # fmt: skip


def default_eval_fn(model, calib_data):  # type: ignore[no-untyped-def]
    """Runs a model on examples, pairs of input and target of which the target is not used."""
    for data, _ in calib_data:
        model(data)


__getattr__ = absent.names_of(__name__, "backend_config fx quantize_fx quantize_pt2e quantizer utils")
