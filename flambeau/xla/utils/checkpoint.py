"""Recomputing in backward instead of saving."""

from __future__ import annotations

from flambeau.utils.checkpoint import checkpoint

__all__ = ["checkpoint"]
