"""Definitions of Fourier transforms in terms of other operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.backends import widest_float
from flambeau.ops.rules import definition


def _fourier(self: Any, dims: Sequence[int], forward: bool) -> Any:
    """Discrete Fourier transform as a product with the matrix of roots of unity."""
    for d in dims:
        n = self.shape[d]
        k = fl.arange(n, device=self.device)
        turns = fl.remainder(k.unsqueeze(1) * k, n).to(widest_float(self.device)) * (
            (-2 if forward else 2) * math.pi / max(n, 1)
        )
        roots = fl.complex(fl.cos(turns), fl.sin(turns)).to(self.dtype)
        self = fl.matmul(self.movedim(d, -1), roots).movedim(-1, d)
    return self


@definition("_fft_c2c")
def _fft_c2c(self: Any, dim: Sequence[int], scale: float, forward: bool) -> Any:
    return _fourier(self, dim, forward) * scale


@definition("_fft_r2c")
def _fft_r2c(self: Any, dim: Sequence[int], scale: float, forward: bool, onesided: bool) -> Any:
    wide = fl.complex128 if self.dtype is fl.float64 else fl.complex64
    full = _fourier(self.to(wide), dim, forward) * scale
    return full.narrow(dim[-1], 0, self.shape[dim[-1]] // 2 + 1) if onesided else full


@definition("_fft_c2r")
def _fft_c2r(self: Any, dim: Sequence[int], scale: float, forward: bool, last_size: int) -> Any:
    last = dim[-1]
    half = self.narrow(last, 0, last_size // 2 + 1)
    rest = last_size - half.shape[last]
    # The missing half of the spectrum is the conjugate of the other, backwards.
    mirror = fl.flip(half.narrow(last, 1, rest), [last]).conj_physical() if rest else half.narrow(last, 0, 0)
    others = _fourier(fl.cat([half, mirror], last), [last], forward) if len(dim) == 1 else None
    if others is None:
        spread = _fourier(half, dim[:-1], forward)
        flipped = _fourier(half.conj_physical(), dim[:-1], not forward).conj_physical()
        mirror = fl.flip(flipped.narrow(last, 1, rest), [last]).conj_physical() if rest else spread.narrow(last, 0, 0)
        others = _fourier(fl.cat([spread, mirror], last), [last], forward)
    return fl.real(others).clone() * scale


@definition("_overlap_add")
def _overlap_add(self: Any, hop: int) -> Any:
    batch, count, width = self.shape
    length = (count - 1) * hop + width if count else 0
    places = fl.arange(count, device=self.device).unsqueeze(1) * hop + fl.arange(width, device=self.device)
    out = fl.zeros(batch, length, dtype=self.dtype, device=self.device)
    return fl.index_add(out, 1, places.reshape(-1), self.reshape(batch, -1)) if out.numel() else out
