"""Adam with weight decay apart from the gradient."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import adamw
from flambeau.optim.adam import Adam
from flambeau.optim.optimizer import ParamsT

__all__ = ["AdamW", "adamw"]


class AdamW(Adam):
    """Adam whose parameters shrink by `lr * weight_decay` before each step.

    - params, lr, betas, eps, weight_decay, amsgrad, maximize, foreach, fused, capturable, differentiable: as for Adam.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> optimizer = flambeau.optim.AdamW([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.8990])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
