"""Matrix products against NumPy: shapes, strides, dtypes, batches, and the errors of shapes that do not fit."""

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(0)
DTYPES = [np.float32, np.float64, np.complex64, np.complex128, np.int64, np.int32, np.uint8]


def array(*shape, dtype=np.float32):
    if np.issubdtype(dtype, np.integer):
        return RNG.integers(0, 5, shape).astype(dtype)
    values = RNG.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * RNG.standard_normal(shape)
    return values.astype(dtype)


def check(result, expected, tol=1e-4):
    assert tuple(result.shape) == np.shape(expected)
    np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, k, n", [(3, 4, 5), (1, 1, 1), (33, 17, 65), (0, 3, 2), (3, 0, 2), (2, 3, 0)])
def test_mm_matches_numpy_for_every_dtype(dtype, m, k, n):
    a, b = array(m, k, dtype=dtype), array(k, n, dtype=dtype)
    check(fl.mm(fl.tensor(a), fl.tensor(b)), a @ b)


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16])
def test_reduced_floats_accumulate_in_float(dtype):
    a = fl.ones(2, 4096, dtype=dtype)
    assert fl.mm(a, a.t()).tolist() == [[4096.0, 4096.0]] * 2


MATMUL_SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((4, 2, 3), (3,)),
    ((3,), (4, 3, 2)),
    ((4, 2, 3), (3, 5)),
    ((2, 3), (4, 3, 5)),
    ((4, 1, 2, 3), (5, 3, 2)),
    ((1, 5, 2, 3), (4, 1, 3, 2)),
    ((0, 2, 3), (3, 4)),
    ((2, 0, 3), (2, 3, 4)),
]


@pytest.mark.parametrize("left, right", MATMUL_SHAPES)
def test_matmul_broadcasts_batches_and_takes_vectors(left, right):
    a, b = array(*left), array(*right)
    check(fl.matmul(fl.tensor(a), fl.tensor(b)), a @ b)
    assert tuple((fl.tensor(a).to("meta") @ fl.tensor(b).to("meta")).shape) == np.shape(a @ b)


def test_matmul_reads_any_strides():
    a, b = array(6, 4, 5, 3), array(3, 6, 7, 4)
    left = fl.tensor(a).permute(2, 0, 3, 1)
    right = fl.tensor(b)[0].permute(0, 2, 1)[:, 1:, ::2]
    check(left[..., 1:] @ right, a.transpose(2, 0, 3, 1)[..., 1:] @ b[0].transpose(0, 2, 1)[:, 1:, ::2])
    x = fl.tensor(a)[0].expand(3, 4, 5, 3)
    check(
        x @ fl.tensor(b)[:, 0, 0, :3].reshape(3, 3), np.broadcast_to(a[0], (3, 4, 5, 3)) @ b[:, 0, 0, :3].reshape(3, 3)
    )


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 5, 4), (2, 3, 5, 4), (0, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_over_inputs_of_any_rank(shape, bias):
    x, w, b = array(*shape), array(6, 4), array(6)
    result = fl.nn.functional.linear(fl.tensor(x), fl.tensor(w), fl.tensor(b) if bias else None)
    check(result, x @ w.T + (b if bias else 0))


def test_linear_of_a_transposed_input():
    x, w, b = array(4, 3, 5), array(6, 4), array(6)
    check(
        fl.nn.functional.linear(fl.tensor(x).permute(1, 2, 0), fl.tensor(w), fl.tensor(b)),
        x.transpose(1, 2, 0) @ w.T + b,
    )


@pytest.mark.parametrize("self_shape", [(3, 5), (5,), (1, 5), (3, 1), (1,), ()])
@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2.0), (0, 1)])
def test_addmm_broadcasts_and_scales(self_shape, beta, alpha):
    c, a, b = array(*self_shape), array(3, 4), array(4, 5)
    check(fl.addmm(fl.tensor(c), fl.tensor(a), fl.tensor(b), beta=beta, alpha=alpha), beta * c + alpha * (a @ b))


def test_beta_zero_ignores_nan():
    nan = fl.full((2, 2), float("nan"))
    one = fl.ones(2, 2)
    assert fl.addmm(nan, one, one, beta=0).tolist() == [[2.0, 2.0]] * 2
    assert fl.baddbmm(nan[None], one[None], one[None], beta=0).tolist() == [[[2.0, 2.0]] * 2]


