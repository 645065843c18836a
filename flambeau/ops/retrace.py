"""Derivatives through a composition: for ops whose own gradient kernel has no derivative, or that have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl


def retrace(compose: Callable[..., Any], inputs: Sequence[Any], needs: Sequence[bool], grads: Any) -> tuple[Any, ...]:
    """Gradients of an op from a composition of differentiable ops that computes the same.

    `compose` returns a tensor, or several with a tuple of gradients; results and gradients of None count for nothing.
    Where the backward pass is recorded, so are the gradients.
    """
    recorded = fl.is_grad_enabled()
    with fl.enable_grad():
        # Names of their own: one tensor may be several inputs, or an input may come from another.
        fresh = [x if x is None else fl._ops.alias(x) if recorded else x.detach().requires_grad_() for x in inputs]
        results = compose(*fresh)
        several = isinstance(results, tuple)
        all_pairs = zip(results if several else (results,), grads if several else (grads,))
        pairs = [(r, g) for r, g in all_pairs if r is not None and g is not None and r.requires_grad]
        if not pairs:
            return (None,) * len(needs)
        needs = [needed and x is not None and x.requires_grad for x, needed in zip(fresh, needs)]
        wanted = [x for x, needed in zip(fresh, needs) if needed]
        outputs, output_grads = [r for r, _ in pairs], [g for _, g in pairs]
        gradients = iter(fl.autograd.grad(outputs, wanted, output_grads, create_graph=recorded, allow_unused=True))
    return tuple(next(gradients) if needed else None for needed in needs)
