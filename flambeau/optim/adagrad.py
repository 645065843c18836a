"""Adagrad: steps scaled by the root of the sum of all squared gradients."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.optim._functional import adagrad
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["Adagrad", "adagrad"]


class Adagrad(ListOptimizer):
    """Steps divided by the root of the sum of all squared gradients.

    - params, lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize, foreach, fused, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.Adagrad([w], lr=0.1).step()
    >>> w.detach()
    tensor([0.9000])
    """

    _record, _state = "_update_adagrad_", ("sum", "step")
    _numbers, _constants = "lr lr_decay weight_decay eps maximize", {"increment": 1.0}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, "lr lr_decay weight_decay initial_accumulator_value eps", lr=lr, lr_decay=lr_decay, eps=eps,
            weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, foreach=foreach,
            maximize=maximize, differentiable=differentiable, fused=fused,
        )  # fmt: skip
        for group in self.param_groups:  # this optimizer has its state from the beginning
            for p in group["params"]:
                self.state[p].update(self._initial_state(group, p))

    def share_memory(self) -> None:
        """Move the state to shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()
