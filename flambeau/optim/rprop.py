"""Resilient propagation: each element has a step size of its own, and only signs of gradients count."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.optim._functional import rprop
from flambeau.optim._lists import ListOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["Rprop", "rprop"]


class Rprop(ListOptimizer):
    """Steps that grow while the sign of the gradient stays, and shrink when it turns.

    - params, lr: first step; etas: factors for shrinking and growing; step_sizes: bounds; maximize, foreach, capturable, differentiable.

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> flambeau.optim.Rprop([w], lr=0.1).step()
    >>> w.detach()
    tensor([0.9000])
    """

    _record, _state = "_update_rprop_", ("prev", "step_size", "step")
    _numbers = "etas step_sizes maximize"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(
                f"[Rprop] expected etas with 0 < etas[0] < 1 < etas[1], got {etas[0]} and {etas[1]}: Invalid eta values: {etas[0]}, "
                f"{etas[1]}"
            )
        super().__init__(
            params, "lr", lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip
