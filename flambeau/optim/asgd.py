"""Averaged stochastic gradient descent."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.optim._functional import asgd
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["ASGD", "asgd"]


class ASGD(ListOptimizer):
    """Gradient descent that keeps the average of the parameters.

    - params, lr, lambd, alpha, t0: when averaging begins; weight_decay, maximize, foreach, capturable, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.ASGD([w], lr=0.1).step()
    >>> bool(w < 1)
    True
    """

    _record, _state = "_update_asgd_", ("ax", "step", "eta", "mu")
    _numbers = "lr lambd alpha t0 weight_decay maximize"

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
        super().__init__(
            params, "lr weight_decay", lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay,
            foreach=foreach, maximize=maximize, differentiable=differentiable, capturable=capturable,
        )  # fmt: skip
