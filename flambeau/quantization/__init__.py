"""The names of `ao.quantization` where older programs look for them."""

from __future__ import annotations

from typing import Any

from flambeau import _absent
from flambeau.ao import quantization as _home
from flambeau.ao.quantization import *  # noqa: F403

__all__ = list(_home.__all__)


def __getattr__(name: str) -> Any:
    return _absent.attribute(__name__, name)
