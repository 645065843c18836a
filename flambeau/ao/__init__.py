"""What PyTorch keeps under `ao`: quantization in eager mode, and the modules that it makes."""

from __future__ import annotations

from typing import Any

from flambeau import _absent


def __getattr__(name: str) -> Any:
    return _absent.attribute(__name__, name)
