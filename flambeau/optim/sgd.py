"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim._functional import sgd
from flambeau.optim._lists import _MISSING, ListOptimizer, run_update
from flambeau.optim.optimizer import ParamsT

__all__ = ["SGD", "sgd"]


class SGD(ListOptimizer):
    """Gradient descent with momentum: `p -= lr * (momentum * buffer + gradient)`.

    - params: parameters, or groups of them as dicts; lr.
    - momentum, dampening, nesterov; weight_decay: added to the gradient; maximize.
    - foreach, fused, differentiable: how the step is run; one native call by default.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> optimizer = flambeau.optim.SGD([w], lr=0.1)
    >>> (w * 3).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7000])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                f"[SGD] expected momentum > 0 and dampening 0 for nesterov=True, got {momentum} and {dampening}"
            )
        super().__init__(
            params, "lr momentum weight_decay", lr=lr, momentum=momentum, dampening=dampening,
            weight_decay=weight_decay, nesterov=nesterov, maximize=maximize, foreach=foreach,
            differentiable=differentiable, fused=fused,
        )  # fmt: skip

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        return {}  # the first step makes the buffer: it is the gradient

    def _update(self, group: dict[str, Any], lists: list[list[Any]], flags: int) -> None:
        numbers = {key: group[key] for key in ("lr", "weight_decay", "maximize")}
        if group["momentum"] == 0:
            run_update("_update_sgd_", lists, flags, group["differentiable"], **numbers)
            return
        numbers |= {key: group[key] for key in ("momentum", "dampening", "nesterov")}
        if not flags & _MISSING:
            run_update("_update_sgd_momentum_", lists, flags, group["differentiable"], first=False, **numbers)
            return
        for first in (True, False):
            rows = [row for row in zip(*lists) if (row[2] is None) == first]
            if first:
                rows = [(p, g, fl.empty_like(p, memory_format=fl.preserve_format)) for p, g, _ in rows]
                for p, _, buffer in rows:
                    self.state[p]["momentum_buffer"] = buffer
            part = [list(column) for column in zip(*rows)] or [[], [], []]
            run_update("_update_sgd_momentum_", part, flags, group["differentiable"], first=first, **numbers)
