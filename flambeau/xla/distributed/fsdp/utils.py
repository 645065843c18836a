"""Helpers of modules that are divided: recomputing, and linear layers as XLA wants them."""

from __future__ import annotations

from typing import Any

from flambeau.utils.checkpoint import checkpoint

__all__ = ["apply_xla_patch_to_nn_linear", "checkpoint_module"]


def checkpoint_module(module: Any) -> Any:
    """A module that computes its activations again in backward instead of keeping them."""
    forward = module.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    module.forward = recomputed
    return module


def apply_xla_patch_to_nn_linear(module: Any, patched_function: Any = None) -> Any:
    """Linear layers keep their operands apart already, so that the module stays as it is."""
    return module
