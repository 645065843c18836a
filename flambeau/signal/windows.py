"""Window functions of M samples; `sym=False` gives the periodic form, for spectral analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import flambeau as fl

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming",
    "hann", "kaiser", "nuttall",
]  # fmt: skip


def _checked(name: str, M: int, dtype: Any, layout: Any) -> Any:
    """The dtype of the window, when the common arguments are right."""
    dtype = fl.get_default_dtype() if dtype is None else dtype
    if M < 0:
        raise ValueError(f"[{name}] expected a length M that is not negative, got {M}")
    if layout is not fl.strided:
        raise ValueError(f"[{name}] expected a strided layout, got {layout}")
    if dtype not in (fl.float32, fl.float64):
        raise ValueError(f"[{name}] expected float32 or float64, got {dtype}")
    return dtype


def _options(dtype: Any, device: Any, requires_grad: bool) -> dict[str, Any]:
    return {"dtype": dtype, "device": device, "requires_grad": requires_grad}


def _span(start: float, end: float, M: int, options: dict[str, Any]) -> Any:
    return fl.linspace(start, end, M, **options)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None,
    layout: Any = fl.strided, device: Any = None, requires_grad: bool = False,
) -> Any:  # fmt: skip
    """exp(-|n - center| / tau)"""
    dtype = _checked("exponential", M, dtype, layout)
    if tau <= 0:
        raise ValueError(f"[exponential] expected a positive tau, got {tau}")
    if sym and center is not None:
        raise ValueError("[exponential] expected no center for a symmetric window, got one")
    options = _options(dtype, device, requires_grad)
    if M == 0:
        return fl.empty((0,), **options)
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2
    step = 1 / tau
    return fl.exp(-fl.abs(_span(-center * step, (-center + M - 1) * step, M, options)))


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = fl.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """sin(pi (n + 1/2) / M)"""
    dtype = _checked("cosine", M, dtype, layout)
    options = _options(dtype, device, requires_grad)
    if M == 0:
        return fl.empty((0,), **options)
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    return fl.sin(_span(0.5 * step, (0.5 + M - 1) * step, M, options))


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = fl.strided, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """exp(-(n / std)^2 / 2) about the middle"""
    dtype = _checked("gaussian", M, dtype, layout)
    if std <= 0:
        raise ValueError(f"[gaussian] expected a positive std, got {std}")
    options = _options(dtype, device, requires_grad)
    if M == 0:
        return fl.empty((0,), **options)
    start = -(M if not sym and M > 1 else M - 1) / 2
    step = 1 / (std * math.sqrt(2))
    k = _span(start * step, (start + M - 1) * step, M, options)
    return fl.exp(-(k * k))


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = fl.strided, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """I0(beta sqrt(1 - x^2)) / I0(beta) for x from -1 to 1"""
    dtype = _checked("kaiser", M, dtype, layout)
    if beta < 0:
        raise ValueError(f"[kaiser] expected a beta that is not negative, got {beta}")
    options = _options(dtype, device, requires_grad)
    if M == 0:
        return fl.empty((0,), **options)
    if M == 1:
        return fl.ones((1,), **options)
    step = 2.0 * beta / (M if not sym else M - 1)
    x = _span(-beta, min(beta, -beta + (M - 1) * step), M, options)
    scale = fl.scalar_tensor(beta, dtype=dtype, device=device)
    return fl.i0(fl.sqrt(fl.clamp_min(scale * scale - x * x, 0))) / fl.i0(scale)


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, layout: Any = fl.strided, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """sum_k (-1)^k a[k] cos(2 pi k n / M)"""
    dtype = _checked("general_cosine", M, dtype, layout)
    options = _options(dtype, device, requires_grad)
    if M == 0:
        return fl.empty((0,), **options)
    if M == 1:
        return fl.ones((1,), **options)
    if not isinstance(a, Iterable):
        raise TypeError(f"[general_cosine] expected coefficients in a sequence, got {type(a).__name__}")
    weights = list(a)
    if not weights:
        raise ValueError("[general_cosine] expected at least one coefficient, got none")
    step = 2 * math.pi / (M if not sym else M - 1)
    k = _span(0, (M - 1) * step, M, options)
    return sum((weight if i % 2 == 0 else -weight) * fl.cos(k * i) for i, weight in enumerate(weights))


# Sums of cosines take the options of `general_cosine`: sym, dtype, layout, device, requires_grad.


def general_hamming(M: int, *, alpha: float = 0.54, **options: Any) -> Any:
    """alpha - (1 - alpha) cos(2 pi n / M)"""
    return general_cosine(M, a=[alpha, 1.0 - alpha], **options)


def hamming(M: int, **options: Any) -> Any:
    """0.54 - 0.46 cos(2 pi n / M)"""
    return general_hamming(M, **options)


def hann(M: int, **options: Any) -> Any:
    """1/2 - 1/2 cos(2 pi n / M)"""
    return general_hamming(M, alpha=0.5, **options)


def blackman(M: int, **options: Any) -> Any:
    """A sum of three cosines."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], **options)


def nuttall(M: int, **options: Any) -> Any:
    """A sum of four cosines."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], **options)


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = fl.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """The triangle 1 - |2 n / M - 1|"""
    dtype = _checked("bartlett", M, dtype, layout)
    options = _options(dtype, device, requires_grad)
    if M == 0:
        return fl.empty((0,), **options)
    if M == 1:
        return fl.ones((1,), **options)
    step = 2 / (M if not sym else M - 1)
    return 1 - fl.abs(_span(-1, -1 + (M - 1) * step, M, options))
