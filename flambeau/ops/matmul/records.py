"""Matrix products: native kernels over gemm for the products themselves, and the ops that are written in terms of them."""

from __future__ import annotations

import itertools
from typing import Any

import flambeau as fl
from flambeau.ops.record import Scalar, autocast, composite, native, tag, vjp

# ---------------------------------------------------------------- native products

native("mm(Tensor self, Tensor mat2) -> Tensor", out=True)
native("bmm(Tensor self, Tensor mat2) -> Tensor", out=True)
native("mv(Tensor self, Tensor vec) -> Tensor", out=True)
native("dot(Tensor self, Tensor tensor) -> Tensor", out=True)
native("matmul(Tensor self, Tensor other) -> Tensor", out=True)
native("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", module="nn.functional")
native("_product_pitched(Tensor self, Tensor mat2, Tensor? bias, int pitch) -> Tensor")
# Matrices of 16 bits multiplied into single precision, as their products are added up anyway.
native("_product_widened(Tensor self, Tensor mat2) -> Tensor")
# With what follows in evaluation, step by step (flambeau/_inductor/products.py); `packed` is mat2, rearranged before.
native(
    "_product_finished(Tensor self, Tensor mat2, Tensor? bias, Tensor? packed, Tensor? other, Tensor? another, int[] steps) "
    "-> Tensor"
)
native("_product_packed(Tensor self) -> Tensor")
# Of int8, with sums of int32.
native("_int_mm(Tensor self, Tensor mat2) -> Tensor", module="", method=False, out=True)
# Of 8-bit floats with scales.
native(
    "_scaled_mm(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? scale_result=None, "
    "dtype? out_dtype=None, bool use_fast_accum=False) -> Tensor",
    module="",
    method=False,
    out=True,
)
native(
    "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", inplace=True, out=True
)
native("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor", inplace=True, out=True)
native(
    "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    inplace=True,
    out=True,
)
native(
    "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    inplace=True,
    out=True,
)
native("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor", out=True)
native("outer(Tensor self, Tensor vec2) -> Tensor", out=True)
native("ger(Tensor self, Tensor vec2) -> Tensor", out=True)
native("_cdist(Tensor x1, Tensor x2, float p, bool through_matmul) -> Tensor")


def _adjoint(x: fl.Tensor) -> fl.Tensor:
    return x.mH


def _conj(x: complex) -> complex:
    return x.conjugate() if isinstance(x, complex) else x


def _scaled(x: fl.Tensor, factor: complex) -> fl.Tensor:
    return x if factor == 1 else x * _conj(factor)


