"""Resilient propagation: each element has a step size of its own, and only signs of gradients count."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim._functional import rprop
from flambeau.optim._lists import ListOptimizer, check_at_least_zero, run_update, zeros_like
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["Rprop", "rprop"]


class Rprop(ListOptimizer):
    """Steps grow by etas[1] while the sign of the gradient stays and shrink by etas[0] when it changes."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        check_at_least_zero(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"[Rprop] expected etas with 0 < etas[0] < 1 < etas[1], got {etas[0]} and {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("prev", "step_size", "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        lr = float(group["lr"])
        size = fl.full_like(p, complex(lr, lr) if p.is_complex() else lr, memory_format=fl.preserve_format)
        return {"step": self._step_count(p, group), "prev": zeros_like(p), "step_size": size.detach()}

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        etaminus, etaplus = group["etas"]
        smallest, largest = group["step_sizes"]
        run_update(
            "_update_rprop_", lists, found, group["differentiable"], etaminus=etaminus, etaplus=etaplus,
            smallest=smallest, largest=largest, maximize=group["maximize"],
        )  # fmt: skip
