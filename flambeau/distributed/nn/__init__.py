"""Collectives with derivatives."""

from flambeau.distributed.nn import functional
from flambeau.distributed.nn.functional import *  # noqa: F403

__all__ = functional.__all__
