"""Batching rules of linear systems and factorizations."""

from __future__ import annotations

from typing import Any

from flambeau.ops.batching import Held, along, check_matrix, on_matrices, rank_of, with_batch
from flambeau.ops.rules import batching

batching(
    *(
        "_linalg_inv_ex _linalg_det _linalg_slogdet _linalg_cholesky_ex _linalg_svd _linalg_eigh "
        "_linalg_eig linalg_qr matrix_exp _linalg_lu_factor_ex _cholesky_inverse"
    ).split()
)(on_matrices)
batching("linalg_vector_norm")(along)


@batching("_linalg_solve_ex")
def solve(mode: Any, func: Any, A: Any, B: Any, left: bool) -> Any:
    check_matrix(func, A)
    rank = max(rank_of(A), rank_of(B))
    return func(Held(with_batch(mode, A)).padded(rank), Held(with_batch(mode, B)).padded(rank), left)


@batching("linalg_solve_triangular")
def solve_triangular(mode: Any, func: Any, A: Any, B: Any, **kwargs: Any) -> Any:
    check_matrix(func, A)
    check_matrix(func, B)
    rank = max(rank_of(A), rank_of(B))
    return func(Held(with_batch(mode, A)).padded(rank), Held(with_batch(mode, B)).padded(rank), **kwargs)
