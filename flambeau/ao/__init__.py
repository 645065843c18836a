"""What PyTorch keeps under `ao`: of quantization, the part that needs no observers (`quantization.quantize_dynamic`)."""

from __future__ import annotations

from typing import Any

from flambeau import _absent


def __getattr__(name: str) -> Any:
    return _absent.attribute(__name__, name)
