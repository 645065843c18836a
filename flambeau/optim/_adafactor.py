"""Adafactor: Adam without momentum, whose second moments of a matrix are kept as a product of two vectors."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim._single import SingleOptimizer
from flambeau.optim.optimizer import ParamsT, _check_tensor_lr, _get_scalar_dtype

__all__ = ["Adafactor"]


class Adafactor(SingleOptimizer):
    """Adam that keeps rows and columns of the mean of squares only, for little memory.

    - params, lr, beta2_decay, eps, d: bound of a step, weight_decay, foreach, maximize.

    >>> w = nn.Parameter(flambeau.ones(2, 2))
    >>> w.sum().backward()
    >>> flambeau.optim.Adafactor([w]).step()
    >>> bool((w < 1).all())
    True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        _check_tensor_lr(lr)
        if not lr >= 0.0:
            raise ValueError(f"[Adafactor] expected lr >= 0, got {lr}")
        if beta2_decay > 0.0:
            raise ValueError(f"[Adafactor] expected beta2_decay <= 0, got {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"[Adafactor] expected eps[0] >= 0, got {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"[Adafactor] expected eps[1] >= 0, got {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"[Adafactor] expected d >= 1, got {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"[Adafactor] expected weight_decay >= 0, got {weight_decay}")
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _step_parameter(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if p.is_complex():
            raise RuntimeError(f"[Adafactor] expected real parameters, got {p.dtype}")
        if grad.is_sparse:
            raise RuntimeError("[Adafactor] expected dense gradients, got a sparse one")
        if not state:
            state["step"] = fl.tensor(0.0, dtype=_get_scalar_dtype())
            if grad.dim() > 1:
                state["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
                state["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
            else:
                state["variance"] = fl.zeros_like(grad, memory_format=fl.preserve_format)
        state["step"] += 1
        step, lr = state["step"].item(), float(group["lr"])
        eps1, eps2 = group["eps"]
        eps1 = fl.finfo(p.dtype).eps if eps1 is None else eps1
        grad = -grad if group["maximize"] else grad
        weight = step ** group["beta2_decay"]  # of the newest gradient in the moving averages
        size = max(eps2, p.norm(2).item() / p.numel() ** 0.5) * min(lr, 1 / step**0.5)
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            row, column = state["row_var"], state["col_var"]
            row.lerp_(fl.norm(grad, dim=-1, keepdim=True).square_().div_(grad.size(-1)), weight)
            column.lerp_(fl.norm(grad, dim=-2, keepdim=True).square_().div_(grad.size(-2)), weight)
            estimate = (row @ column).div_(row.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        else:
            estimate = state["variance"].lerp_(grad.square(), weight).clone()
        update = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        clip = max(1.0, update.norm(2).item() / (update.numel() ** 0.5 * group["d"]))
        p.add_(update, alpha=-size / clip)
