"""Adadelta: steps in the units of the parameters, from the sizes of past steps."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import adadelta
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ListOptimizer):
    """p <- p - lr * d, where d is the gradient times the ratio of the root mean squares of past d and of gradients."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"[Adadelta] expected rho in [0, 1], got {rho}")
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("square_avg", "acc_delta", "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        return {"step": self._step_count(p, group), "square_avg": zeros_like(p), "acc_delta": zeros_like(p)}

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        run_update(
            "_update_adadelta_", lists, found, group["differentiable"], lr=group["lr"], rho=group["rho"],
            eps=group["eps"], weight_decay=group["weight_decay"], maximize=group["maximize"],
        )  # fmt: skip
