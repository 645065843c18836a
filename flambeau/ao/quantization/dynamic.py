"""Dynamic quantization: weights in eight bits, inputs rounded as they come."""

from __future__ import annotations

import copy
from typing import Any

from flambeau import nn
from flambeau.ao.quantized_types import float_or_quantized, qint8
from flambeau.nn.modules.module import Module

__all__ = ["quantize_dynamic"]


def quantize_dynamic(
    model: Module, qconfig_spec: Any = None, dtype: Any = qint8, mapping: Any = None, inplace: bool = False
) -> Module:
    """Replace layers by ones with smaller weights that round their inputs as they come.

    `qconfig_spec` names the layers, by class or by full name; without it all that can be replaced are.
    """
    from flambeau.ao.nn.quantized import dynamic

    known = {nn.Linear: dynamic.Linear, nn.LSTM: dynamic.LSTM, nn.GRU: dynamic.GRU}
    known.update(mapping or {})
    wanted = set(known) if qconfig_spec is None else set(qconfig_spec)
    dtype = float_or_quantized(dtype)
    model = model if inplace else copy.deepcopy(model)

    def replace(parent: Module, path: str, chosen: bool) -> None:
        for name, child in list(parent.named_children()):
            full = f"{path}{name}"
            take = chosen or type(child) in wanted or full in wanted
            if take and type(child) in known:
                setattr(parent, name, known[type(child)].from_float(child, dtype))
            else:
                replace(child, f"{full}.", take)

    replace(model, "", False)
    return model
