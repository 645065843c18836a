"""RMSprop: steps scaled by the running root mean square of the gradient."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import rmsprop
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ListOptimizer):
    """p <- p - lr * gradient / (sqrt(v) + eps), v the moving average of the squared gradient, or its variance."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)  # fmt: skip
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        names = ["square_avg"]
        if group["centered"]:
            names.append("grad_avg")
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        return (*names, "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state = {"step": self._step_count(p, group), "square_avg": zeros_like(p)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)
        return state

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        record = f"_update_rmsprop{'_centered' * group['centered']}{'_momentum' * (group['momentum'] > 0)}_"
        run_update(
            record, lists, found, group["differentiable"], lr=group["lr"], alpha=group["alpha"], eps=group["eps"],
            weight_decay=group["weight_decay"], momentum=group["momentum"], maximize=group["maximize"],
        )  # fmt: skip
