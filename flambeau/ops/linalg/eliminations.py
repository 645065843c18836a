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


# ---------------------------------------------------------------- singular values


def _rounds(n: int) -> list[tuple[list[int], list[int]]]:
    """Each pair of columns once, in rounds of pairs that have none in common."""
    players = list(range(n + n % 2))
    rounds = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        pairs = [(a, b) for a, b in zip(players[:half], reversed(players[half:])) if max(a, b) < n]
        rounds.append(([a for a, _ in pairs], [b for _, b in pairs]))
        players = [players[0], players[-1], *players[1:-1]]
    return rounds


def _rotation(first: Any, second: Any) -> tuple[Any, Any, Any, Any]:
    """Cosine, sine and phase that make columns orthogonal, and how far from it they are."""
    product = ((first.conj_physical() if first.is_complex() else first) * second).sum(-2, keepdim=True)
    a, b = _squared(first).sum(-2, keepdim=True), _squared(second).sum(-2, keepdim=True)
    size = product.abs()
    far = size > a.sqrt() * b.sqrt() * fl.finfo(a.dtype).eps
    some = fl.where(far, size, fl.ones_like(size))
    zeta = (b - a) / (2 * some)
    tangent = fl.where(zeta < 0, -fl.ones_like(zeta), fl.ones_like(zeta)) / (zeta.abs() + (1 + zeta * zeta).sqrt())
    tangent = fl.where(far, tangent, fl.zeros_like(tangent))
    cosine = (1 + tangent * tangent).rsqrt()
    phase = fl.where(far, product / some, fl.ones_like(product))
    return cosine, cosine * tangent, (phase.conj_physical() if phase.is_complex() else phase), far.any()


def _orthogonal_columns(a: Any) -> tuple[Any, Any]:
    """Jacobi's rotations until columns are orthogonal: a @ v, and v."""
    n = a.shape[-1]
    v = identity(n, a).clone()
    rounds = [tuple(fl.tensor(at, device=a.device) for at in pair) for pair in _rounds(n) if pair[0]]
    for _ in range(30):
        turned = []
        for p, q in rounds:
            first, second = a.index_select(-1, p), a.index_select(-1, q)
            cosine, sine, phase, far = _rotation(first, second)
            turned.append(far)
            second = second * phase
            a = a.index_copy(-1, p, cosine * first - sine * second).index_copy(-1, q, sine * first + cosine * second)
            first, second = v.index_select(-1, p), v.index_select(-1, q) * phase
            v = v.index_copy(-1, p, cosine * first - sine * second).index_copy(-1, q, sine * first + cosine * second)
        if not turned or not bool(fl.stack(turned).any()):
            break
    return a, v


def svd(a: Any, full: bool) -> tuple[Any, Any, Any]:
    """Left vectors, values from the largest on, and right vectors, adjoint."""
    m, n = a.shape[-2:]
    if m < n:
        left, values, right = svd(a.mH, full)
        return right.mH, values, left.mH
    scaled, v = _orthogonal_columns(a)
    values, order = _squared(scaled).sum(-2).sqrt().sort(-1, descending=True)
    scaled, v = (t.gather(-1, order.unsqueeze(-2).expand(t.shape)) for t in (scaled, v))
    # Q has the columns but for a factor of size 1, and others where values are zero.
    q, r = qr(scaled, "complete" if full else "reduced")
    factors = diagonal(r).sgn()
    factors = fl.where(factors == 0, fl.ones_like(factors), factors).unsqueeze(-2)
    q = fl.cat([q[..., :n] * factors, q[..., n:]], -1)
    return q, values, v.mH


def eigh(a: Any) -> tuple[Any, Any]:
    """Values from the least on, and vectors, of Hermitian matrices whose lower triangles are read. Moved by their size they have
    no negative values, so that those are singular values."""
    low = fl.tril(a, -1)
    middle = fl.real(diagonal(a)).to(a.dtype) if a.is_complex() else diagonal(a)
    whole = low + low.mH + fl.diag_embed(middle)
    size = _squared(whole).sum((-2, -1)).sqrt()
    shift = size[..., None, None].to(a.dtype) * identity(a.shape[-1], a)
    _, values, right = svd(whole + shift, False)
    return fl.flip(values - size.unsqueeze(-1), [-1]), fl.flip(right.mH, [-1])
