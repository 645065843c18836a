"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import asgd
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["ASGD", "asgd"]


class ASGD(ListOptimizer):
    """Gradient descent with a decaying rate, which keeps the average of the parameters after step t0 as `ax`."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr, weight_decay=weight_decay)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("ax", "step", "eta", "mu")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        return {
            "step": self._step_count(p, group), "eta": self._step_count(p, group, float(group["lr"])),
            "mu": self._step_count(p, group, 1.0), "ax": zeros_like(p),
        }  # fmt: skip

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        run_update(
            "_update_asgd_", lists, found, group["differentiable"], lr=group["lr"], lambd=group["lambd"],
            alpha=group["alpha"], t0=group["t0"], weight_decay=group["weight_decay"], maximize=group["maximize"],
        )  # fmt: skip
