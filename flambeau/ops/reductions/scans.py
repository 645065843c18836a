"""Scans along a dimension: running sums, products and extremes; differences and trapezoidal integrals."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import Scalar, autocast, composite, native, tag, vjp
from flambeau.ops.values import may_hold

native("cumsum(Tensor self, int dim, *, dtype? dtype=None) -> Tensor", inplace=True, out=True)
native("cumprod(Tensor self, int dim, *, dtype? dtype=None) -> Tensor", inplace=True, out=True)
native("logcumsumexp(Tensor self, int dim) -> Tensor", out=True)
native("cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)", out=True)
native("cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)", out=True)


@vjp("cumsum")
def cumsum_vjp(g: fl.Tensor, dim: int) -> fl.Tensor:
    return g.flip([dim]).cumsum(dim).flip([dim]) if g.dim() else g


@vjp("cumprod")
def cumprod_vjp(g: fl.Tensor, self: fl.Tensor, dim: int, out: fl.Tensor) -> fl.Tensor:
    if self.dim() == 0 or self.numel() == 0:
        return g
    if not may_hold(self == 0) and not fl.is_grad_enabled():
        product = g * out.conj()
        return product.flip([dim]).cumsum(dim).flip([dim]) / self.conj()
    # One slice at a time: the gradient of element k is the sum over i >= k of the products that leave k out.
    n = self.shape[dim]
    gradients = []
    for k in range(n):
        before = self.narrow(dim, 0, k).prod(dim, keepdim=True) if k else fl.ones_like(self.narrow(dim, 0, 1))
        after = fl.cat([fl.ones_like(before), self.narrow(dim, k + 1, n - k - 1)], dim).cumprod(dim)
        gradients.append((g.narrow(dim, k, n - k) * (before * after).conj()).sum(dim, keepdim=True))
    return fl.cat(gradients, dim)


@vjp("logcumsumexp")
def logcumsumexp_vjp(g: fl.Tensor, self: fl.Tensor, dim: int, out: fl.Tensor) -> fl.Tensor:
    if self.dim() == 0 or self.numel() == 0:
        return g

    def backwards(x: fl.Tensor) -> fl.Tensor:
        return x.flip([dim]).logcumsumexp(dim).flip([dim])

    if self.is_complex() or fl.is_grad_enabled():
        nothing = out == float("-inf")  # yet: the quotient is not defined
        ratio = (self - out).masked_fill(nothing, 0).exp().conj()
        return (_sums_after(g, out, dim) * ratio).masked_fill(nothing, float("nan"))
    low = float("-inf")
    positive = fl.where(g <= 0, fl.full_like(g, low), g.abs().masked_fill(g <= 0, 1).log())  # NaN stays
    negative = fl.where(g < 0, g.abs().masked_fill(g >= 0, 1).log(), fl.full_like(g, low))
    return (backwards(positive - out) + self).exp() - (backwards(negative - out) + self).exp()


def _sums_after(g: fl.Tensor, out: fl.Tensor, dim: int) -> fl.Tensor:
    """For each place the sum of g * exp(out of this place - out) from there on. Running sums do not decrease, so that no
    factor is more than 1; each step doubles how many places the sums reach."""
    n, reach = out.shape[dim], 1
    while reach < n:
        near, far = out.narrow(dim, 0, n - reach), out.narrow(dim, reach, n - reach)
        ratio = (near - far).masked_fill(near.isinf() & (near == far), 0).exp().conj()
        sums = g.narrow(dim, 0, n - reach) + ratio * g.narrow(dim, reach, n - reach)
        g, reach = fl.cat([sums, g.narrow(dim, n - reach, reach)], dim), 2 * reach
    return g


@vjp("cummax", "cummin")
def running_extreme_vjp(g0: fl.Tensor, self_sizes: fl.Size, dim: int, indices: fl.Tensor) -> fl.Tensor:
    if len(self_sizes) == 0:
        return g0
    return fl.zeros(self_sizes, dtype=g0.dtype, device=g0.device).scatter_add(dim, indices, g0)


@composite(out=True)
def diff(
    self: fl.Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: fl.Tensor | None = None,
    append: fl.Tensor | None = None,
) -> fl.Tensor:
    if self.dim() == 0:
        raise RuntimeError(
            "[diff] expected at least one dimension, got a 0-d tensor: diff expects input to be at least one-dimensional"
        )
    if n < 0:
        raise RuntimeError(f"[diff] expected an order of at least 0, got {n}")
    for extra in (prepend, append):
        if extra is not None and extra.dim() != self.dim():
            raise RuntimeError(
                f"[diff] expected prepend and append of {self.dim()} dimensions, got {extra.dim()}: diff expects prepend or "
                "append to be the same dimension as input"
            )
        if extra is not None and any(
            own != other for d, (own, other) in enumerate(zip(self.shape, extra.shape)) if d != dim % self.dim()
        ):
            raise RuntimeError(
                f"[diff] expected prepend and append like {tuple(self.shape)} except in dimension {dim}, got {tuple(extra.shape)}: "
                "diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension"
            )
    parts = [t for t in (prepend, self, append) if t is not None]
    x = fl.cat(parts, dim) if len(parts) > 1 else self
    size = x.size(dim)
    if n == 0:
        return fl.zeros_like(x) if size == 0 else x.clone()
    for _ in range(min(n, size)):
        length = x.size(dim) - 1
        after, before = x.narrow(dim, 1, length), x.narrow(dim, 0, length)
        x = fl.logical_xor(after, before) if x.dtype == fl.bool else after - before
    return x


def _halves(y: fl.Tensor, dim: int) -> tuple[fl.Tensor, fl.Tensor]:
    """All but the first and all but the last along dim."""
    length = y.size(dim) - 1
    return y.narrow(dim, 1, length), y.narrow(dim, 0, length)


def _steps(name: str, y: fl.Tensor, x: fl.Tensor, dim: int) -> fl.Tensor:
    """Distances between sample points, shaped to multiply the halves of y."""
    if x.dim() == 1:
        if x.size(0) != y.size(dim):
            raise RuntimeError(f"[{name}] expected as many sample points as values, got {x.size(0)} and {y.size(dim)}")
        after, before = _halves(x, 0)
        shape = [1] * y.dim()
        shape[dim] = after.size(0)
        return (after - before).reshape(shape)
    if x.dim() < y.dim():
        x = x.reshape([1] * (y.dim() - x.dim()) + list(x.shape))
    after, before = _halves(x, dim)
    return after - before


@composite("trapezoid.x")
@composite("trapz.x")
def trapezoid_x(y: fl.Tensor, x: fl.Tensor, *, dim: int = -1) -> fl.Tensor:
    if y.size(dim) == 0:
        return fl.sum(y, dim, dtype=y.dtype)
    after, before = _halves(y, dim)
    return ((after + before) * _steps("trapezoid", y, x, dim)).sum(dim) / 2.0


@composite("trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor")
@composite("trapz.dx")
def trapezoid_dx(y: fl.Tensor, *, dx: float = 1, dim: int = -1) -> fl.Tensor:
    if y.size(dim) == 0:
        return fl.sum(y, dim, dtype=y.dtype)
    ends = y.select(dim, 0) + y.select(dim, -1)
    return (y.sum(dim) - ends / 2.0) * dx


@composite("cumulative_trapezoid.x")
def cumulative_trapezoid_x(y: fl.Tensor, x: fl.Tensor, *, dim: int = -1) -> fl.Tensor:
    if y.size(dim) == 0:
        return y / 2.0
    after, before = _halves(y, dim)
    return fl.cumsum((after + before) * _steps("cumulative_trapezoid", y, x, dim), dim) / 2.0


@composite("cumulative_trapezoid.dx")
def cumulative_trapezoid_dx(y: fl.Tensor, *, dx: Scalar = 1, dim: int = -1) -> fl.Tensor:
    if y.size(dim) == 0:
        return y * (dx / 2.0)
    after, before = _halves(y, dim)
    return fl.cumsum(after + before, dim) * (dx / 2.0)


# ---------------------------------------------------------------- what passes know of these operators

tag("core recomputable", "cumsum")
autocast("float32", "cumprod cumsum", on="accelerator")
