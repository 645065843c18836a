"""Whether two results agree, as tensors of PyTorch."""

from __future__ import annotations

import re
from typing import Any

import torch
from values import short

# Relative and absolute tolerances; other dtypes have to be equal.
TOLERANCES = {
    "complex32": (5e-3, 2e-3), "float16": (5e-3, 2e-3), "bfloat16": (2e-2, 2e-2), "float32": (1e-4, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1e-4, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip
# Rounding errors grow in these by the condition of their matrices or by cancellation.
AMPLIFIES = re.compile(
    r"linalg|cholesky|lu|pinv|matrix_exp|logdet|svd|qr|ormqr|triangular_solve|cdist|corrcoef|polygamma"
)
# Vectors that are unique up to a factor: their absolute values are compared.
UP_TO_A_FACTOR = re.compile(r"(linalg\.)?(svd|qr|eigh?|geqrf|householder_product)(\..*)?")
# Memory that nobody wrote, and draws that a fixed seed hides.
UNSPECIFIED = re.compile(r"(new_)?empty.*|resize_(as_)?|.*_lowrank|.*fractional_max_pool\dd")

# Which of several equal elements comes first is open: the indices, which are the last result, may differ.
OPEN_INDICES = re.compile(r"sort|argsort|topk|kthvalue|(nan)?median|mode")


class Different(Exception):
    """The library's result is not PyTorch's."""


def agree(name: str, results: list[Any], expected: list[Any], *, values: bool = True, slack: float = 1.0) -> None:
    """Raise `Different` unless two flat results agree in kinds, dtypes, shapes and, if asked, values."""
    if len(results) != len(expected):
        raise Different(f"{len(results)} results, expected {len(expected)}")
    slack *= 10 if AMPLIFIES.search(name) else 1
    for place, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if not isinstance(wanted, torch.Tensor):
            same = result == wanted or (result != result and wanted != wanted)
            if type(result) is not type(wanted) or (values and not same):
                raise Different(f"{result!r}, expected {wanted!r}"[:200])
            continue
        if not isinstance(result, torch.Tensor):
            raise Different(f"a {type(result).__name__}, expected a tensor")
        for what in ("dtype", "shape", "device"):
            if getattr(result, what) != getattr(wanted, what):
                raise Different(f"{what} {getattr(result, what)}, expected {getattr(wanted, what)}")
        if OPEN_INDICES.fullmatch(name) and place == len(expected) - 1:
            continue
        if values and wanted.numel() and wanted.device.type != "meta":
            if UP_TO_A_FACTOR.fullmatch(name) and wanted.dtype.is_floating_point | wanted.is_complex():
                result, wanted = result.abs(), wanted.abs()
            _values_agree(result, wanted, slack)


def _values_agree(result: torch.Tensor, wanted: torch.Tensor, slack: float) -> None:
    if short(wanted.dtype) not in TOLERANCES:
        if not torch.equal(result, wanted):
            raise Different(f"{int((result != wanted).sum())} of {wanted.numel()} values differ")
        return
    relative, absolute = TOLERANCES[short(wanted.dtype)]
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    result, wanted = result.to(wide), wanted.to(wide)
    finite = wanted.isfinite()
    size = float(wanted[finite].abs().mean().clamp(1, 100)) if finite.any() else 1.0
    close = torch.isclose(result, wanted, rtol=slack * relative, atol=slack * absolute * size, equal_nan=True)
    if wanted.is_complex():
        close |= ~finite & ~result.isfinite()
    if not close.all():
        place = tuple((~close).nonzero()[0].tolist())
        raise Different(
            f"{int((~close).sum())} of {wanted.numel()} values differ, at {place}: {result[place].item():.8g}, "
            f"expected {wanted[place].item():.8g}"
        )
