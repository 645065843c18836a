"""The old home of Variable."""

from __future__ import annotations

from flambeau.autograd import Variable

__all__ = ["Variable"]
