"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import nadam
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, check_betas, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["NAdam", "nadam"]


class NAdam(ListOptimizer):
    """Adam whose step looks one update of the first moment ahead."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        check_betas(betas)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "step", "mu_product")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        return {
            "step": self._step_count(p, group), "mu_product": self._step_count(p, group, 1.0),
            "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p),
        }  # fmt: skip

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        beta1, beta2 = group["betas"]
        run_update(
            "_update_nadam_", lists, found, group["differentiable"], lr=group["lr"], beta1=beta1, beta2=beta2,
            eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"],
            decoupled=group["decoupled_weight_decay"], momentum_decay=group["momentum_decay"],
        )  # fmt: skip