def test_products_added_to_batches():
    c, a, b = array(3, 2, 5), array(3, 2, 4), array(3, 4, 5)
    check(fl.baddbmm(fl.tensor(c), fl.tensor(a), fl.tensor(b), beta=2, alpha=3), 2 * c + 3 * (a @ b))
    check(fl.addbmm(fl.tensor(c[0]), fl.tensor(a), fl.tensor(b)), c[0] + (a @ b).sum(0))
    check(fl.addmv(fl.tensor(c[0, :, 0]), fl.tensor(a[0]), fl.tensor(b[0, :, 0])), c[0, :, 0] + a[0] @ b[0, :, 0])
    check(fl.addr(fl.tensor(c[0]), fl.tensor(a[0, :, 0]), fl.tensor(b[0, 0])), c[0] + np.outer(a[0, :, 0], b[0, 0]))


def test_in_place_and_out_forms():
    c, a, b = array(3, 3), array(3, 3), array(3, 3)
    x = fl.tensor(c)
    assert x.addmm_(fl.tensor(a), fl.tensor(b)) is x
    check(x, c + a @ b)
    out = fl.empty(0)
    assert fl.matmul(fl.tensor(a), fl.tensor(b), out=out) is out
    check(out, a @ b)


def test_vectors():
    x, y = array(7, dtype=np.complex64), array(7, dtype=np.complex64)
    check(fl.dot(fl.tensor(x), fl.tensor(y)), x @ y)
    check(fl.vdot(fl.tensor(x), fl.tensor(y)), np.vdot(x, y))
    check(fl.outer(fl.tensor(x), fl.tensor(y)), np.outer(x, y))
    check(fl.inner(fl.tensor(x).reshape(1, 7), fl.tensor(y)), np.inner(x.reshape(1, 7), y))
    a, b = array(4, 3), array(4, 3)
    check(fl.linalg.cross(fl.tensor(a), fl.tensor(b)), np.cross(a, b))
    check(fl.linalg.cross(fl.tensor(a.T.copy()), fl.tensor(b.T.copy()), dim=0), np.cross(a, b).T)
    check(fl.linalg.vecdot(fl.tensor(a), fl.tensor(b)), (a * b).sum(-1))


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 4, 5)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("i,j->ij", [(2,), (3,)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("i...,i...->...", [(3, 2), (3, 4, 2)]),
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ("aab,b->a", [(2, 2, 3), (3,)]),
    ("i,i,i->", [(3,), (3,), (3,)]),
    ("ijkl,lm->ijkm", [(2, 3, 4, 5), (5, 2)]),
]


@pytest.mark.parametrize("equation, shapes", EQUATIONS)
def test_einsum_matches_numpy(equation, shapes):
    arrays = [array(*s) for s in shapes]
    if equation == "i...,i...->...":
        expected = (arrays[0][:, None, :] * arrays[1]).sum(0)
    else:
        expected = np.einsum(equation, *arrays)
    check(fl.einsum(equation, *[fl.tensor(a) for a in arrays]), expected)


def test_einsum_with_lists_of_labels():
    a, b = array(2, 3), array(3, 4)
    check(fl.einsum(fl.tensor(a), [0, 1], fl.tensor(b), [1, 2], [0, 2]), a @ b)
    check(fl.einsum(fl.tensor(a), [..., 1], fl.tensor(b), [1, 2], [..., 2]), a @ b)


def test_einsum_refuses_equations_that_do_not_fit():
    a = fl.ones(2, 3)
    for equation, operands in [
        ("ij,jk", [a, a]),
        ("ijk->i", [a]),
        ("ij->k", [a]),
        ("ij->ii", [a]),
        ("i1->i", [a]),
        ("ij,ij", [a]),
    ]:
        with pytest.raises(RuntimeError):
            fl.einsum(equation, *operands)


def test_contractions():
    a, b = array(2, 3, 4), array(3, 4, 5)
    check(fl.tensordot(fl.tensor(a), fl.tensor(b), dims=2), np.tensordot(a, b, 2))
    check(fl.tensordot(fl.tensor(a), fl.tensor(b), dims=([1], [0])), np.tensordot(a, b, ([1], [0])))
    check(fl.kron(fl.tensor(a), fl.tensor(b[0])), np.kron(a, b[0]))
    mats = [array(3, 4), array(4, 6), array(6, 2)]
    check(fl.linalg.multi_dot([fl.tensor(m) for m in mats]), np.linalg.multi_dot(mats))
    check(fl.chain_matmul(*[fl.tensor(m) for m in mats]), np.linalg.multi_dot(mats))
    x, y, w = array(6, 3), array(6, 4), array(5, 3, 4)
    check(fl.nn.functional.bilinear(fl.tensor(x), fl.tensor(y), fl.tensor(w)), np.einsum("ni,oij,nj->no", x, w, y))


@pytest.mark.parametrize("p", [0, 1, 1.5, 2, 3, float("inf")])
@pytest.mark.parametrize("rows", [5, 30])
def test_cdist_of_every_order(p, rows):
    a, b = array(2, rows, 4), array(rows + 1, 4)
    difference = np.abs(a[:, :, None, :] - b[None, None])
    if p == 0:
        expected = (difference != 0).sum(-1)
    elif p == float("inf"):
        expected = difference.max(-1)
    else:
        expected = (difference**p).sum(-1) ** (1 / p)
    check(fl.cdist(fl.tensor(a), fl.tensor(b), p=p), expected, tol=1e-3)


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (2, 1, 0, 3), (0, 2, 1, 3), (3, 1, 2, 0)])
def test_rows_in_any_order_meet_one_matrix(order):
    rng = np.random.default_rng(11)
    x = rng.standard_normal((3, 4, 5, 6)).transpose(order)
    w, bias = rng.standard_normal((7, x.shape[-1])), rng.standard_normal(7)
    for view in (x, x[:, :1], x[:, :, :1], x[:1, :, ::2]):
        laid = fl.tensor(np.ascontiguousarray(view.transpose(np.argsort(order)))).permute(order)
        got = fl.nn.functional.linear(laid, fl.tensor(w), fl.tensor(bias))
        np.testing.assert_allclose(got.cpu().numpy(), view @ w.T + bias, atol=1e-12)
        np.testing.assert_allclose((laid @ fl.tensor(w).T).cpu().numpy(), view @ w.T, atol=1e-12)


