"""Optimizers that step as soon as a parameter's gradient is there, so that gradients need not be kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["_apply_optimizer_in_backward", "_get_in_backward_optimizers"]


def _apply_optimizer_in_backward(
    optimizer_class: Any,
    params: Iterable[Any],
    optimizer_kwargs: dict[str, Any],
    register_hook: bool = True,
) -> None:
    """Gives each parameter an optimizer of its own, which steps during backward and drops the gradient."""
    for parameter in params:
        optimizer = optimizer_class([parameter], **optimizer_kwargs)
        owned = getattr(parameter, "_in_backward_optimizers", [])
        parameter._in_backward_optimizers = [*owned, optimizer]
        if not register_hook or owned:
            continue

        def step(tensor: Any) -> None:
            for one in tensor._in_backward_optimizers:
                one.step()
            tensor.grad = None

        parameter.register_post_accumulate_grad_hook(step)


def _get_in_backward_optimizers(module: Any) -> list[Any]:
    return [one for p in module.parameters() for one in getattr(p, "_in_backward_optimizers", [])]
