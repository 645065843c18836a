"""Transformations of functions: gradients, Jacobians and batching, composable with each other.

A transformation gives its function inputs of its own level: leaves, or aliases of inputs that a level further out
already follows. The engine records the backward of an inner level, so that an outer one can differentiate it.
"""

from __future__ import annotations

from typing import Any

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
    "functional_call", "stack_module_state", "functionalize", "debug_unwrap", "replace_all_batch_norm_modules_",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Older names of functorch, and what lives in layers above."""
    from importlib import import_module

    if name in ("make_functional", "make_functional_with_buffers", "combine_state_for_ensemble"):
        return getattr(import_module("flambeau.func._stateless"), name)
    if name == "make_fx":
        return import_module("flambeau.fx.experimental.proxy_tensor").make_fx
    if name == "functionalize":
        return import_module("flambeau.func.transforms").functionalize
    if name in ("debug_unwrap", "replace_all_batch_norm_modules_"):
        return getattr(import_module("flambeau.func.modules"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
