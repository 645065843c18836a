"""Muon: momentum whose matrices are made orthogonal before each step."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.optim._single import SingleOptimizer
from flambeau.optim.optimizer import ParamsT

__all__ = ["Muon"]


def orthogonalized(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """About the nearest matrix with orthonormal rows or columns, by Newton-Schulz iterations in bfloat16."""
    if steps >= 100:
        raise ValueError(f"[Muon] expected ns_steps < 100, got {steps}")
    if matrix.dim() != 2:
        raise ValueError(f"[Muon] expected gradients of 2 dimensions, got shape {tuple(matrix.shape)}")
    if len(coefficients) != 3:
        raise ValueError(f"[Muon] expected 3 ns_coefficients, got {len(coefficients)}")
    a, b, c = coefficients
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.bfloat16()
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = fl.addmm(x, fl.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(SingleOptimizer):
    """Momentum whose matrices are made orthogonal before each step; for weights of two dimensions.

    - params, lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn.

    >>> w = nn.Parameter(flambeau.eye(2))
    >>> w.sum().backward()
    >>> flambeau.optim.Muon([w]).step()
    >>> w.shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(
                f"[optim] expected an lr of one element, got a Tensor of shape {tuple(lr.shape)}: Tensor lr must be 1-element"
            )
        if not lr >= 0.0:
            raise ValueError(f"[Muon] expected lr >= 0, got {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"[Muon] expected momentum >= 0, got {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"[Muon] expected weight_decay >= 0, got {weight_decay}")
        if adjust_lr_fn is not None and adjust_lr_fn not in ("original", "match_rms_adamw"):
            raise ValueError(f"[Muon] expected adjust_lr_fn 'original' or 'match_rms_adamw', got {adjust_lr_fn!r}")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"[Muon] expected parameters of 2 dimensions, got shape {tuple(p.shape)}")

    def _step_parameter(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if p.is_complex():
            raise RuntimeError(f"[Muon] expected real parameters, got {p.dtype}")
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = fl.zeros_like(grad, memory_format=fl.preserve_format)
        buffer = state["momentum_buffer"].lerp_(grad, 1 - group["momentum"])
        direction = grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
        update = orthogonalized(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(rows, columns))
        else:
            scale = math.sqrt(max(1, rows / columns))
        lr = float(group["lr"])
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(update, alpha=-lr * scale)
