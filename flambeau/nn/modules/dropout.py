"""Dropout: zeroing elements, or whole channels, at random while training."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"[{type(self).__name__}] expected a probability between 0 and 1, got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Elements set to zero with probability p in training, the others times `1 / (1 - p)`.

    - p: the probability; inplace: overwrite the input.

    >>> nn.Dropout(0.5).eval()(flambeau.ones(2))
    tensor([1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Whole channels of (N, C, L) set to zero with probability p in training.

    - p: the probability; inplace: overwrite the input.

    >>> nn.Dropout1d().eval()(flambeau.ones(1, 2, 3)).shape
    torch.Size([1, 2, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Whole channels of (N, C, H, W) set to zero with probability p in training.

    - p: the probability; inplace: overwrite the input.

    >>> nn.Dropout2d().eval()(flambeau.ones(1, 2, 3, 3)).shape
    torch.Size([1, 2, 3, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Whole channels of (N, C, D, H, W) set to zero with probability p in training.

    - p: the probability; inplace: overwrite the input.

    >>> nn.Dropout3d().eval()(flambeau.ones(1, 2, 3, 3, 3)).shape
    torch.Size([1, 2, 3, 3, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of selu activations.

    - p: the probability; inplace: overwrite the input.

    >>> nn.AlphaDropout().eval()(flambeau.ones(2))
    tensor([1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    - p: the probability; inplace: overwrite the input.

    >>> nn.FeatureAlphaDropout().eval()(flambeau.ones(1, 2, 3)).shape
    torch.Size([1, 2, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
