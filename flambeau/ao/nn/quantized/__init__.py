"""Modules with quantized weights: `modules` on quantized tensors, `dynamic` on plain ones that are rounded as they come."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau._compat import absent
from flambeau.ao.nn.quantized.modules import *  # noqa: F403
from flambeau.ao.nn.quantized.modules import __all__  # noqa: F401

_LATE = {"LSTM": "rnn", "MultiheadAttention": "attention"}  # made of quantizable layers, which need this package
_other = absent.names_of(__name__, "dynamic functional reference")


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"{__name__}.modules.{_LATE[name]}"), name)
    return _other(name)
