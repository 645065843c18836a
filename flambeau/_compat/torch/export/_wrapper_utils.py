"""A function as a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl


class _WrapperModule(fl.nn.Module):
    """Calls a function."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)
