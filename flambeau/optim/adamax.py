"""Adamax: Adam with the largest gradient in place of the root mean square."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import adamax
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, check_betas, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["Adamax", "adamax"]


class Adamax(ListOptimizer):
    """p <- p - lr * m / u, u the decaying maximum of the gradient's absolute value."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf", "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        return {"step": self._step_count(p, group), "exp_avg": zeros_like(p), "exp_inf": zeros_like(p)}

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        beta1, beta2 = group["betas"]
        run_update(
            "_update_adamax_", lists, found, group["differentiable"], lr=group["lr"], beta1=beta1, beta2=beta2,
            eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"],
        )  # fmt: skip
