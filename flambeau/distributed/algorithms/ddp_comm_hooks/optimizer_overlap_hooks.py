"""Optimizer steps as part of a hook: the parameters of a bucket are updated as soon as its gradients are averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

__all__ = ["_hook_then_optimizer"]

Hook = Callable[[Any, Any], Any]


class _OptimizerHookState:
    """An optimizer whose step is made for single parameters."""

    def __init__(self, functional_optim: Any, params: Any = None) -> None:
        self.functional_optimizer = functional_optim
        self.params_to_optimize = set(params) if params is not None else None

    def __call__(self, parameter: Any, gradient: Any) -> None:
        if self.params_to_optimize is None or parameter in self.params_to_optimize:
            with flambeau.no_grad():
                self.functional_optimizer.step_param(parameter, gradient)


def _hook_then_optimizer(hook: Hook, optimizer_state: _OptimizerHookState) -> Hook:
    def wrapped(state: Any, bucket: Any) -> Any:
        def update(done: Any) -> Any:
            for gradient, parameter in zip(bucket.gradients(), bucket.parameters()):
                optimizer_state(parameter, gradient)
            return bucket.buffer()

        return hook(state, bucket).then(update)

    return wrapped
