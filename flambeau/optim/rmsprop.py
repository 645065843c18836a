"""RMSprop: steps scaled by the running root mean square of the gradient."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import rmsprop
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ListOptimizer):
    """Steps divided by the root of the running mean of squared gradients.

    - params, lr, alpha: decay of the mean; eps, weight_decay, momentum; centered: use the variance; maximize, foreach, capturable, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.RMSprop([w], lr=0.01).step()
    >>> w.detach()
    tensor([0.9000])
    """

    _numbers = "lr alpha eps weight_decay momentum maximize"

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
        super().__init__(
            params, "lr eps momentum weight_decay alpha", lr=lr, momentum=momentum, alpha=alpha, eps=eps,
            centered=centered, weight_decay=weight_decay, capturable=capturable, foreach=foreach, maximize=maximize,
            differentiable=differentiable,
        )  # fmt: skip

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        centered = ("grad_avg",) if group["centered"] else ()
        momentum = ("momentum_buffer",) if group["momentum"] > 0 else ()
        return ("square_avg", *centered, *momentum, "step")

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state = super()._initial_state(group, p)
        if group["centered"]:
            state["grad_avg"] = state.pop("grad_avg")  # last, as in checkpoints of PyTorch
        return state

    def _record_of(self, group: dict[str, Any]) -> str:
        return f"_update_rmsprop{'_centered' * group['centered']}{'_momentum' * (group['momentum'] > 0)}_"