@vjp("mm")
def mm_vjp(g: fl.Tensor, self: fl.Tensor, mat2: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return fl.mm(g, _adjoint(mat2)) if needs[0] else None, fl.mm(_adjoint(self), g) if needs[1] else None


@vjp("bmm")
def bmm_vjp(g: fl.Tensor, self: fl.Tensor, mat2: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return fl.bmm(g, _adjoint(mat2)) if needs[0] else None, fl.bmm(_adjoint(self), g) if needs[1] else None


@vjp("mv")
def mv_vjp(g: fl.Tensor, self: fl.Tensor, vec: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return fl.outer(g, vec.conj()) if needs[0] else None, fl.mv(_adjoint(self), g) if needs[1] else None


@vjp("dot")
def dot_vjp(g: fl.Tensor, self: fl.Tensor, tensor: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return g * tensor.conj() if needs[0] else None, g * self.conj() if needs[1] else None


@vjp("matmul")
def matmul_vjp(g: fl.Tensor, self: fl.Tensor, other: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    a = self.unsqueeze(0) if self.dim() == 1 else self
    b = other.unsqueeze(-1) if other.dim() == 1 else other
    if other.dim() == 1:
        g = g.unsqueeze(-1)
    if self.dim() == 1:
        g = g.unsqueeze(-2)
    left = right = None
    if needs[0]:
        left = fl.matmul(g, _adjoint(b)).sum_to_size(a.shape).reshape(self.shape)
    if needs[1]:
        if b.dim() == 2 and a.dim() > 2:  # one product over all rows
            right = fl.mm(_adjoint(a.flatten(0, -2)), g.flatten(0, -2))
        else:
            right = fl.matmul(_adjoint(a), g).sum_to_size(b.shape)
        right = right.reshape(other.shape)
    return left, right


def _rows(x: fl.Tensor) -> fl.Tensor:
    return x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)


@vjp("linear")
def linear_vjp(g: fl.Tensor, input: fl.Tensor, weight: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    vector = weight.dim() == 1
    w = weight.unsqueeze(0) if vector else weight
    rows = g.unsqueeze(-1) if vector else g
    flat = _rows(rows)
    grad_input = fl.matmul(rows, w.conj()) if needs[0] else None
    grad_weight = fl.mm(flat.t(), _rows(input).conj()).reshape(weight.shape) if needs[1] else None
    return grad_input, grad_weight, (g.sum() if vector else flat.sum(0)) if needs[2] else None


@vjp("addmm")
def addmm_vjp(
    g: fl.Tensor, self_sizes: fl.Size, mat1: fl.Tensor, mat2: fl.Tensor, beta: Any, alpha: Any, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    scaled = _scaled(g, alpha)
    return (
        _scaled(g, beta).sum_to_size(self_sizes) if needs[0] else None,
        fl.mm(scaled, _adjoint(mat2)) if needs[1] else None,
        fl.mm(_adjoint(mat1), scaled) if needs[2] else None,
    )


@vjp("addmv")
def addmv_vjp(
    g: fl.Tensor, self_sizes: fl.Size, mat: fl.Tensor, vec: fl.Tensor, beta: Any, alpha: Any, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    scaled = _scaled(g, alpha)
    return (
        _scaled(g, beta).sum_to_size(self_sizes) if needs[0] else None,
        fl.outer(scaled, vec.conj()) if needs[1] else None,
        fl.mv(_adjoint(mat), scaled) if needs[2] else None,
    )


@vjp("addbmm")
def addbmm_vjp(
    g: fl.Tensor, self_sizes: fl.Size, batch1: fl.Tensor, batch2: fl.Tensor, beta: Any, alpha: Any, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    scaled = _scaled(g, alpha).unsqueeze(0).expand(batch1.size(0), -1, -1)
    return (
        _scaled(g, beta).sum_to_size(self_sizes) if needs[0] else None,
        fl.bmm(scaled, _adjoint(batch2)) if needs[1] else None,
        fl.bmm(_adjoint(batch1), scaled) if needs[2] else None,
    )


@vjp("baddbmm")
def baddbmm_vjp(
    g: fl.Tensor, self_sizes: fl.Size, batch1: fl.Tensor, batch2: fl.Tensor, beta: Any, alpha: Any, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    scaled = _scaled(g, alpha)
    return (
        _scaled(g, beta).sum_to_size(self_sizes) if needs[0] else None,
        fl.bmm(scaled, _adjoint(batch2)) if needs[1] else None,
        fl.bmm(_adjoint(batch1), scaled) if needs[2] else None,
    )


@vjp("linalg_cross")
def cross_vjp(
    g: fl.Tensor, self: fl.Tensor, other: fl.Tensor, dim: int, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    return (
        fl.linalg.cross(other.conj(), g, dim=dim).sum_to_size(self.shape) if needs[0] else None,
        fl.linalg.cross(g, self.conj(), dim=dim).sum_to_size(other.shape) if needs[1] else None,
    )


@vjp("_cdist")
def cdist_vjp(
    g: fl.Tensor, x1: fl.Tensor, x2: fl.Tensor, p: float, through_matmul: bool, out: fl.Tensor, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    g = g.masked_fill(out.detach() == 0, 0)  # no gradient where points coincide, not even an infinite one
    distances: fl.Tensor | None = out
    if fl.is_grad_enabled():
        distances = None  # its own history would come back here without end; they are taken from the points again
    elif through_matmul:
        weight = (g / out).masked_fill(out == 0, 0)
        return (
            (weight.sum(-1, keepdim=True) * x1 - weight @ x2).sum_to_size(x1.shape) if needs[0] else None,
            (weight.sum(-2).unsqueeze(-1) * x2 - weight.mT @ x1).sum_to_size(x2.shape) if needs[1] else None,
        )
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    derivative = _norm_derivative(difference, p, None if distances is None else distances.unsqueeze(-1))
    full = g.unsqueeze(-1) * derivative
    return (
        full.sum(-2).sum_to_size(x1.shape) if needs[0] else None,
        -full.sum(-3).sum_to_size(x2.shape) if needs[1] else None,
    )


def _norm_derivative(x: fl.Tensor, p: float, norm: fl.Tensor | None) -> fl.Tensor:
    """The derivative of the p-norm over the last dimension; zero where the norm is zero."""
    if p == 0:
        return fl.zeros_like(x)
    if p == 1:
        return x.sign()
    if norm is None:
        if p == float("inf"):
            power = x.abs().amax(-1, keepdim=True)
        else:
            power = x.abs().masked_fill(x == 0, 1).pow(p).masked_fill(x == 0, 0).sum(-1, keepdim=True)
        zero = power == 0
        norm = power if p == float("inf") else power.masked_fill(zero, 1).pow(1 / p).masked_fill(zero, 0)
    zero = norm == 0
    safe = norm.masked_fill(zero, 1)
    if p == float("inf"):
        hit = x.abs() == norm
        return (x.sign() * hit / hit.sum(-1, keepdim=True)).masked_fill(zero, 0)
    if p == 2:
        return (x / safe).masked_fill(zero, 0)
    ratio = x.abs() / safe
    flat = ratio == 0  # a power below one has no derivative there
    return (x.sign() * ratio.masked_fill(flat, 1).pow(p - 1).masked_fill(flat, 0)).masked_fill(zero, 0)


@composite(out=True)
def linalg_matmul(self: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
    return fl.matmul(self, other)


@composite("__rmatmul__", module="", function=False)
def reflected_matmul(self: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
    return fl.matmul(other, self)


# ---------------------------------------------------------------- vectors


@composite(out=True)
def vdot(self: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
    return fl.dot(fl.conj_physical(self) if self.is_complex() else self, other)


@composite(out=True)
def inner(self: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
    if self.dtype != other.dtype:
        raise RuntimeError(f"[inner] expected operands of one dtype, got {self.dtype} and {other.dtype}")
    if self.dim() == 0 or other.dim() == 0:
        return fl.mul(self, other)
    if self.size(-1) != other.size(-1):
        raise RuntimeError(
            f"[inner] expected last dimensions of one size, got {tuple(self.shape)} and {tuple(other.shape)}"
        )
    return fl.tensordot(self, other, dims=([-1], [-1]))


@composite(inplace=True, out=True)
def addr(self: fl.Tensor, vec1: fl.Tensor, vec2: fl.Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> fl.Tensor:
    _check_vectors("addr", vec1, vec2)
    shape = (vec1.size(0), vec2.size(0))
    dtype = fl.promote_types(self.dtype, fl.promote_types(vec1.dtype, vec2.dtype))
    for name, value in (("beta", beta), ("alpha", alpha)):
        if isinstance(value, (float, complex)) and not dtype.is_floating_point and not dtype.is_complex:
            raise RuntimeError(f"[addr] expected an integer for {name} with {dtype}, got {value}")
    if dtype == fl.bool:
        product = fl.logical_and(vec1.unsqueeze(1), vec2)
        if not alpha:
            product = fl.zeros_like(product)
        return fl.logical_or(self.expand(shape), product) if beta else product
    product = fl.mul(vec1.unsqueeze(1), vec2)
    if alpha != 1:
        product = fl.mul(product, alpha)
    if beta == 0:
        self.expand(shape)  # a shape that does not fit is an error all the same
        return product.to(dtype)
    return fl.add(self.expand(shape) if beta == 1 else fl.mul(self.expand(shape), beta), product)


def _check_vectors(op: str, *vectors: fl.Tensor) -> None:
    if any(v.dim() != 1 for v in vectors):
        raise RuntimeError(f"[{op}] expected vectors, got {' and '.join(str(tuple(v.shape)) for v in vectors)}")


@composite("linalg_vecdot", out=True)
def vecdot(x: fl.Tensor, y: fl.Tensor, *, dim: int = -1) -> fl.Tensor:
    if x.dtype != y.dtype:
        raise RuntimeError(f"[linalg.vecdot] expected operands of one dtype, got {x.dtype} and {y.dtype}")
    if x.is_complex():
        x = fl.conj_physical(x)
    return fl.sum(fl.mul(x, y), dim, dtype=x.dtype)


@composite(out=True)
def cross(self: fl.Tensor, other: fl.Tensor, dim: int | None = None) -> fl.Tensor:
    if dim is None:
        dim = next((d for d, n in enumerate(self.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"[cross] expected a dimension of size 3, got {tuple(self.shape)}")
    return fl.linalg.cross(self, other, dim=dim)


# ---------------------------------------------------------------- chains and powers


@composite("linalg_multi_dot", out=True)
def multi_dot(tensors: list[fl.Tensor]) -> fl.Tensor:
    """The product of matrices in the order that needs the fewest multiplications; vectors may stand at the ends."""
    count = len(tensors)
    if count < 2:
        raise RuntimeError(
            f"[linalg.multi_dot] expected at least two tensors, got {count}: multi_dot(): expected at least 2 tensors but got {count}"
        )
    for i, t in enumerate(tensors):
        allowed = (1, 2) if i in (0, count - 1) else (2,)
        if t.dim() not in allowed:
            raise RuntimeError(
                f"[linalg.multi_dot] expected matrices (or vectors at the ends), got shape {tuple(t.shape)}"
            )
        if t.dtype != tensors[0].dtype or t.device != tensors[0].device:
            raise RuntimeError("[linalg.multi_dot] expected tensors of one dtype on one device, got several")
    matrices = list(tensors)
    first, last = matrices[0].dim() == 1, matrices[-1].dim() == 1
    if first:
        matrices[0] = matrices[0].unsqueeze(0)
    if last:
        matrices[-1] = matrices[-1].unsqueeze(1)
    for left, right in itertools.pairwise(matrices):
        if left.size(1) != right.size(0):
            shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
            raise RuntimeError(f"[linalg.multi_dot] expected inner dimensions that match, got shapes {shapes}")
    product = _chain(matrices)
    if first:
        product = product.squeeze(0)
    return product.squeeze(-1) if last else product


def _chain(matrices: list[fl.Tensor]) -> fl.Tensor:
    """Dynamic programming over the places to split."""
    count = len(matrices)
    sizes = [m.size(0) for m in matrices] + [matrices[-1].size(1)]
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def build(i: int, j: int) -> fl.Tensor:
        return matrices[i] if i == j else fl.mm(build(i, split[i][j]), build(split[i][j] + 1, j))

    return build(0, count - 1)


@composite(out=True)
def chain_matmul(matrices: list[fl.Tensor]) -> fl.Tensor:
    if any(m.dim() != 2 for m in matrices):
        raise RuntimeError("[chain_matmul] expected matrices, got " + ", ".join(str(tuple(m.shape)) for m in matrices))
    if not matrices:
        raise RuntimeError("[chain_matmul] expected at least one matrix, got none")
    if len(matrices) == 1:
        return matrices[0]
    return fl.linalg.multi_dot(list(matrices))


@composite(out=True)
@composite("linalg_matrix_power", out=True)
def matrix_power(self: fl.Tensor, n: int) -> fl.Tensor:
    """Repeated squaring; negative powers go through the inverse."""
    if self.dim() < 2 or self.size(-1) != self.size(-2):
        raise RuntimeError(f"[linalg.matrix_power] expected square matrices, got {tuple(self.shape)}")
    if n == 0:
        return self.clone().copy_(fl.eye(self.size(-1), dtype=self.dtype, device=self.device))
    if n < 0:
        self, n = fl.linalg.inv(self), -n
    if n == 1:
        return self.clone()
    result = None
    square = self
    while True:
        if n & 1:
            result = square if result is None else fl.matmul(result, square)
        n >>= 1
        if n == 0:
            return result  # type: ignore[return-value]
        square = fl.matmul(square, square)


# ---------------------------------------------------------------- contractions


@composite(out=True)
def tensordot(a: fl.Tensor, b: fl.Tensor, dims: Any | None = None) -> fl.Tensor:
    if dims is None:
        dims = 2
    if isinstance(dims, fl.Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims.item())
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"[tensordot] expected a number of dimensions that is not negative, got {dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"[tensordot] expected at most {min(a.dim(), b.dim())} dimensions, got {dims}")
        dims_a, dims_b = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        dims_a, dims_b = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(dims_a) != len(dims_b):
        raise RuntimeError(f"[tensordot] expected as many dimensions of both operands, got {dims_a} and {dims_b}")
    if a.dtype != b.dtype:
        raise RuntimeError(f"[tensordot] expected operands of one dtype, got {a.dtype} and {b.dtype}")
    dims_a = [_wrap(d, a.dim()) for d in dims_a]
    dims_b = [_wrap(d, b.dim()) for d in dims_b]
    inner = 1
    for da, db in zip(dims_a, dims_b):
        size_a, size_b = a.size(da), b.size(db)
        # A dimension of size one broadcasts against the other operand's: its sum comes first.
        if size_a == 1 and size_b != 1:
            b = fl.sum(b, db, keepdim=True, dtype=b.dtype)
        elif size_b == 1 and size_a != 1:
            a = fl.sum(a, da, keepdim=True, dtype=a.dtype)
        elif size_a != size_b:
            raise RuntimeError(
                f"[tensordot] expected contracted dimensions of one size, got {tuple(a.shape)} over {dims_a} and "
                f"{tuple(b.shape)} over {dims_b}"
            )
        inner *= a.size(da)
    free_a = [d for d in range(a.dim()) if d not in dims_a]
    free_b = [d for d in range(b.dim()) if d not in dims_b]
    shape = [a.size(d) for d in free_a] + [b.size(d) for d in free_b]
    rows, cols = 1, 1
    for d in free_a:
        rows *= a.size(d)
    for d in free_b:
        cols *= b.size(d)
    left = a.permute(free_a + dims_a).reshape(rows, inner)
    right = b.permute(dims_b + free_b).reshape(inner, cols)
    return fl.mm(left, right).reshape(shape)


def _wrap(d: int, ndim: int) -> int:
    if not -ndim <= d < ndim:
        raise IndexError(
            f"[tensordot] expected a dimension in the range [{-ndim}, {ndim - 1}], got {d}: Dimension out of range"
        )
    return d % ndim


@composite(out=True)
def kron(self: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
    ndim = max(self.dim(), other.dim())
    left = [1] * (ndim - self.dim()) + list(self.shape)
    right = [1] * (ndim - other.dim()) + list(other.shape)
    a = self.reshape([n for size in left for n in (size, 1)])
    b = other.reshape([n for size in right for n in (1, size)])
    return fl.mul(a, b).reshape([m * n for m, n in zip(left, right)])


@composite()
@composite("nn_bilinear")
def bilinear(input1: fl.Tensor, input2: fl.Tensor, weight: fl.Tensor, bias: fl.Tensor | None = None) -> fl.Tensor:
    if input1.dim() != input2.dim() or input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"[bilinear] expected inputs that agree but for the last dimension, got {tuple(input1.shape)} and "
            f"{tuple(input2.shape)}"
        )
    if weight.dim() != 3:
        raise RuntimeError(f"[bilinear] expected a weight of 3 dimensions, got shape {tuple(weight.shape)}")
    for name, features, input in (("input1", weight.size(1), input1), ("input2", weight.size(2), input2)):
        if input.size(-1) != features:
            raise RuntimeError(
                f"[bilinear] expected {name} of {features} features for a weight of shape {tuple(weight.shape)}, "
                f"got shape {tuple(input.shape)}"
            )
    if bias is not None and (bias.dim() != 1 or bias.size(0) != weight.size(0)):
        raise RuntimeError(f"[bilinear] expected a bias of shape ({weight.size(0)},), got {tuple(bias.shape)}")
    features, left, right = weight.shape
    rows = input1.numel() // left if left else 0
    half = fl.mm(input1.reshape(rows, left), weight.permute(1, 0, 2).reshape(left, features * right))
    result = fl.bmm(half.view(rows, features, right), input2.reshape(rows, right).unsqueeze(-1))
    result = result.view([*input1.shape[:-1], features])
    return result if bias is None else fl.add(result, bias)


@composite()
def cdist(
    x1: fl.Tensor, x2: fl.Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> fl.Tensor:
    modes = {
        "use_mm_for_euclid_dist_if_necessary": None,
        "use_mm_for_euclid_dist": True,
        "donot_use_mm_for_euclid_dist": False,
    }
    if compute_mode not in modes:
        raise ValueError(f"[cdist] expected a compute_mode among {list(modes)}, got {compute_mode!r}")
    through_matmul = modes[compute_mode]
    if through_matmul is None:
        through_matmul = x1.dim() >= 2 and x2.dim() >= 2 and (x1.size(-2) > 25 or x2.size(-2) > 25)
    return fl._ops._cdist(x1, x2, p, through_matmul and p == 2)


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "addmm bmm mm")
tag("variadic", "chain_matmul")
tag("integer_product", "linear")
tag("matmul", "_product_pitched _product_widened addmm baddbmm bmm linear matmul mm")
tag("recomputable", "_product_packed _product_pitched _product_widened addmm baddbmm bmm linear matmul mm")
tag("rowwise", "bmm linalg_matmul linear matmul")
autocast("float32", "cdist")
autocast("lower", "addbmm addmm baddbmm bmm linalg_vecdot linear matmul mm")
autocast("lower", "addmv addr chain_matmul linalg_multi_dot mv", on="accelerator")
autocast("own", "bilinear nn_bilinear", on="cpu")
autocast("widest", "bilinear cross dot nn_bilinear tensordot vdot", on="accelerator")
