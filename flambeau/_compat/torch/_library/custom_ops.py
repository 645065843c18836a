"""Operators of programs, as `torch.library.custom_op`."""

from __future__ import annotations

from flambeau.library import CustomOpDef, custom_op

__all__ = ["CustomOpDef", "custom_op"]
