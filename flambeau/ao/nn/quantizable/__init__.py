"""Modules written so that each of their results can be observed: what static quantization makes of LSTM and attention."""

from __future__ import annotations

from flambeau.ao.nn.quantizable.modules import *  # noqa: F403
from flambeau.ao.nn.quantizable.modules import __all__  # noqa: F401
