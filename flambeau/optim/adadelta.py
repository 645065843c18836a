"""Adadelta: steps in the units of the parameters, from the sizes of past steps."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.optim._functional import adadelta
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ListOptimizer):
    """Steps whose size follows from the running means of squared gradients and squared steps.

    - params, lr, rho: decay of the means; eps, weight_decay, maximize, foreach, capturable, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.Adadelta([w]).step()
    >>> bool(w < 1)
    True
    """

    _record, _state = "_update_adadelta_", ("square_avg", "acc_delta", "step")
    _numbers = "lr rho eps weight_decay maximize"

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
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"[Adadelta] expected rho in [0, 1], got {rho}: Invalid rho value: {rho}")
        super().__init__(
            params, "lr eps weight_decay", lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
            capturable=capturable, foreach=foreach, differentiable=differentiable,
        )  # fmt: skip
