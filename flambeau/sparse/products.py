"""Products with sparse matrices beyond `mm`: layers, sums of a vector and a product, and solutions of triangular systems."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.sparse.construction import is_sparse, sparse_coo_tensor, to_coo, to_dense
from flambeau.sparse.kernels import addmm, kernel, mm, mv, writes_out


@kernel("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, for a sparse weight and a dense input of any dimensions, or the other way round."""
    if is_sparse(weight) and not is_sparse(input):
        rows = input.reshape(-1, input.shape[-1])
        product = mm(weight, rows.t()).t().reshape(*input.shape[:-1], weight.shape[0])
    elif is_sparse(input) and not is_sparse(weight):
        product = mm(input, weight.t())
    else:
        raise RuntimeError("[linear] expected one of input and weight sparse, got both")
    return product if bias is None else product + bias


@kernel("addmv")
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = mv(mat, vec)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (self if beta == 1 else self * beta) + product


kernel("addmv.out")(writes_out(addmv))


@kernel("linalg_solve_triangular")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """The matrix is made dense: its factors would be."""
    return fl.linalg.solve_triangular(to_dense(A), to_dense(B), upper=upper, left=left, unitriangular=unitriangular)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """mat1 @ mat2 of a sparse and a dense matrix, with those rows that mat1 has."""
    matrix = to_coo(mat1).coalesce()
    rows, line = matrix.indices()[0].unique(return_inverse=True)
    product = fl._ops._sparse_mm(line, matrix.indices()[1], matrix.values(), mat2, rows.shape[0])
    return sparse_coo_tensor(rows.unsqueeze(0), product, (mat1.shape[0], mat2.shape[1]))


hsmm = hspmm


def smm(input: Tensor, mat: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, as a sparse matrix that holds every element."""
    return _all_elements(mm(input, mat))


def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) of a sparse matrix and the product of a sparse and a dense one, as a sparse one."""
    total = addmm(input, mat1, mat2, beta=beta, alpha=alpha) if is_sparse(mat2) else None
    if total is None:
        total = _all_elements(mm(mat1, mat2) * alpha) + to_coo(input) * beta
    return total if out is None else out.copy_(total)


saddmm = sspaddmm


def _all_elements(dense: Tensor) -> Tensor:
    rows, columns = dense.shape
    places = fl.ones(rows, columns, dtype=fl.bool, device=dense.device).nonzero().t()
    return sparse_coo_tensor(places, dense.reshape(-1), (rows, columns))


__all__ = ["hspmm", "smm", "sspaddmm"]