def test_rows_without_elements_meet_one_matrix():
    x = fl.empty(5, 3, 2).transpose(0, 1)[..., :0]
    assert x.is_contiguous() and fl.equal(x @ fl.empty(0, 4), fl.zeros(3, 5, 4))


def test_gradients_of_distances_are_those_of_their_definition():
    rng = np.random.default_rng(8)
    a, b, g = rng.standard_normal((2, 30, 5)), rng.standard_normal((28, 5)), rng.standard_normal((2, 30, 28))
    a[0, 3] = b[4]  # no distance, no slope
    x, y = fl.tensor(a, requires_grad=True), fl.tensor(b, requires_grad=True)
    mode = "use_mm_for_euclid_dist"
    got = fl.autograd.grad(fl.cdist(x, y, compute_mode=mode), (x, y), fl.tensor(g))
    difference = a[:, :, None] - b
    distance = np.sqrt((difference**2).sum(-1, keepdims=True))
    distance[0, 3, 4] = np.inf
    full = g[..., None] * difference / distance
    np.testing.assert_allclose(got[0].cpu().numpy(), full.sum(2), atol=1e-6)
    np.testing.assert_allclose(got[1].cpu().numpy(), -full.sum((0, 1)), atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: fl.mm(a, b),
        lambda a, b: fl.mm(a, b.double().t()),
        lambda a, b: fl.mm(a[0], b),
        lambda a, b: fl.bmm(a[None], b[None]),
        lambda a, b: fl.matmul(a, b),
        lambda a, b: fl.matmul(a, fl.tensor(1.0)),
        lambda a, b: fl.mv(a, b[0, :2]),
        lambda a, b: fl.dot(a[0], b[0, :2]),
        lambda a, b: fl.dot(a, b),
        lambda a, b: fl.addmm(fl.ones(7), a, b.t()),
        lambda a, b: fl.nn.functional.linear(a, b[:, :2]),
        lambda a, b: fl.nn.functional.linear(a, b, fl.ones(5)),
        lambda a, b: fl.mm(a.bool(), b.bool().t()),
        lambda a, b: fl.linalg.cross(a, b[:, :2]),
        lambda a, b: fl.cdist(a, b[:, :2]),
    ],
)
def test_operands_that_do_not_fit_raise(call):
    with pytest.raises(RuntimeError):
        call(fl.ones(2, 3), fl.ones(2, 3))


