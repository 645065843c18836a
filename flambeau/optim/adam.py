"""Adam: steps scaled by running moments of the gradient."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import adam
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, check_betas, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["Adam", "adam"]


class Adam(ListOptimizer):
    """p <- p - lr * m / (sqrt(v) + eps), m and v the bias-corrected moving averages of gradient and squared gradient."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check_tensor_lr(lr, foreach, capturable)
        check_at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        if fused:
            if differentiable:
                raise RuntimeError("[optim] expected fused without differentiable, got both")
            self._step_supports_amp_scaling = True
            if foreach:
                raise RuntimeError("[optim] expected fused or foreach, got both")

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        if group["amsgrad"]:
            return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")
        return ("exp_avg", "exp_avg_sq", "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state = {"step": self._step_count(p, group), "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        beta1, beta2 = group["betas"]
        run_update(
            "_update_adam_amsgrad_" if group["amsgrad"] else "_update_adam_", lists, found, group["differentiable"],
            lr=group["lr"], beta1=beta1, beta2=beta2, eps=group["eps"], weight_decay=group["weight_decay"],
            decoupled=group["decoupled_weight_decay"], maximize=group["maximize"], increment=1.0,
        )  # fmt: skip
