"""Definitions of linear systems and factorizations in terms of other operators."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition

definition.without(
    "a matrix factorization or its use, for which devices have a library",
    "_linalg_lu_factor_ex",
    "_linalg_solve_ex",
    "_linalg_inv_ex",
    "_linalg_det",
    "_linalg_slogdet",
    "_linalg_cholesky_ex",
    "_cholesky_inverse",
    "_linalg_ldl_factor_ex",
    "lu_unpack",
    "linalg_lu_solve",
    "linalg_ldl_solve",
    "cholesky_solve",
    "linalg_solve_triangular",
    "geqrf",
    "linalg_householder_product",
    "ormqr",
    "linalg_qr",
    "_linalg_svd",
    "_linalg_eigh",
    "_linalg_eig",
    "_linalg_lstsq",
    "_linalg_pinv",
)


def _coefficients(degree: int) -> list[float]:
    """Of the diagonal Padé approximant of the exponential."""
    coefficients = [1.0]
    for j in range(1, degree + 1):
        coefficients.append(coefficients[-1] * (degree - j + 1) / ((2 * degree - j + 1) * j))
    return coefficients


@definition("matrix_exp")
def matrix_exp(self: Any) -> Any:
    """A Padé approximant after scaling by a power of two, undone by squaring. Matrices of a batch are squared as often
    as the largest of them asks for; those that are done stay as they are."""
    if self.numel() == 0:
        return fl.empty_like(self, memory_format=fl.contiguous_format)
    if self.dtype in (fl.float16, fl.bfloat16):
        return matrix_exp(self.float()).to(self.dtype)
    single = self.dtype in (fl.float32, fl.complex64)
    degree, limit = (7, 3.9) if single else (13, 5.3)
    norm = self.abs().sum(-2).amax(-1)
    finite = norm.isfinite()
    squarings = fl.where(finite, (norm / limit).log2().ceil(), fl.zeros_like(norm)).clamp_min(0)
    x = self * fl.exp2(-squarings)[..., None, None].to(self.dtype)
    one = fl.eye(self.shape[-1], dtype=self.dtype, device=self.device).expand_as(self)
    square = x @ x
    c = _coefficients(degree)
    even, odd, power = c[0] * one + c[2] * square, c[1] * one + c[3] * square, square
    for j in range(4, degree + 1, 2):
        power = power @ square
        even, odd = even + c[j] * power, odd + c[j + 1] * power
    odd = x @ odd
    result = fl.linalg.solve_ex(even - odd, even + odd)[0]
    for done in range(int(squarings.max().item())):
        result = fl.where((squarings > done)[..., None, None], result @ result, result)
    return fl.where(finite[..., None, None], result, fl.full_like(result, float("nan")))
