"""Transformations of functions: gradients, Jacobians and batching, composable with each other.

A transformation gives its function inputs of its own level: leaves, or aliases of inputs that a level further out
already follows. The engine records the backward of an inner level, so that an outer one can differentiate it.
"""

from __future__ import annotations

from flambeau.func.batching import vmap
from flambeau.func.modules import functional_call, stack_module_state
from flambeau.func.transforms import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)

__all__ = [
    "grad", "grad_and_value", "value_and_grad", "vjp", "jvp", "linearize", "jacrev", "jacfwd", "hessian", "vmap",
    "functional_call", "stack_module_state",
]  # fmt: skip
