"""Adam: steps scaled by running moments of the gradient."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim._functional import adam
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr

__all__ = ["Adam", "adam"]


class Adam(ListOptimizer):
    """Steps by the running mean of gradients over the root of the running mean of their squares.

    - params, lr; betas: decay of the two means; eps: added to the root; weight_decay: added to the gradient.
    - amsgrad: keep the largest mean of squares; maximize, foreach, fused, capturable, differentiable.
    - decoupled_weight_decay: shrink parameters instead, as AdamW does.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> optimizer = flambeau.optim.Adam([w], lr=0.1)
    >>> (w * 3).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.9000])
    """

    _numbers = "lr betas eps weight_decay decoupled_weight_decay maximize"
    _constants = {"increment": 1.0}  # noqa: RUF012

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check_tensor_lr(lr, foreach, capturable)
        super().__init__(
            params, "lr eps weight_decay", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            maximize=maximize, foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=decoupled_weight_decay,
        )  # fmt: skip

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        largest = ("max_exp_avg_sq",) if group["amsgrad"] else ()
        return ("exp_avg", "exp_avg_sq", *largest, "step")

    def _record_of(self, group: dict[str, Any]) -> str:
        return "_update_adam_amsgrad_" if group["amsgrad"] else "_update_adam_"