@pytest.mark.parametrize("n", [3, 4, 8, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_tiny_products(n, dtype):
    for m, k in ((1, 4), (3, 8), (4, 1), (7, 5), (16, 64), (8, 0)):
        a, b = array(6, m, k, dtype=dtype), array(6, k, n, dtype=dtype)
        np.testing.assert_allclose(fl.bmm(fl.tensor(a), fl.tensor(b)).cpu().numpy(), a @ b, atol=1e-4)
        # Transposed operands, and a matrix that all share.
        at = fl.tensor(np.ascontiguousarray(a.swapaxes(1, 2))).transpose(1, 2)
        bt = fl.tensor(np.ascontiguousarray(b.swapaxes(1, 2))).transpose(1, 2)
        np.testing.assert_allclose((at @ bt).cpu().numpy(), a @ b, atol=1e-4)
        np.testing.assert_allclose((at @ fl.tensor(b[0])).cpu().numpy(), a @ b[0], atol=1e-4)
        c = array(6, m, n, dtype=dtype)
        scaled = fl.baddbmm(fl.tensor(c), fl.tensor(a), fl.tensor(b), beta=2, alpha=0.5)
        np.testing.assert_allclose(scaled.cpu().numpy(), 2 * c + 0.5 * (a @ b), atol=1e-4)


def test_products_with_rows_apart():
    x, w, b = fl.randn(2, 5, 3), fl.randn(3, 7), fl.randn(7)
    made = fl._ops._product_pitched(x, w, b, 16)
    assert made.shape == (2, 5, 7) and made.stride() == (80, 16, 1)
    assert fl.allclose(made, x @ w + b, atol=1e-6)
    assert fl._ops._product_pitched(x.to("meta"), w.to("meta"), None, 8).stride() == (40, 8, 1)
    for pitch, bias in ((6, None), (8, fl.randn(6)), (8, b.double())):
        with pytest.raises(RuntimeError, match="expected"):
            fl._ops._product_pitched(x, w, bias, pitch)


def test_products_of_16_bits_in_single_precision():
    x, w = fl.randn(24, 40).bfloat16(), fl.randn(16, 40).bfloat16()
    made = fl._ops._product_widened(x, w.t())
    assert made.dtype is fl.float32
    assert fl.allclose(made, x.float() @ w.float().t(), atol=1e-5)
    for other in (w, w.t().half(), w.t()[None]):
        with pytest.raises(RuntimeError, match="expected"):
            fl._ops._product_widened(x, other)
    with pytest.raises(RuntimeError, match="expected two matrices of bfloat16"):
        fl._ops._product_widened(x.float(), w.float().t())


@pytest.mark.host  # devices ask for a second matrix of columns: tests/cuda/test_scaled_products.py
def test_scaled_products_of_8_bit_floats():
    fl.manual_seed(0)
    a, b = fl.randn(5, 7).to(fl.float8_e4m3fn), fl.randn(7, 3).to(fl.float8_e5m2)
    one, rows, columns, bias = fl.tensor([2.0]), fl.rand(5, 1), fl.rand(1, 3), fl.randn(3)
    exact = a.double() @ b.double()
    made = fl._scaled_mm(a, b, one, fl.tensor(0.5), bias, out_dtype=fl.float32)
    fl.testing.assert_close(made.double(), exact + bias.double(), rtol=1e-5, atol=1e-5)
    made = fl._scaled_mm(a, b, rows, columns, out_dtype=fl.bfloat16)
    fl.testing.assert_close(made.double(), exact * rows.double() * columns.double(), rtol=1e-2, atol=1e-2)
    assert fl._scaled_mm(a, b, one, one).dtype is fl.float8_e4m3fn
    shown = fl._scaled_mm(a.to("meta"), b.to("meta"), one.to("meta"), one.to("meta"), out_dtype=fl.float16)
    assert (shown.shape, shown.dtype) == ((5, 3), fl.float16)
    for scales in ((rows, one), (rows[:, 0], columns[0]), (one.double(), one)):
        with pytest.raises(ValueError, match="float32 scales"):
            fl._scaled_mm(a, b, *scales)
    with pytest.raises(ValueError, match="8-bit floats"):
        fl._scaled_mm(a.float(), b, one, one)
    with pytest.raises(RuntimeError, match="bias of 3"):
        fl._scaled_mm(a, b, one, one, bias[:2])


def test_products_of_bytes_are_summed_in_wider_integers():
    a = fl.full((3, 40), -128, dtype=fl.int8)
    product = fl._int_mm(a, a.t())
    assert product.dtype == fl.int32 and product.tolist() == [[40 * 128 * 128] * 3] * 3
    fl.testing.assert_close(fl.compile(fl._int_mm)(a, a.t()), product)
    with pytest.raises(RuntimeError, match=r"\[int_mm\] expected matrices of int8, got"):
        fl._int_mm(a.int(), a.t())
