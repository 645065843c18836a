"""Definitions of losses in terms of other operators."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.loss.class_indices import cross_entropy_gradient, nll_loss_gradient
from flambeau.ops.rules import definition


@definition("_nll_loss_forward")
def _nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    dim = 0 if self.dim() == 1 else 1
    counted = target != ignore_index
    place = fl.where(counted, target, 0)
    picked = -fl.gather(self, dim, place.unsqueeze(dim)).squeeze(dim)
    share = fl.ones_like(picked) if weight is None else fl.gather(weight, 0, place.reshape(-1)).reshape(place.shape)
    share = fl.where(counted, share, 0)
    loss = fl.where(counted, picked * share, 0)
    total = fl.sum(share)
    if reduction == 0 and self.dim() > 1:
        return loss, total
    return (fl.sum(loss) / total if reduction == 1 else fl.sum(loss)), total


@definition("_cross_entropy_forward")
def _cross_entropy_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    dim = 0 if self.dim() == 1 else 1
    normalizer = fl.logsumexp(self, [dim], keepdim=True)
    loss, total = fl._ops._nll_loss_forward(self - normalizer, target, weight, reduction, ignore_index)
    return loss, total, normalizer.squeeze(dim)


definition("_nll_loss_backward")(nll_loss_gradient)
definition("_cross_entropy_backward")(cross_entropy_gradient)
