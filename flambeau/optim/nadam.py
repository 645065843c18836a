"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.optim._functional import nadam
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["NAdam", "nadam"]


class NAdam(ListOptimizer):
    """Adam with Nesterov momentum.

    - params, lr, betas, eps, weight_decay, momentum_decay, decoupled_weight_decay, maximize, foreach, capturable, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.NAdam([w], lr=0.1).step()
    >>> bool(w < 1)
    True
    """

    _record, _state = "_update_nadam_", ("exp_avg", "exp_avg_sq", "step", "mu_product")
    _numbers = "lr betas eps weight_decay maximize decoupled_weight_decay momentum_decay"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params, "lr eps weight_decay momentum_decay", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
            momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay, maximize=maximize,
            foreach=foreach, capturable=capturable, differentiable=differentiable,
        )  # fmt: skip
