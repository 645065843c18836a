"""Shape rules of Fourier transforms."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Int, Ints, dimension
from flambeau.ops.rules import shape


@shape("_fft_c2c")
def fft_c2c(self: Geometry) -> Ints:
    return self.sizes


@shape("_fft_r2c")
def fft_r2c(self: Geometry, dim: Ints, onesided: bool) -> Ints:
    d = dimension(dim[-1], len(self.sizes))
    return tuple(s // 2 + 1 if i == d and onesided else s for i, s in enumerate(self.sizes))


@shape("_fft_c2r")
def fft_c2r(self: Geometry, dim: Ints, last_size: Int) -> Ints:
    d = dimension(dim[-1], len(self.sizes))
    return tuple(last_size if i == d else s for i, s in enumerate(self.sizes))


@shape("_overlap_add")
def overlap_add(self: Geometry, hop: Int) -> Ints:
    batch, count, width = self.sizes
    return batch, (count - 1) * hop + width
