"""The module torch_xla.experimental.eager."""

from __future__ import annotations

from flambeau.xla.experimental import compile, eager_mode, is_eager_mode

__all__ = ["compile", "eager_mode", "is_eager_mode"]
