"""Factorizations and triangular systems by products, reductions and pointwise operators, for devices without a library.

Matrices are the last two dimensions. Steps are Python loops over columns, or halves of halves, each on whole batches; pivots,
signs and what fails are LAPACK's.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl


def _numbers(n: int, like: Any) -> Any:
    return fl.arange(n, device=like.device)


def identity(n: int, like: Any) -> Any:
    """One for each matrix of a batch."""
    one = fl.eye(n, dtype=like.dtype, device=like.device)
    return one.expand(*like.shape[:-2], n, n)


def diagonal(a: Any) -> Any:
    return fl.diagonal(a, 0, -2, -1)


def first_failure(bad: Any) -> Any:
    """The number of the first column that is bad, counted from 1, or 0."""
    n = bad.shape[-1]
    if n == 0:
        return fl.zeros(bad.shape[:-1], dtype=fl.int32, device=bad.device)
    at = fl.where(bad, _numbers(n, bad) + 1, fl.full_like(bad, n + 1, dtype=fl.int64)).amin(-1)
    return fl.where(at > n, fl.zeros_like(at), at).to(fl.int32)


# ---------------------------------------------------------------- triangular systems


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """x with a @ x = b; only one triangle of a is read."""
    shape = fl.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return _solved(a.expand(*shape, *a.shape[-2:]), b.expand(*shape, *b.shape[-2:]), upper, unit)


def _solved(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    n = a.shape[-1]
    if n <= 1:
        return b.clone() if unit or n == 0 else b / a
    h = n // 2
    first, second = (a[..., :h, :h], b[..., :h, :]), (a[..., h:, h:], b[..., h:, :])
    if upper:
        low = _solved(*second, upper, unit)
        high = _solved(first[0], first[1] - a[..., :h, h:] @ low, upper, unit)
    else:
        high = _solved(*first, upper, unit)
        low = _solved(second[0], second[1] - a[..., h:, :h] @ high, upper, unit)
    return fl.cat([high, low], -2)


# ---------------------------------------------------------------- LU


def _size(x: Any) -> Any:
    """By which pivots are chosen."""
    return fl.real(x).abs() + fl.imag(x).abs() if x.is_complex() else x.abs()


def lu(a: Any, pivot: bool = True) -> tuple[Any, Any, Any]:
    """Both factors in one matrix, the rows exchanged with, counted from 1, and the first column without a pivot."""
    m, n = a.shape[-2:]
    rows, columns = _numbers(m, a), _numbers(n, a)
    pivots = []
    for j in range(min(m, n)):
        p = fl.full(a.shape[:-2], j, device=a.device)
        if pivot:
            p = _size(a[..., j:, j]).argmax(-1) + j
            at = p.unsqueeze(-1)
            order = fl.where(rows == j, at, fl.where(rows == at, fl.full_like(rows, j), rows))
            a = a.gather(-2, order.unsqueeze(-1).expand(a.shape))
        pivots.append(p + 1)
        column, top = a[..., j], a[..., j, j].unsqueeze(-1)
        factors = fl.where((rows > j) & (top != 0), column / top, column)
        a = fl.where(columns == j, factors.unsqueeze(-1), a)
        below = fl.where(rows > j, factors, fl.zeros_like(factors)).unsqueeze(-1)
        row = fl.where(columns > j, a[..., j, :], fl.zeros_like(a[..., j, :])).unsqueeze(-2)
        a = a - below * row
    kinds = {"dtype": fl.int32, "device": a.device}
    exchanged = fl.stack(pivots, -1).to(fl.int32) if pivots else fl.zeros(*a.shape[:-2], 0, **kinds)
    return a.clone(), exchanged, first_failure(diagonal(a) == 0)


def order_of(pivots: Any, n: int) -> Any:
    """The rows in their new order."""
    rows = _numbers(n, pivots)
    order = rows.expand(*pivots.shape[:-1], n)
    for j in range(pivots.shape[-1]):
        at = pivots[..., j].long().unsqueeze(-1) - 1
        there = order.gather(-1, at)
        here = order[..., j].unsqueeze(-1)
        order = fl.where(rows == j, there, fl.where(rows == at, here, order))
    return order


def lu_solve(factors: Any, pivots: Any, b: Any, adjoint: bool = False) -> Any:
    n = factors.shape[-1]
    order = order_of(pivots, n)
    shape = fl.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    b = b.expand(*shape, *b.shape[-2:])
    order = order.expand(*shape, n).unsqueeze(-1).expand(b.shape)
    if not adjoint:
        return solve_triangular(factors, solve_triangular(factors, b.gather(-2, order), False, True), True, False)
    flipped = factors.mH
    x = solve_triangular(flipped, solve_triangular(flipped, b, False, False), True, True)
    return fl.zeros_like(x).scatter(-2, order, x)


def sign_of(pivots: Any) -> Any:
    """Of the permutation."""
    moved = pivots != _numbers(pivots.shape[-1], pivots) + 1
    return 1 - 2 * (moved.sum(-1) % 2)


# ---------------------------------------------------------------- Cholesky


def _cholesky(a: Any, bad: list[Any]) -> Any:
    n = a.shape[-1]
    if n == 0:
        return a.clone()
    if n == 1:
        size = fl.real(a) if a.is_complex() else a
        bad.append(~(size > 0).reshape(a.shape[:-2]))
        return size.sqrt().to(a.dtype)
    h = n // 2
    first = _cholesky(a[..., :h, :h], bad)
    below = solve_triangular(first, a[..., h:, :h].mH, False, False).mH
    second = _cholesky(a[..., h:, h:] - below @ below.mH, bad)
    above = fl.zeros(*a.shape[:-2], h, n - h, dtype=a.dtype, device=a.device)
    return fl.cat([fl.cat([first, above], -1), fl.cat([below, second], -1)], -2)


def cholesky(a: Any, upper: bool) -> tuple[Any, Any]:
    bad: list[Any] = []
    factor = _cholesky(a.mH if upper else a, bad)
    flags = fl.stack(bad, -1) if bad else fl.zeros(*a.shape[:-2], 0, dtype=fl.bool, device=a.device)
    return (factor.mH.contiguous() if upper else factor), first_failure(flags)


def cholesky_solve(b: Any, factor: Any, upper: bool) -> Any:
    low = factor.mH if upper else factor
    return solve_triangular(low.mH, solve_triangular(low, b, False, False), True, False)


# ---------------------------------------------------------------- QR


def geqrf(a: Any) -> tuple[Any, Any]:
    """Householder vectors below R, and their factors."""
    m, n = a.shape[-2:]
    rows, columns = _numbers(m, a), _numbers(n, a)
    taus = []
    for j in range(min(m, n)):
        column = a[..., j]
        alpha = column[..., j].unsqueeze(-1)
        tail = fl.where(rows > j, column, fl.zeros_like(column))
        norm = fl.linalg.vector_norm(tail, 2, -1, keepdim=True)
        real = fl.real(alpha) if a.is_complex() else alpha
        whole = fl.sqrt(_squared(alpha) + norm * norm)
        beta = fl.where(real < 0, whole, -whole)
        done = (norm == 0) & ((fl.imag(alpha) == 0) if a.is_complex() else (norm == 0))
        beta = fl.where(done, fl.ones_like(beta), beta)  # divides
        tau = fl.where(done, fl.zeros_like(alpha), ((beta - alpha) / beta).to(a.dtype))
        divisor = fl.where(done, fl.ones_like(alpha), alpha - beta)
        v = fl.where(rows == j, fl.ones_like(column), tail / divisor).unsqueeze(-1)
        rest = fl.where(columns > j, a, fl.zeros_like(a))
        # Its adjoint is applied to the other columns.
        a = a - (tau.conj_physical() if a.is_complex() else tau).unsqueeze(-1) * (v @ (v.mH @ rest))
        new_column = fl.where(rows > j, v.squeeze(-1), column)
        new_column = fl.where(rows == j, fl.where(done, alpha, beta.to(a.dtype)), new_column)
        a = fl.where(columns == j, new_column.unsqueeze(-1), a)
        taus.append(tau.squeeze(-1))
    empty = fl.zeros(*a.shape[:-2], 0, dtype=a.dtype, device=a.device)
    return a.clone(), fl.stack(taus, -1) if taus else empty


def _squared(x: Any) -> Any:
    return fl.real(x) * fl.real(x) + fl.imag(x) * fl.imag(x) if x.is_complex() else x * x


def householder_product(vectors: Any, tau: Any, columns: int | None = None) -> Any:
    """The first columns of the product of the reflections."""
    m = vectors.shape[-2]
    rows = _numbers(m, vectors)
    q = identity(m, vectors)[..., : vectors.shape[-1] if columns is None else columns]
    for j in reversed(range(tau.shape[-1])):
        column = vectors[..., j]
        v = fl.where(rows > j, column, fl.zeros_like(column))
        v = fl.where(rows == j, fl.ones_like(v), v).unsqueeze(-1)
        q = q - tau[..., j, None, None] * (v @ (v.mH @ q))
    return q.clone() if tau.shape[-1] == 0 else q


def qr(a: Any, mode: str) -> tuple[Any, Any]:
    m, n = a.shape[-2:]
    vectors, tau = geqrf(a)
    size = m if mode == "complete" else min(m, n)
    r = fl.triu(vectors[..., :size, :])
    if mode == "r":
        return fl.empty(0, dtype=a.dtype, device=a.device), r
    return householder_product(vectors, tau, size), r
