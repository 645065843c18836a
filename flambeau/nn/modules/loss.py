"""Losses. Each is the function of `nn.functional` of the same meaning with its options kept as attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau import Tensor
from flambeau.nn import _reduction
from flambeau.nn import functional as F
from flambeau.nn.modules.distance import PairwiseDistance
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d",
    "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(Module):
    """A loss with a reduction: "none", "mean" or "sum"; two deprecated flags may name it instead."""

    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            reduction = _reduction.legacy_get_string(size_average, reduce)
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """A loss with a weight for each class or element."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.weight: Tensor | None


class L1Loss(_Loss):
    """Absolute difference of input and target.

    - reduction: "mean", "sum" or "none".

    >>> nn.L1Loss()(flambeau.tensor([1.0, 2.0]), flambeau.tensor([1.0, 4.0]))
    tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """Squared difference of input and target.

    - reduction: "mean", "sum" or "none".

    >>> nn.MSELoss()(flambeau.tensor([1.0, 2.0]), flambeau.tensor([1.0, 4.0]))
    tensor(2.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Squared difference below beta, absolute difference above.

    - reduction: "mean", "sum" or "none"; beta: where the two meet.

    >>> nn.SmoothL1Loss()(flambeau.tensor([3.0]), flambeau.tensor([0.0]))
    tensor(2.5000)
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Squared difference below delta, delta times the absolute difference above.

    - reduction: "mean", "sum" or "none"; delta: where the two meet.

    >>> nn.HuberLoss()(flambeau.tensor([3.0]), flambeau.tensor([0.0]))
    tensor(2.5000)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """Negative log likelihood, `-input[target]`, of logarithms of probabilities.

    - weight: factor of each class; ignore_index: targets that do not count; reduction.

    >>> nn.NLLLoss()(flambeau.tensor([[-0.5, -1.0]]), flambeau.tensor([1]))
    tensor(1.)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """NLLLoss under an older name, for images.

    - weight, ignore_index, reduction: as for NLLLoss.

    >>> nn.NLLLoss2d()(flambeau.zeros(1, 2, 1, 1), flambeau.zeros(1, 1, 1, dtype=flambeau.long))
    tensor(0.)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        import warnings

        warnings.warn("NLLLoss2d is deprecated; use NLLLoss", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of logits and classes, `-log(softmax(input)[target])`.

    - weight: factor of each class; ignore_index: targets that do not count.
    - reduction: "mean", "sum" or "none"; label_smoothing: share spread over all classes.

    The input is (N, C) or (N, C, d1, ...), the target class indices (N) or (N, d1, ...), or probabilities.

    >>> nn.CrossEntropyLoss()(flambeau.tensor([[2.0, 0.0]]), flambeau.tensor([0]))
    tensor(0.1269)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """A linear layer and the cross entropy of its result, without ever storing the logits.

    - in_features, num_classes: sizes of the layer; bias and the options of CrossEntropyLoss.

    >>> nn.LinearCrossEntropyLoss(4, 10)(flambeau.randn(2, 4), flambeau.tensor([1, 2])).shape
    torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options
        self.linear = Linear(in_features, num_classes * math.prod(out_features), bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        if self.out_features:
            weight = weight.view(self.num_classes, *self.out_features, self.linear.in_features)
            bias = None if bias is None else bias.view(self.num_classes, *self.out_features)
        return F.linear_cross_entropy(
            input,
            weight,
            target,
            linear_bias=bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class PoissonNLLLoss(_Loss):
    """Negative log likelihood of counts under a Poisson distribution.

    - log_input: the input is the logarithm of the rate; full: add Stirling's approximation; eps; reduction.

    >>> nn.PoissonNLLLoss()(flambeau.tensor([0.0]), flambeau.tensor([2.0]))
    tensor(1.)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(_Loss):
    """Negative log likelihood under a normal distribution.

    - full: add the constant; eps: smallest variance; reduction.

    >>> nn.GaussianNLLLoss()(flambeau.tensor([0.0]), flambeau.tensor([2.0]), flambeau.tensor([4.0]))
    tensor(1.1931)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of probabilities from logarithms of probabilities.

    - reduction: "batchmean" is the divergence by its definition; log_target: the target is a logarithm too.

    >>> nn.KLDivLoss(reduction="batchmean")(flambeau.tensor([[0.25, 0.75]]).log(), flambeau.tensor([[0.5, 0.5]]))
    tensor(0.1438)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class BCELoss(_WeightedLoss):
    """Cross entropy of probabilities and targets in [0, 1].

    - weight: factors of the elements; reduction.

    >>> nn.BCELoss()(flambeau.tensor([0.9, 0.2]), flambeau.tensor([1.0, 0.0]))
    tensor(0.1643)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Cross entropy of the sigmoid of the input and targets in [0, 1], without overflow.

    - weight: factors of the elements; pos_weight: factor of the positive part; reduction.

    >>> nn.BCEWithLogitsLoss()(flambeau.tensor([2.0, -1.0]), flambeau.tensor([1.0, 0.0]))
    tensor(0.2201)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)
        self.weight: Tensor | None
        self.pos_weight: Tensor | None

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class HingeEmbeddingLoss(_Loss):
    """Distance where the target is 1, `max(0, margin - distance)` where it is -1.

    - margin; reduction.

    >>> nn.HingeEmbeddingLoss()(flambeau.tensor([0.5]), flambeau.tensor([-1.0]))
    tensor(0.5000)
    """

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Hinge loss of several labels for each row.

    - reduction: "mean", "sum" or "none".

    >>> nn.MultiLabelMarginLoss()(flambeau.tensor([[0.1, 0.2, 0.9]]), flambeau.tensor([[2, -1, 0]]))
    tensor(0.1667)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """Logistic loss, `log(1 + exp(-target * input))`.

    - reduction: "mean", "sum" or "none".

    >>> nn.SoftMarginLoss()(flambeau.tensor([1.0]), flambeau.tensor([1.0]))
    tensor(0.3133)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Mean over classes of the binary cross entropy of logits.

    - weight: factor of each class; reduction.

    >>> nn.MultiLabelSoftMarginLoss()(flambeau.tensor([[1.0, -1.0]]), flambeau.tensor([[1.0, 0.0]]))
    tensor(0.3133)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """`1 - cos` where the target is 1, `max(0, cos - margin)` where it is -1.

    - margin; reduction.

    >>> nn.CosineEmbeddingLoss()(flambeau.tensor([[1.0, 0.0]]), flambeau.tensor([[0.0, 1.0]]), flambeau.tensor([1.0]))
    tensor(1.)
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """`max(0, -target * (input1 - input2) + margin)`.

    - margin; reduction.

    >>> nn.MarginRankingLoss()(flambeau.tensor([1.0]), flambeau.tensor([3.0]), flambeau.tensor([1.0]))
    tensor(2.)
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Hinge loss of several classes.

    - p: 1 or 2, the exponent; margin; weight: factor of each class; reduction.

    >>> nn.MultiMarginLoss()(flambeau.tensor([[0.1, 0.9]]), flambeau.tensor([1]))
    tensor(0.1000)
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(f"[MultiMarginLoss] expected p of 1 or 2, got {p}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"[MultiMarginLoss] expected a weight of 1 dimension, got {weight.dim()}")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class TripletMarginLoss(_Loss):
    """`max(0, d(anchor, positive) - d(anchor, negative) + margin)`.

    - margin; p, eps: of the distance; swap: take the nearer of anchor and positive to the negative; reduction.

    >>> nn.TripletMarginLoss()(flambeau.tensor([[0.0]]), flambeau.tensor([[1.0]]), flambeau.tensor([[1.5]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"[TripletMarginLoss] expected margin > 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of one's own.

    - distance_function: of two tensors; margin; swap; reduction.

    >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs())
    >>> loss(flambeau.zeros(1, 1), flambeau.ones(1, 1), flambeau.ones(1, 1) * 1.5)
    tensor(0.5000)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(f"[TripletMarginWithDistanceLoss] expected margin > 0, got {margin}")
        self.distance_function = distance_function if distance_function is not None else PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """Connectionist temporal classification: negative log likelihood of label sequences, summed over alignments.

    - blank: index of the blank label; reduction; zero_infinity: 0 in place of infinite losses.

    Takes log_probs (T, N, C), targets, input_lengths and target_lengths.

    >>> log_probs = flambeau.zeros(3, 1, 2).log_softmax(2)
    >>> nn.CTCLoss()(log_probs, flambeau.tensor([[1]]), flambeau.tensor([3]), flambeau.tensor([1]))
    tensor(0.2877)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
