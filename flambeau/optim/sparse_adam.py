"""Adam for sparse gradients: only the rows that occur are updated, moments included."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim._lists import check_betas, zeros_like
from flambeau.optim._single import SingleOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["SparseAdam"]


class SparseAdam(SingleOptimizer):
    """Adam for sparse gradients: only rows with a gradient move.

    - params, lr, betas, eps, maximize.

    >>> table = nn.Embedding(3, 1, sparse=True)
    >>> table(flambeau.tensor([1])).sum().backward()
    >>> flambeau.optim.SparseAdam(list(table.parameters())).step()
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(
                f"[optim] expected an lr of one element, got a Tensor of shape {tuple(lr.shape)}: Tensor lr must be 1-element"
            )
        if not lr > 0.0:
            raise ValueError(f"[SparseAdam] expected lr > 0, got {lr}")
        if not eps > 0.0:
            raise ValueError(f"[SparseAdam] expected eps > 0, got {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [
            [i, k]
            for i, group in enumerate(self.param_groups)
            for k, p in enumerate(group["params"])
            if getattr(p, "is_sparse", False)
        ]
        if sparse:
            raise ValueError(
                f"[SparseAdam] expected dense parameters (only their gradients are sparse), got sparse ones at {sparse}"
            )

    def _step_parameter(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if not grad.is_sparse:
            raise RuntimeError("[SparseAdam] expected sparse gradients, got a dense one; use Adam for those")
        if not state:
            state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
        state["step"] += 1
        grad = grad.coalesce()
        at = tuple(grad._indices())
        values = -grad._values() if group["maximize"] else grad._values()
        if values.numel() == 0:
            return
        beta1, beta2 = group["betas"]
        mean = fl.lerp(state["exp_avg"][at], values, 1 - beta1)
        square = fl.lerp(state["exp_avg_sq"][at], values * values, 1 - beta2)
        state["exp_avg"][at], state["exp_avg_sq"][at] = mean, square
        size = float(group["lr"]) * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
        p[at] -= size * mean / (square.sqrt() + group["eps"])
