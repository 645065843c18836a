"""Optimizers that treat one parameter after the other: what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim.optimizer import Optimizer


class SingleOptimizer(Optimizer):
    """Subclasses implement the step of one parameter."""

    def _step_parameter(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        raise NotImplementedError

    @fl.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient. A closure computes the loss, and its gradients, again."""
        loss = None
        if closure is not None:
            with fl.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step_parameter(p, p.grad, self.state[p], group)
        return loss
