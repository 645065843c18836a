"""Adagrad: steps scaled by the root of the sum of all squared gradients."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim._functional import adagrad
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, run_update
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["Adagrad", "adagrad"]


class Adagrad(ListOptimizer):
    """p <- p - lr * gradient / (sqrt(sum) + eps)."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, eps=eps)  # fmt: skip
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        if fused:
            if differentiable:
                raise RuntimeError("[optim] expected fused without differentiable, got both")
            if foreach:
                raise RuntimeError("[optim] expected fused or foreach, got both")
            self._step_supports_amp_scaling = True
        for group in self.param_groups:  # this optimizer has its state from the beginning
            for p in group["params"]:
                self.state[p].update(self._initial_state(group, p))

    def share_memory(self) -> None:
        """Move the state to shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("sum", "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        start = group["initial_accumulator_value"]
        filled = fl.full_like(p, complex(start, start) if p.is_complex() else start, memory_format=fl.preserve_format)
        return {"step": self._step_count(p, group), "sum": filled.detach()}

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        run_update(
            "_update_adagrad_", lists, found, group["differentiable"], lr=group["lr"], lr_decay=group["lr_decay"],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"], increment=1.0,
        )  # fmt: skip
