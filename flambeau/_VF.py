"""Functions under the name by which older programs call them without checks: those of the library itself."""

from __future__ import annotations

from typing import Any

import flambeau


def __getattr__(name: str) -> Any:
    return getattr(flambeau, name)
