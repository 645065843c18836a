"""Samples of matrix products."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Constant, Make, call, samples


@samples("mm")
def mm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3, 4))
    yield call(make.strided(2, 3), make.strided(3, 2))
    yield call(make(2, 0), make(0, 3))


@samples("_int_mm")
def int_mm(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(make(2, 3).to(fl.int8), make(3, 4).to(fl.int8))


@samples("bmm")
def bmm(make: Make) -> Iterator[Call]:
    yield call(make(2, 2, 3), make.strided(2, 3, 2))


@samples("mv")
def mv(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3))


@samples("dot", "vdot")
def dot(make: Make) -> Iterator[Call]:
    yield call(make(3), make(3))


@samples("matmul", "linalg_matmul")
def matmul(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3))
    yield call(make(3), make(3, 2))
    yield call(make(3), make(3))
    yield call(make(2, 1, 2, 3), make(3, 3, 2))
    yield call(make(2, 2, 3), make.strided(3, 2))


@samples("__rmatmul__")
def rmatmul(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), make(2, 3))


@samples("addmm")
def addmm(make: Make) -> Iterator[Call]:
    yield call(make(2), make(3, 4), make(4, 2), beta=2, alpha=3)
    yield call(make(3, 2), make.strided(3, 4), make(4, 2))


@samples("addmv")
def addmv(make: Make) -> Iterator[Call]:
    yield call(make(2), make(2, 3), make(3), beta=2, alpha=3)


@samples("addbmm")
def addbmm(make: Make) -> Iterator[Call]:
    yield call(make(2, 2), make(3, 2, 3), make(3, 3, 2), beta=2, alpha=3)


@samples("baddbmm")
def baddbmm(make: Make) -> Iterator[Call]:
    yield call(make(2, 2), make(3, 2, 3), make(3, 3, 2), beta=2, alpha=3)


@samples("addr")
def addr(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(2), make(3), beta=2, alpha=3)


@samples("outer", "ger")
def outer(make: Make) -> Iterator[Call]:
    yield call(make(2), make(3))


@samples("linear")
def linear(make: Make) -> Iterator[Call]:
    yield call(make(2, 2, 3), make(4, 3), make(4))
    yield call(make(3), make.strided(2, 3))
    yield call(make(2, 3), make(3))


@samples("nn_bilinear", "bilinear")
def bilinear(make: Make) -> Iterator[Call]:
    yield call(make(2, 2), make(2, 3), make(4, 2, 3), make(4))


@samples("linalg_multi_dot", "chain_matmul")
def multi_dot(make: Make) -> Iterator[Call]:
    yield call([make(2, 3), make(3, 1), make(1, 2)])


@samples("linalg_matrix_power", "matrix_power")
def matrix_power(make: Make) -> Iterator[Call]:
    for n in (3, 0, -2):
        yield call(make.matrix(), n)


@samples("linalg_cross", "cross", "linalg_vecdot")
def cross(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(2, 3))


@samples("inner")
def inner(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(4, 3))


@samples("tensordot")
def tensordot(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 2), make(3, 2, 2), 2)
    yield call(make(2, 3), make(2, 3), [[0], [0]])


@samples("kron")
def kron(make: Make) -> Iterator[Call]:
    yield call(make(2, 2), make(3))


@samples("einsum")
def einsum(make: Make) -> Iterator[Call]:
    yield call("ij,jk->ik", [make(2, 3), make(3, 2)])
    yield call("...ii->...i", [make(2, 3, 3)])
    yield call("i,j", [make(2), make(3)])


@samples("einsum.sublist")
def einsum_sublist(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [0, 1], make(3, 2), [1, 2], [0, 2])


@samples("grouped_mm")
def grouped_mm(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(Constant(make.real(2, 2, 8).to(fl.float32)), Constant(make.real(2, 8, 4).to(fl.float32)))


@samples("_cdist")
def cdist_kernel(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), make(2, 2), 2.0, False)
    yield call(make(3, 2), make(2, 2), 1.5, False)


@samples("cdist")
def cdist(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), make(2, 2), 2.0)
    yield call(make(3, 2), make(2, 2), 1.0)
    yield call(make(2, 2, 3), make(2, 1, 3), 3.0)


@samples("_scaled_mm")
def scaled_products(make: Make) -> Iterator[Call]:
    import flambeau as fl

    a, b = make(4, 16).to(fl.float8_e4m3fn), make(16, 16).to(fl.float8_e5m2).t()
    one, rows, columns, bias = (make(*n, low=0.1).to(fl.float32) for n in ((), (4, 1), (1, 16), (16,)))
    for scales in ((one, one), (rows, columns)):
        yield call(*map(Constant, (a, b, *scales)), out_dtype=fl.float32)
        yield call(*map(Constant, (a, b, *scales, bias)), out_dtype=fl.float32)


samples.without(
    "compiled graphs call it, below derivatives; tests/ops/test_matmul.py", "_product_pitched", "_product_widened"
)
samples.without(
    "compiled graphs call it, below derivatives; tests/inductor/test_products.py",
    "_product_finished",
    "_product_packed",
)
