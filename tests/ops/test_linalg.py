"""Linear algebra against NumPy or by the property that defines each result, batched, for real and complex matrices."""

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(0)
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(4, 4), (2, 3, 5, 5), (0, 0), (0, 3, 3)]


def array(*shape, dtype=np.float64):
    values = RNG.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * RNG.standard_normal(shape)
    return values.astype(dtype)


def positive(*shape, dtype=np.float64):
    a = array(*shape, dtype=dtype)
    return (a @ a.conj().swapaxes(-1, -2) + 3 * np.eye(shape[-1])).astype(dtype)


def tolerance(dtype):
    return 2e-3 if dtype in (np.float32, np.complex64) else 1e-8


def check(result, expected, dtype=np.float64):
    assert tuple(result.shape) == np.shape(expected)
    np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=tolerance(dtype), atol=tolerance(dtype))


def adjoint(t):
    t = t.transpose(-1, -2)
    return fl.conj_physical(t) if t.is_complex() else t


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_inverse_determinant_and_cholesky(dtype, shape):
    a = positive(*shape, dtype=dtype)
    t = fl.tensor(a)
    check(fl.linalg.inv(t), np.linalg.inv(a), dtype)
    det = fl.linalg.det(t)
    np.testing.assert_allclose(det.cpu().numpy(), np.linalg.det(a), rtol=1e-3)
    sign, logabs = fl.linalg.slogdet(t)
    expected = np.linalg.slogdet(a)
    check(sign, expected[0], dtype)
    check(logabs, expected[1], dtype)
    factor = fl.linalg.cholesky(t)
    check(factor, np.linalg.cholesky(a), dtype)
    check(fl.cholesky_inverse(factor), np.linalg.inv(a), dtype)
    upper = fl.linalg.cholesky(t, upper=True)
    check(adjoint(upper) @ upper, a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solving(dtype):
    a, b = positive(2, 4, 4, dtype=dtype), array(3, 1, 4, 5, dtype=dtype)
    check(
        fl.linalg.solve(fl.tensor(a), fl.tensor(b)),
        np.linalg.solve(np.broadcast_to(a, (3, 2, 4, 4)), np.broadcast_to(b, (3, 2, 4, 5))),
        dtype,
    )
    v = array(2, 4, dtype=dtype)
    check(fl.linalg.solve(fl.tensor(a), fl.tensor(v)), np.linalg.solve(a, v[..., None])[..., 0], dtype)
    c = array(2, 5, 4, dtype=dtype)
    check(fl.linalg.solve(fl.tensor(a), fl.tensor(c), left=False) @ fl.tensor(a), c, dtype)
    LU, pivots = fl.linalg.lu_factor(fl.tensor(a))
    check(fl.linalg.lu_solve(LU, pivots, fl.tensor(c), left=False, adjoint=True) @ adjoint(fl.tensor(a)), c, dtype)
    factor = fl.linalg.cholesky(fl.tensor(a))
    check(fl.tensor(a) @ fl.cholesky_solve(fl.tensor(b[0, 0]), factor), np.broadcast_to(b[0, 0], (2, 4, 5)), dtype)
    check(
        factor @ fl.linalg.solve_triangular(factor, fl.tensor(b[0, 0]), upper=False),
        np.broadcast_to(b[0, 0], (2, 4, 5)),
        dtype,
    )
    if np.issubdtype(dtype, np.complexfloating) and not fl.tensor(a).is_cpu:
        return  # other devices have no such factors of complex matrices
    LD, swaps = fl.linalg.ldl_factor(fl.tensor(a), hermitian=True)
    check(
        fl.tensor(a) @ fl.linalg.ldl_solve(LD, swaps, fl.tensor(b[0, 0]).expand(2, 4, 5), hermitian=True),
        np.broadcast_to(b[0, 0], (2, 4, 5)),
        dtype,
    )


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (2, 3, 5), (0, 4), (4, 0)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_factors_multiply_to_the_matrix(shape, dtype):
    a = array(*shape, dtype=dtype)
    t = fl.tensor(a)
    P, L, U = fl.linalg.lu(t)
    check(P @ L @ U, a)
    for mode in ("reduced", "complete"):
        Q, R = fl.linalg.qr(t, mode)
        check(Q @ R, a)
        check(adjoint(Q) @ Q, np.broadcast_to(np.eye(Q.shape[-1]), (*shape[:-2], Q.shape[-1], Q.shape[-1])))
    U, S, Vh = fl.linalg.svd(t, full_matrices=False)
    check((U * S.unsqueeze(-2)) @ Vh, a)
    check(fl.linalg.svdvals(t), np.linalg.svd(a, compute_uv=False))
    U, S, Vh = fl.linalg.svd(t)
    assert tuple(U.shape[-2:]) == (shape[-2],) * 2 and tuple(Vh.shape[-2:]) == (shape[-1],) * 2


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_eigenvalues(dtype):
    a = positive(3, 4, 4, dtype=dtype)
    w, V = fl.linalg.eigh(fl.tensor(a))
    check(w, np.linalg.eigvalsh(a))
    check(fl.tensor(a) @ V, (V * w.unsqueeze(-2)).cpu().numpy())
    check(fl.linalg.eigvalsh(fl.tensor(a), UPLO="U"), np.linalg.eigvalsh(a))
    b = array(3, 4, 4, dtype=dtype)
    w, V = fl.linalg.eig(fl.tensor(b))
    check(fl.tensor(b.astype(np.complex128)) @ V, (V * w.unsqueeze(-2)).cpu().numpy())


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
def test_least_squares(driver, shape):
    if driver != "gels" and not fl.ones(1).is_cpu:
        pytest.skip("other devices have the driver gels alone")
    a, b = array(*shape), array(shape[0], 2)
    result = fl.linalg.lstsq(fl.tensor(a), fl.tensor(b), driver=driver)
    expected = np.linalg.lstsq(a, b, rcond=None)
    check(result.solution, expected[0])
    if driver != "gels":
        assert int(result.rank) == expected[2]
    if driver != "gelsy" and shape[0] > shape[1]:
        check(result.residuals, expected[1])


def test_pseudo_inverse_rank_and_condition():
    a = array(2, 5, 3)
    a[1, :, 2] = a[1, :, 0]
    check(fl.linalg.pinv(fl.tensor(a)), np.linalg.pinv(a))
    assert fl.linalg.matrix_rank(fl.tensor(a)).tolist() == [3, 2]
    b = positive(3, 3)
    check(fl.linalg.pinv(fl.tensor(b), hermitian=True), np.linalg.inv(b))
    for p in (None, "fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")):
        np.testing.assert_allclose(float(fl.linalg.cond(fl.tensor(b), p)), np.linalg.cond(b, p))


