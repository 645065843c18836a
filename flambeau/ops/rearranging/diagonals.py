"""Writing to the diagonal."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite


@composite("fill_diagonal_(Tensor(!) self, Scalar fill_value, bool wrap=False) -> Tensor", function=False)
def fill_diagonal_(self: fl.Tensor, fill_value: float, wrap: bool = False) -> fl.Tensor:
    """Fills the main diagonal; with wrap a tall matrix gets further diagonals, each a row below the end of the last."""
    if self.dim() < 2:
        raise RuntimeError(f"[fill_diagonal_] expected at least 2 dimensions, got shape {tuple(self.shape)}")
    if self.dim() > 2 and len(set(self.shape)) != 1:
        raise RuntimeError(f"[fill_diagonal_] expected dimensions of one size, got shape {tuple(self.shape)}")
    size, stride = min(self.shape), sum(self.stride())
    fl.as_strided(self, (size,), (stride,)).fill_(fill_value)
    if wrap and self.dim() == 2:
        height, width = self.shape
        for row in range(width + 1, height, width + 1):
            start = self.storage_offset() + row * self.stride(0)
            fl.as_strided(self, (min(width, height - row),), (stride,), start).fill_(fill_value)
    return self
