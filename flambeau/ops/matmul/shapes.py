"""Shape rules of matrix products."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Ints, broadcast, equal_sizes, fits
from flambeau.ops.rules import shape


@shape("mm")
def mm(self: Geometry, mat2: Geometry) -> Ints:
    equal_sizes(self.sizes[1], mat2.sizes[0], "mm")
    return self.sizes[0], mat2.sizes[1]


@shape("_int_mm", "_scaled_mm")
def scaled_mm(self: Geometry, mat2: Geometry) -> Ints:
    return mm(self, mat2)


@shape("bmm")
def bmm(self: Geometry, mat2: Geometry) -> Ints:
    equal_sizes(self.sizes[2], mat2.sizes[1], "bmm")
    return equal_sizes(self.sizes[0], mat2.sizes[0], "bmm"), self.sizes[1], mat2.sizes[2]


@shape("mv")
def mv(self: Geometry, vec: Geometry) -> Ints:
    equal_sizes(self.sizes[1], vec.sizes[0], "mv")
    return self.sizes[:1]


@shape("dot")
def dot(self: Geometry, tensor: Geometry) -> Ints:
    equal_sizes(self.sizes[0], tensor.sizes[0], "dot")
    return ()


@shape("matmul")
def matmul(self: Geometry, other: Geometry) -> Ints:
    a, b = self.sizes, other.sizes
    equal_sizes(a[-1], b[-2] if len(b) > 1 else b[0], "matmul")
    batch = broadcast(a[:-2], b[:-2])
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


@shape("linear")
def linear(input: Geometry, weight: Geometry, bias: Geometry | None) -> Ints:
    equal_sizes(input.sizes[-1], weight.sizes[-1], "linear")
    if bias is not None and bias.sizes and weight.sizes[:-1]:
        fits(bias.sizes, weight.sizes[:-1], "linear")
    return (*input.sizes[:-1], *weight.sizes[:-1])


@shape("addmm")
def addmm(self: Geometry, mat1: Geometry, mat2: Geometry) -> Ints:
    result = mm(mat1, mat2)
    broadcast(self.sizes, result)
    return result


@shape("addmv")
def addmv(self: Geometry, mat: Geometry, vec: Geometry) -> Ints:
    result = mv(mat, vec)
    broadcast(self.sizes, result)
    return result


@shape("baddbmm")
def baddbmm(self: Geometry, batch1: Geometry, batch2: Geometry) -> Ints:
    result = bmm(batch1, batch2)
    broadcast(self.sizes, result)
    return result


@shape("addbmm")
def addbmm(self: Geometry, batch1: Geometry, batch2: Geometry) -> Ints:
    result = bmm(batch1, batch2)[1:]
    broadcast(self.sizes, result)
    return result


@shape("outer", "ger")
def outer(self: Geometry, vec2: Geometry) -> Ints:
    return self.sizes[0], vec2.sizes[0]


@shape("linalg_cross")
def cross(self: Geometry, other: Geometry) -> Ints:
    return broadcast(self.sizes, other.sizes)


@shape("_cdist")
def cdist(x1: Geometry, x2: Geometry) -> Ints:
    equal_sizes(x1.sizes[-1], x2.sizes[-1], "cdist")
    return (*broadcast(x1.sizes[:-2], x2.sizes[:-2]), x1.sizes[-2], x2.sizes[-2])
