"""Softmax over many classes of unequal frequency: frequent ones in a head, the others in clusters of smaller width."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.container import ModuleList, Sequential
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Softmax over many classes in clusters by frequency: rare classes are computed only where they are needed.

    - in_features: width of the input; n_classes: how many classes.
    - cutoffs: where the clusters begin, ascending; div_value: how much narrower each cluster's projection is.
    - head_bias: whether the first cluster has a bias; device, dtype.

    The input is (N, in_features), the target (N). Returns (output, loss).

    >>> m = nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6])
    >>> m(flambeau.zeros(2, 4), flambeau.tensor([0, 9])).output.shape
    torch.Size([2])
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("[AdaptiveLogSoftmaxWithLoss] expected at least one cutoff, got none")
        increasing = all(isinstance(c, int) for c in cutoffs) and cutoffs == sorted(set(cutoffs))
        if not increasing or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError(
                "[AdaptiveLogSoftmaxWithLoss] expected cutoffs to be increasing integers between 1 and "
                f"{n_classes - 1}, got {cutoffs}: cutoffs should be a sequence of unique, positive integers sorted in an "
                "increasing order, where each value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for cluster in range(self.n_clusters):
            width = int(in_features // (div_value ** (cluster + 1)))
            size = self.cutoffs[cluster + 1] - self.cutoffs[cluster]
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, device=device, dtype=dtype),
                    Linear(width, size, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for inner, outer in self.tail:
            inner.reset_parameters()
            outer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> Any:
        if target_.dim() not in (0, 1):
            raise RuntimeError(
                f"[AdaptiveLogSoftmaxWithLoss] expected a target of 0 or 1 dimensions, got {target_.dim()}"
            )
        if input_.dim() != target_.dim() + 1 or (target_.dim() and input_.size(0) != target_.size(0)):
            raise RuntimeError(
                "[AdaptiveLogSoftmaxWithLoss] expected a target for each sample, got an input of "
                f"{tuple(input_.shape)} and a target of {tuple(target_.shape)}"
            )
        single = target_.dim() == 0
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)

        assigned = 0
        output = input.new_zeros(target.size(0))
        in_head = target.new_empty(target.size(0))  # the row of the head: of the class, or of its cluster
        bounds = [0, *self.cutoffs]
        for place in range(len(bounds) - 1):
            low, high = bounds[place], bounds[place + 1]
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            if place == 0:
                in_head.index_copy_(0, rows, target[rows])
            else:
                cluster = self.tail[place - 1](input.index_select(0, rows))
                in_head.index_fill_(0, rows, self.cutoffs[0] + place - 1)
                within = F.log_softmax(cluster, dim=1).gather(1, (target[rows] - low).unsqueeze(1))
                output = output.index_copy(0, rows, within.squeeze(1).to(output.dtype))
            assigned += rows.numel()
        if assigned != target.size(0):
            raise RuntimeError(
                f"[AdaptiveLogSoftmaxWithLoss] expected targets in [0, {self.n_classes - 1}], got values from "
                f"{target.min().item()} to {target.max().item()}"
            )
        head = F.log_softmax(self.head(input), dim=1)
        output = output + head.gather(1, in_head.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        """Log-probabilities of all classes, from the head's output."""
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for place, cluster in enumerate(self.tail):
            within = F.log_softmax(cluster(input), dim=1)
            parts.append(within + head[:, self.shortlist_size + place].unsqueeze(1))
        return fl.cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each sample; clusters are looked into only where the head says so."""
        head = self.head(input)
        best = head.argmax(1)
        in_tail = best >= self.shortlist_size
        if not bool(in_tail.any()):
            return best
        if bool(in_tail.all()):
            return self._get_full_log_prob(input, head).argmax(1)
        full = self._get_full_log_prob(input[in_tail], head[in_tail])
        best[in_tail] = full.argmax(1)
        return best
