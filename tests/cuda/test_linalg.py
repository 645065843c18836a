"""Factorisations on the device: what they promise, and failures as on the CPU."""

import pytest

import flambeau as fl

DTYPES = [fl.float32, fl.float64, fl.complex64, fl.complex128]
SHAPES = [(3, 3), (2, 5, 3), (2, 3, 5), (2, 1, 4, 4), (70, 40), (2, 34, 40)]


def make(shape, dtype):
    fl.manual_seed(0)
    return fl.randn(shape, dtype=dtype).cuda()


def definite(shape, dtype):
    a = make((*shape[:-1], shape[-2]), dtype)
    return a @ adjoint(a) + 2 * fl.eye(a.shape[-1], dtype=dtype).cuda()


def adjoint(a):
    return a.mH.resolve_conj()


def close(got, want):
    loose = want.dtype in (fl.float32, fl.complex64)
    fl.testing.assert_close(got.resolve_conj().cpu(), want.resolve_conj().cpu(), rtol=1e-3 if loose else 1e-9,
                            atol=2e-3 if loose else 1e-9)  # fmt: skip


def identity_like(product):
    return fl.eye(product.shape[-1], dtype=product.dtype).expand(product.shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_give_the_matrix_back(shape, dtype):
    a = make(shape, dtype)
    for mode in ("reduced", "complete"):
        q, r = fl.linalg.qr(a, mode)
        close(q @ r, a)
        close(adjoint(q) @ q, identity_like(adjoint(q) @ q))
    for full in (False, True):
        u, s, vh = fl.linalg.svd(a, full_matrices=full)
        k = s.shape[-1]
        close((u[..., :k] * s.unsqueeze(-2).to(dtype)) @ vh[..., :k, :], a)
    close(fl.linalg.svdvals(a), fl.linalg.svdvals(a.cpu()))
    p, lower, upper = fl.linalg.lu(a)
    close(p @ lower @ upper, a)
    close(fl.linalg.pinv(a), fl.linalg.pinv(a.cpu()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (40, 40)])
def test_square_matrices(shape, dtype):
    a, b = make(shape, dtype), make((*shape[:-1], 2), dtype)
    spd = definite(shape, dtype)
    for upper in (False, True):
        factor = fl.linalg.cholesky(spd, upper=upper)
        close(adjoint(factor) @ factor if upper else factor @ adjoint(factor), spd)
        close(spd @ fl.cholesky_solve(b, factor, upper), b)
        close(fl.cholesky_inverse(factor, upper) @ spd, identity_like(spd))
    close(a @ fl.linalg.solve(a, b), b)
    close(fl.linalg.solve(a, adjoint(b), left=False) @ a, adjoint(b))
    close(fl.linalg.inv(a) @ a, identity_like(a))
    close(fl.linalg.det(a / 4), fl.linalg.det(a.cpu() / 4))
    for got, want in zip(fl.linalg.slogdet(a), fl.linalg.slogdet(a.cpu())):
        close(got, want)
    lu, pivots = fl.linalg.lu_factor(a)
    for adj in (False, True):
        of = adjoint(a) if adj else a
        close(of @ fl.linalg.lu_solve(lu, pivots, b, adjoint=adj), b)
        close(fl.linalg.lu_solve(lu, pivots, adjoint(b), left=False, adjoint=adj) @ of, adjoint(b))
    upper = a.triu() + 3 * identity_like(a).cuda()
    close(upper @ fl.linalg.solve_triangular(upper, b, upper=True), b)
    values, vectors = fl.linalg.eigh(spd)
    close((vectors * values.unsqueeze(-2).to(dtype)) @ adjoint(vectors), spd)
    close(fl.linalg.matrix_exp(a / 4), fl.linalg.matrix_exp(a.cpu() / 4))
    ld, swaps, info = fl.linalg.ldl_factor_ex(a + a.mT)
    assert not info.any() and ld.shape == a.shape
    close((a + a.mT) @ fl.linalg.ldl_solve(ld, swaps, b), b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_general_eigenvalues(dtype):
    a = make((2, 4, 4), dtype)
    values, vectors = fl.linalg.eig(a)
    wide = a.to(values.dtype)
    close(wide @ vectors, vectors * values.unsqueeze(-2))
    found = fl.linalg.eigvals(a)
    close(found.sum(-1), wide.diagonal(dim1=-2, dim2=-1).sum(-1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (4, 4)])
def test_least_squares(shape, dtype):
    a, b = make(shape, dtype), make((*shape[:-1], 2), dtype)
    found = fl.linalg.lstsq(a, b)
    want = fl.linalg.lstsq(a.cpu(), b.cpu(), driver="gels")
    close(found.solution, want.solution)
    close(found.residuals, want.residuals)
    with pytest.raises(RuntimeError, match="gels"):
        fl.linalg.lstsq(a, b, driver="gelsd")


def test_failures_are_those_of_the_cpu():
    singular = fl.tensor([[1.0, 2.0], [2.0, 4.0]]).cuda()
    for function in (fl.linalg.inv, fl.linalg.cholesky, lambda a: fl.linalg.solve(a, a)):
        with pytest.raises(fl.linalg.LinAlgError):
            function(-singular)
    assert fl.linalg.inv_ex(singular)[1].item() == 2
    assert fl.linalg.cholesky_ex(-singular)[1].item() == 1
    bad = singular.clone()
    bad[0, 0] = float("nan")
    for function in (fl.linalg.svd, fl.linalg.eigh):
        with pytest.raises(fl.linalg.LinAlgError):
            function(bad)
    with pytest.raises(RuntimeError):
        fl.linalg.inv(fl.ones(2, 3).cuda())


def test_empty_matrices():
    none = fl.empty(2, 0, 0).cuda()
    assert fl.linalg.inv(none).shape == (2, 0, 0) and fl.linalg.det(none).tolist() == [1.0, 1.0]
    q, r = fl.linalg.qr(fl.empty(3, 0).cuda(), "complete")
    assert q.cpu().tolist() == fl.eye(3).tolist() and r.shape == (3, 0)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: fl.linalg.inv(a),
        lambda a: fl.linalg.det(a),
        lambda a: fl.linalg.svdvals(a),
        lambda a: fl.linalg.qr(a)[1].abs(),
        lambda a: fl.linalg.eigvalsh(a @ a.mT),
        lambda a: fl.linalg.cholesky(a @ a.mT + 2 * fl.eye(3, device=a.device)),
    ],
)
def test_gradients(function):
    fl.manual_seed(0)
    a = fl.randn(2, 3, 3)
    grads = []
    for device in ("cpu", "cuda"):
        x = a.detach().to(device).requires_grad_()
        function(x).square().sum().backward()
        grads.append(x.grad.cpu())
    fl.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-3)