def test_norms():
    a = array(3, 4)
    for order in (None, "fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")):
        np.testing.assert_allclose(float(fl.linalg.norm(fl.tensor(a), order)), np.linalg.norm(a, order))
    for order in (0, 1, 2, 3, -1, float("inf"), -float("inf")):
        check(fl.linalg.vector_norm(fl.tensor(a), order, dim=1), np.linalg.norm(a, order, axis=1))


def test_matrix_functions():
    a = array(2, 4, 4)
    w, v = np.linalg.eig(a)
    check(fl.linalg.matrix_exp(fl.tensor(a)), ((v * np.exp(w)[:, None, :]) @ np.linalg.inv(v)).real)
    check(
        fl.linalg.matrix_exp(fl.tensor(a * 30)) / np.exp(30.0),
        fl.linalg.matrix_exp(fl.tensor(a * 30)).cpu().numpy() / np.exp(30.0),
    )
    for n in (0, 1, 2, 5, -3):
        check(fl.linalg.matrix_power(fl.tensor(a), n), np.linalg.matrix_power(a, n))
    check(fl.linalg.vander(fl.tensor(a[0, 0])), np.vander(a[0, 0], increasing=True))
    t = array(4, 6, 8, 3)
    check(fl.linalg.tensorinv(fl.tensor(t), 2), np.linalg.tensorinv(t, 2))


def test_householder_reflectors():
    a = array(5, 3)
    reflectors, tau = fl.geqrf(fl.tensor(a))
    Q = fl.linalg.householder_product(reflectors, tau)
    c = array(5, 2)
    full = fl.linalg.qr(fl.tensor(a), "complete").Q
    check(fl.ormqr(reflectors, tau, fl.tensor(c)), (full @ fl.tensor(c)).cpu().numpy())
    check(Q, full[:, :3].cpu().numpy())


def test_singular_matrices_raise_their_own_error():
    zero = fl.zeros(2, 3, 3)
    for call in (fl.linalg.inv, fl.linalg.cholesky, fl.linalg.lu_factor, lambda t: fl.linalg.solve(t, t)):
        with pytest.raises(fl.linalg.LinAlgError):
            call(zero)
    assert issubclass(fl.linalg.LinAlgError, RuntimeError)
    assert fl.linalg.inv_ex(zero).info.tolist() == [1, 1]
    assert fl.linalg.det(zero).tolist() == [0.0, 0.0]


def test_bad_arguments_raise():
    wide, vector, ints = fl.ones(2, 3), fl.ones(3), fl.ones(3, 3, dtype=fl.int64)
    for op in (fl.linalg.inv, fl.linalg.cholesky, fl.linalg.det, fl.linalg.eigh, fl.linalg.eig, fl.linalg.matrix_exp):
        for bad in (wide, vector, ints):
            with pytest.raises(RuntimeError):
                op(bad)
    with pytest.raises(RuntimeError):
        fl.linalg.qr(wide, "other")
    with pytest.raises(RuntimeError if wide.is_cpu else IndexError):
        fl.lu_unpack(fl.ones(3, 3), fl.full((3,), 7, dtype=fl.int32))[0].tolist()


def test_shapes_on_meta():
    a = fl.ones(2, 5, 3, device="meta")
    U, S, Vh = fl.linalg.svd(a)
    assert [tuple(t.shape) for t in (U, S, Vh)] == [(2, 5, 5), (2, 3), (2, 3, 3)]
    assert tuple(fl.linalg.inv(a[:, :3]).shape) == (2, 3, 3)
