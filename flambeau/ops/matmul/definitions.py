"""Definitions of matrix products in terms of other operators."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.ops import complex_pairs
from flambeau.ops.rules import aten_parts, definition

definition("mm")(complex_pairs.product("mm"))  # a primitive of real numbers
definition.without(
    "the compiler makes it of others for devices that have a kernel",
    "_product_pitched",
    "_product_widened",
    "_product_finished",
    "_product_packed",
)


@definition("bmm")
def bmm(self: Any, mat2: Any) -> Any:
    if self.shape[0] == 0:
        return fl.empty((0, self.shape[1], mat2.shape[2]), dtype=self.dtype, device=self.device)
    return fl.stack([fl.mm(a, b) for a, b in zip(self.unbind(0), mat2.unbind(0))])


@definition("_int_mm")
def int_mm(self: Any, mat2: Any) -> Any:
    return fl.mm(self.int(), mat2.int())


@definition("mv")
def mv(self: Any, vec: Any) -> Any:
    return fl.mm(self, vec.unsqueeze(1)).squeeze(1)


@definition("dot")
def dot(self: Any, tensor: Any) -> Any:
    return fl.sum(self * tensor, dtype=self.dtype)


@definition("matmul")
def matmul(self: Any, other: Any) -> Any:
    if self.dim() == 1 and other.dim() == 1:
        return fl.dot(self, other)
    a = self.unsqueeze(0) if self.dim() == 1 else self
    b = other.unsqueeze(1) if other.dim() == 1 else other
    if a.dim() == 2 and b.dim() == 2:
        out = fl.mm(a, b)
    else:
        batch = fl.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        count = math.prod(batch)  # not -1, which says nothing where another size is 0
        left = a.expand([*batch, *a.shape[-2:]]).reshape([count, *a.shape[-2:]])
        right = b.expand([*batch, *b.shape[-2:]]).reshape([count, *b.shape[-2:]])
        out = fl.bmm(left, right).reshape([*batch, a.shape[-2], b.shape[-1]])
    if self.dim() == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if other.dim() == 1 else out


@definition("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    out = fl.matmul(input, weight.t() if weight.dim() == 2 else weight)
    return out if bias is None else out + bias


def _scaled(product: Any, self: Any, beta: Any, alpha: Any) -> Any:
    if not (product.is_floating_point() or product.is_complex()):  # factors are converted to the dtype first
        alpha, beta = int(alpha), int(beta)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


definition("addmm")(lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.mm(a, b), self, beta, alpha))
definition("addmv")(lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.mv(a, b), self, beta, alpha))
definition("baddbmm")(lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.bmm(a, b), self, beta, alpha))
definition("addbmm")(
    lambda self, a, b, *, beta=1, alpha=1: _scaled(fl.sum(fl.bmm(a, b), 0, dtype=a.dtype), self, beta, alpha)
)


@definition("_cdist")
def _cdist(x1: Any, x2: Any, p: float, through_matmul: bool) -> Any:
    if not through_matmul:
        return fl.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, dim=-1)
    dtype = x1.dtype
    x1, x2 = (t if t.dtype is fl.float64 else t.to(fl.float32) for t in (x1, x2))
    squares = fl.sum(x1 * x1, -1, keepdim=True) + fl.sum(x2 * x2, -1).unsqueeze(-2)
    return fl.sqrt((squares - 2 * fl.matmul(x1, x2.transpose(-1, -2))).clamp(min=0)).to(dtype)


@definition("linalg_cross")
def linalg_cross(self: Any, other: Any, *, dim: int = -1) -> Any:
    self, other = fl.broadcast_tensors(self, other)
    a, b = self.unbind(dim), other.unbind(dim)
    return fl.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], dim)


@definition("_scaled_mm")
def scaled_mm(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    singles = scale_a.numel() == scale_b.numel() == 1
    left, right = (s.reshape(()) if singles else s for s in (scale_a, scale_b))
    out = fl.mm(self.to(fl.float32) * left, mat2.to(fl.float32) * right)
    if bias is not None:
        out = out + bias.to(fl.float32)
    result = out_dtype or self.dtype
    if scale_result is not None and result in (fl.float8_e4m3fn, fl.float8_e5m2):
        out = out * scale_result.reshape(())
    return out.to(result)


definition("outer", "ger")(lambda self, vec2: self.unsqueeze(1) * vec2)


# ---------------------------------------------------------------- as ATen has them


@aten_parts("matmul")
def matmul_as_aten(self: Any, other: Any) -> Any:
    a, b = self.dim(), other.dim()
    if not a or not b or self.dtype != other.dtype:
        return NotImplemented  # and let the operator say what is wrong
    if a == 1 and b == 1:
        return fl.dot(self, other)
    if a == 2 and b == 1:
        return fl.mv(self, other)
    if a == 1 and b == 2:
        return fl.mm(self.unsqueeze(0), other).squeeze(0)
    if a == 2 and b == 2:
        return fl.mm(self, other)
    if self.shape[-1] != other.shape[max(b - 2, 0)]:
        return NotImplemented
    if b <= 2:  # the dimensions in front are rows of one product
        rows = self.reshape(-1, self.shape[-1])
        product = fl.mv(rows, other) if b == 1 else fl.mm(rows, other)
        return product.view([*self.shape[:-1], *other.shape[1:]])
    if a == 1:
        return matmul_as_aten(self.unsqueeze(0), other).squeeze(-2)
    batch = fl.broadcast_shapes(self.shape[:-2], other.shape[:-2])
    (m, k), n = self.shape[-2:], other.shape[-1]
    many = math.prod(batch)
    left = self.expand([*batch, m, k]).reshape(many, m, k)
    right = other.expand([*batch, k, n]).reshape(many, k, n)
    return fl.bmm(left, right).view([*batch, m, n])


@aten_parts("linear")
def linear_as_aten(input: Any, weight: Any, bias: Any = None) -> Any:
    if weight.dim() != 2 or not input.dim() or input.dtype != weight.dtype or input.shape[-1] != weight.shape[1]:
        return NotImplemented
    flipped = weight.transpose(0, 1)
    if bias is None or input.dim() == 1 or bias.dim() != 1:
        product = matmul_as_aten(input, flipped)
        return product if bias is None else product + bias
    if input.dim() == 2:
        return fl.addmm(bias, input, flipped)
    rows = input.reshape(-1, input.shape[-1])
    return fl.addmm(bias, rows, flipped).view([*input.shape[:-1], weight.shape[0]])
