"""Definitions of Fourier transforms in terms of other operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.backends import widest_float
from flambeau.ops.rules import definition

Pair = tuple[Any, Any]  # real and imaginary parts: devices need no arithmetic of complex numbers


def _parts(x: Any) -> Pair:
    real, imaginary = fl.view_as_real(x.resolve_conj().resolve_neg()).unbind(-1)
    return real, imaginary


def _joined(x: Pair) -> Any:
    return fl.view_as_complex(fl.stack(x, -1))


def _fourier(x: Pair, dims: Sequence[int], forward: bool) -> Pair:
    """Discrete Fourier transform as products with the matrix of roots of unity."""
    real, imaginary = x
    for d in dims:
        n = real.shape[d]
        k = fl.arange(n, device=real.device)
        turns = fl.remainder(k.unsqueeze(1) * k, n).to(widest_float(real.device)) * (
            (-2 if forward else 2) * math.pi / max(n, 1)
        )
        cosines, sines = fl.cos(turns).to(real.dtype), fl.sin(turns).to(real.dtype)
        a, b = real.movedim(d, -1), imaginary.movedim(d, -1)
        real = (fl.matmul(a, cosines) - fl.matmul(b, sines)).movedim(-1, d)
        imaginary = (fl.matmul(a, sines) + fl.matmul(b, cosines)).movedim(-1, d)
    return real, imaginary


def _narrowed(x: Pair, dim: int, start: int, length: int) -> Pair:
    return x[0].narrow(dim, start, length), x[1].narrow(dim, start, length)


@definition("_fft_c2c")
def _fft_c2c(self: Any, dim: Sequence[int], scale: float, forward: bool) -> Any:
    real, imaginary = _fourier(_parts(self), dim, forward)
    return _joined((real * scale, imaginary * scale))


@definition("_fft_r2c")
def _fft_r2c(self: Any, dim: Sequence[int], scale: float, forward: bool, onesided: bool) -> Any:
    wide = self if self.dtype is fl.float64 else self.float()
    real, imaginary = _fourier((wide, fl.zeros_like(wide)), dim, forward)
    if onesided:
        real, imaginary = _narrowed((real, imaginary), dim[-1], 0, self.shape[dim[-1]] // 2 + 1)
    return _joined((real * scale, imaginary * scale))


@definition("_fft_c2r")
def _fft_c2r(self: Any, dim: Sequence[int], scale: float, forward: bool, last_size: int) -> Any:
    last = dim[-1]
    half = _narrowed(_parts(self), last, 0, last_size // 2 + 1)
    rest = last_size - half[0].shape[last]
    spread = _fourier(half, dim[:-1], forward)
    # The missing half of the spectrum is the conjugate of the other, backwards.
    real, imaginary = _narrowed(half, last, 1, rest) if rest else _narrowed(half, last, 0, 0)
    real, imaginary = _fourier((real, -imaginary), dim[:-1], not forward)
    whole = fl.cat([spread[0], fl.flip(real, [last])], last), fl.cat([spread[1], fl.flip(imaginary, [last])], last)
    return _fourier(whole, [last], forward)[0] * scale


@definition("_overlap_add")
def _overlap_add(self: Any, hop: int) -> Any:
    batch, count, width = self.shape
    length = (count - 1) * hop + width if count else 0
    places = fl.arange(count, device=self.device).unsqueeze(1) * hop + fl.arange(width, device=self.device)
    out = fl.zeros(batch, length, dtype=self.dtype, device=self.device)
    return fl.index_add(out, 1, places.reshape(-1), self.reshape(batch, -1)) if out.numel() else out
