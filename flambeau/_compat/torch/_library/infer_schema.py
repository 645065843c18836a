"""Schemas from annotations, as `torch.library.infer_schema`."""

from __future__ import annotations

from flambeau.library import infer_schema

__all__ = ["infer_schema"]
