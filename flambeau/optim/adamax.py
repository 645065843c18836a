"""Adamax: Adam with the largest gradient in place of the root mean square."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.optim._functional import adamax
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["Adamax", "adamax"]


class Adamax(ListOptimizer):
    """Adam with the largest gradient in place of the mean of squares.

    - params, lr, betas, eps, weight_decay, maximize, foreach, capturable, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.Adamax([w], lr=0.1).step()
    >>> w.detach()
    tensor([0.9000])
    """

    _record, _state = "_update_adamax_", ("exp_avg", "exp_inf", "step")
    _numbers = "lr betas eps weight_decay maximize"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(
            params, "lr eps weight_decay", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach,
            maximize=maximize, differentiable=differentiable, capturable=capturable,
        )  # fmt: skip
