"""RAdam: Adam that trusts its second moment only once it has seen enough gradients."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.optim._functional import radam
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["RAdam", "radam"]


class RAdam(ListOptimizer):
    """Adam that waits for the variance of its steps to settle.

    - params, lr, betas, eps, weight_decay, decoupled_weight_decay, maximize, foreach, capturable, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.RAdam([w], lr=0.1).step()
    >>> w.detach()
    tensor([0.9000])
    """

    _record, _state = "_update_radam_", ("exp_avg", "exp_avg_sq", "step")
    _numbers = "lr betas eps weight_decay maximize decoupled_weight_decay"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params, "lr eps weight_decay", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
            foreach=foreach, capturable=capturable, decoupled_weight_decay=decoupled_weight_decay,
            differentiable=differentiable,
        )  # fmt: skip
