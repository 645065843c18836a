"""Comparing a module with its compiled form."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fl
from flambeau.utils import _pytree as pytree

__all__ = ["clone_inputs_retaining_gradness", "run_fwd_maybe_bwd", "same_two_models"]


def clone_inputs_retaining_gradness(example_inputs: Any) -> Any:
    """Copies of the tensors, which require grad where the originals do."""
    return [
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, fl.Tensor) else x for x in example_inputs
    ]


def run_fwd_maybe_bwd(gm: Any, args: Any, only_fwd: bool = False, disable_clone: bool = False) -> tuple[Any, Any]:
    """The results of a call, and the gradients of parameters and arguments where there is something to differentiate."""
    args = list(args) if disable_clone else clone_inputs_retaining_gradness(args)
    if hasattr(gm, "zero_grad"):
        gm.zero_grad(True)
    results = gm(args) if getattr(gm, "_boxed_call", False) else gm(*args)
    if only_fwd:
        return results, None
    losses = [r for r in pytree.tree_leaves(results) if isinstance(r, fl.Tensor) and r.requires_grad]
    if losses:
        fl.autograd.backward([loss.sum() for loss in losses])
    parameters = gm.parameters() if isinstance(gm, fl.nn.Module) else ()
    leaves = [*parameters, *(x for x in args if isinstance(x, fl.Tensor) and x.requires_grad)]
    return results, [leaf.grad for leaf in leaves]


def same_two_models(
    gm: Any, opt_gm: Any, example_inputs: Any, only_fwd: bool = False, *, tolerance: float = 1e-4, **options: Any
) -> bool:
    """Whether two forms of a module give the same results and gradients for the inputs, up to rounding."""
    outcomes = []
    for module in (gm, opt_gm):
        module = copy.deepcopy(module) if isinstance(module, fl.nn.Module) else module
        outcomes.append(pytree.tree_leaves(run_fwd_maybe_bwd(module, example_inputs, only_fwd)))
    first, second = outcomes
    return len(first) == len(second) and all(_same(a, b, tolerance) for a, b in zip(first, second))


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, fl.Tensor) and isinstance(b, fl.Tensor):
        return a.shape == b.shape and fl.allclose(a, b.to(a.dtype), rtol=tolerance, atol=tolerance, equal_nan=True)
    return bool(a == b)
