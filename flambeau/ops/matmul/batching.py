"""Batching rules of matrix products."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.ops.batching import Held, rank_of
from flambeau.ops.rules import batching


def product(a: Any, b: Any) -> Tensor:
    """matmul of arguments of which at least one is held."""
    ranks = rank_of(a), rank_of(b)
    if ranks[0] == 1:
        a = Held(a.value.unsqueeze(1)) if isinstance(a, Held) else a.unsqueeze(0)
    if ranks[1] == 1:
        b = Held(b.value.unsqueeze(-1)) if isinstance(b, Held) else b.unsqueeze(-1)
    rank = max(rank_of(a), rank_of(b))
    out = fl.matmul(*(x.padded(rank) if isinstance(x, Held) else x for x in (a, b)))
    if ranks[0] == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if ranks[1] == 1 else out


@batching("mm", "bmm", "mv", "dot", "matmul")
def matmul(mode: Any, func: Any, a: Any, b: Any) -> Any:
    return product(a, b)


def _sum_of(first: Any, second: Tensor, rank: int, beta: Any, alpha: Any) -> Tensor:
    start = first.padded(rank) if isinstance(first, Held) else first
    result: Tensor = second * alpha if beta == 0 else start * beta + second * alpha
    return result


@batching("addmm", "addmv", "baddbmm")
def addmm(mode: Any, func: Any, self: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not isinstance(a, Held) and not isinstance(b, Held):
        out = fl.matmul(a, b)
        return _sum_of(self, out, out.dim(), beta, alpha)
    out = product(a, b)
    return _sum_of(self, out, out.dim() - 1, beta, alpha)


@batching("linear")
def linear(mode: Any, func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, Held) and not isinstance(bias, Held):
        return func(input.value, weight, bias)
    if isinstance(weight, Held):
        turned: Any = Held(weight.value.transpose(-1, -2)) if weight.rank == 2 else weight
    else:
        turned = weight.t()
    out = (
        fl.matmul(input, turned)
        if not isinstance(input, Held) and not isinstance(turned, Held)
        else product(input, turned)
    )
    if bias is None:
        return out
    has_batch = isinstance(input, Held) or isinstance(turned, Held)
    rank = out.dim() - 1 if has_batch else out.dim()
    return out + (bias.padded(rank) if isinstance(bias, Held) else bias)
