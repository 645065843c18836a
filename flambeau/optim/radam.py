"""RAdam: Adam that trusts its second moment only once it has seen enough gradients."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import radam
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, check_betas, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["RAdam", "radam"]


class RAdam(ListOptimizer):
    """Adam with a rectified variance: plain momentum for the first steps."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        return {"step": self._step_count(p, group), "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        beta1, beta2 = group["betas"]
        run_update(
            "_update_radam_", lists, found, group["differentiable"], lr=group["lr"], beta1=beta1, beta2=beta2,
            eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"],
            decoupled=group["decoupled_weight_decay"],
        )  # fmt: skip
