"""Dropping whole branches or blocks of a feature map in training."""

from __future__ import annotations

import flambeau
from flambeau import nn


def stochastic_depth(input: flambeau.Tensor, p: float, mode: str, training: bool = True) -> flambeau.Tensor:
    """Zero the input with probability p, for each row or for the whole batch; what stays is scaled up."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"[stochastic_depth] expected a probability, got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"[stochastic_depth] expected the mode 'batch' or 'row', got {mode!r}")
    if not training or p == 0.0:
        return input
    keep = 1.0 - p
    size = [input.shape[0] if mode == "row" else 1] + [1] * (input.ndim - 1)
    noise = flambeau.empty(size, dtype=input.dtype, device=input.device).bernoulli_(keep)
    return input * (noise / keep if keep > 0.0 else noise)


class StochasticDepth(nn.Module):
    """`stochastic_depth` as a module."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: flambeau.Tensor) -> flambeau.Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, mode={self.mode})"


def drop_block2d(
    input: flambeau.Tensor, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06, training: bool = True
) -> flambeau.Tensor:
    """Zero square blocks of the feature maps; what stays is scaled up."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"[drop_block2d] expected a probability, got {p}")
    if not training or p == 0.0:
        return input
    n, c, h, w = input.shape
    block = min(block_size, h, w)
    rate = p * h * w / (block**2 * (h - block + 1) * (w - block + 1))
    noise = flambeau.empty(n, c, h - block + 1, w - block + 1, dtype=input.dtype, device=input.device).bernoulli_(rate)
    noise = nn.functional.pad(noise, [block // 2] * 4, value=0)
    noise = 1 - nn.functional.max_pool2d(noise, (block, block), (1, 1), block // 2)[:, :, :h, :w]
    return input * noise * (noise.numel() / (eps + noise.sum()))
