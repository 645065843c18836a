"""out= forms, complex parts, sizes and flags of sparse tensors, and products whose old value takes no part."""

import pytest

import flambeau as fl

COMPRESSED = [fl.sparse_csr, fl.sparse_csc]
DENSE = fl.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [0.0, 0.0, 4.0]])


@pytest.mark.parametrize("layout", [fl.sparse_coo, *COMPRESSED])
def test_arithmetic_writes_to_a_sparse_output(layout):
    x = DENSE.to_sparse(layout=layout)
    for name, expected in (("add", DENSE * 2), ("sub", DENSE * 0), ("mul", DENSE**2)):
        out = fl.zeros_like(x)
        assert getattr(fl, name)(x, x, out=out) is out
        assert out.layout is layout and fl.equal(out.to_dense(), expected), name
    assert fl.equal(fl.div(x, 2, out=fl.zeros_like(x)).to_dense(), DENSE / 2)
    assert fl.equal(fl.pow(x, 2, out=fl.zeros_like(x)).to_dense(), DENSE**2)


@pytest.mark.parametrize("layout", [fl.sparse_coo, *COMPRESSED])
def test_beta_of_zero_ignores_what_is_not_a_number(layout):
    x, y = DENSE.to_sparse(layout=layout), fl.ones(3, 2)
    assert fl.equal(fl.addmm(fl.full((3, 2), fl.nan), x, y, beta=0), DENSE @ y)


def test_complex_elements_are_pairs():
    z = fl.complex(DENSE, 2 * DENSE).to_sparse().requires_grad_()
    pairs = fl.view_as_real(z)
    assert pairs.sparse_dim() == 2 and pairs.shape == (3, 3, 2)
    assert fl.equal(fl.view_as_complex(pairs).to_dense(), z.to_dense())
    assert fl.equal(z.real.to_dense(), DENSE) and fl.equal(z.imag.to_dense(), 2 * DENSE)
    pairs.to_dense().sum().backward()
    assert fl.equal(z.grad.to_dense(), fl.where(DENSE != 0, fl.tensor(1 + 1j), fl.tensor(0j)))


def test_one_element_alone_is_coalesced():
    x = fl.sparse_coo_tensor([[1], [2]], [5.0], (3, 4))
    assert x.is_coalesced() and x.indices().tolist() == [[1], [2]] and x.abs_().values().tolist() == [5.0]
    assert fl.zeros(2, 2, layout=fl.sparse_coo).t().is_coalesced()


def test_narrowing_keeps_a_tensor_coalesced():
    assert DENSE.to_sparse().narrow_copy(0, 1, 2).is_coalesced()


@pytest.mark.parametrize("layout", COMPRESSED)
def test_empty_like_keeps_the_places_of_elements(layout):
    x = DENSE.to_sparse(layout=layout)
    like = fl.empty_like(x)
    assert like._nnz() == x._nnz() and like.layout is layout


def test_sums_of_all_dimensions_that_are_kept_are_dense():
    total = DENSE.to_sparse().sum((0, 1), keepdim=True)
    assert total.layout is fl.strided and total.tolist() == [[10.0]]
    assert DENSE.to_sparse_csr().sum(1, keepdim=True).layout is fl.sparse_csr


def test_sums_keep_small_places():
    x = fl.sparse_csr_tensor(
        fl.tensor([0, 1, 2], dtype=fl.int32), fl.tensor([1, 0], dtype=fl.int32), fl.ones(2), (2, 2)
    )
    assert (x + x).crow_indices().dtype is fl.int32


def test_resize_as_sparse():
    x = fl.zeros(2, 2, layout=fl.sparse_coo)
    assert x.resize_as_sparse_(DENSE.to_sparse()).shape == (3, 3)


def test_sampled_products_of_a_batch():
    pattern = fl.stack([DENSE, DENSE.t()])
    a, b = fl.arange(12.0).reshape(2, 3, 2), fl.arange(12.0, 24.0).reshape(2, 2, 3)
    out = fl.sparse.sampled_addmm(pattern.to_sparse_csr(), a, b, beta=0.5)
    assert fl.equal(out.to_dense(), fl.where(pattern != 0, pattern * 0.5 + a @ b, fl.tensor(0.0)))


@pytest.mark.parametrize("layout", [fl.sparse_coo, *COMPRESSED])
def test_eigenvalues_and_components_of_a_sparse_matrix(layout):
    matrix = (DENSE @ DENSE.t()).to_sparse(layout=layout)
    assert fl.allclose(fl.lobpcg(matrix, k=1)[0], fl.linalg.eigvalsh(matrix.to_dense())[-1:])
    assert fl.pca_lowrank(matrix, q=1)[1].shape == (1,)
    system = DENSE.to_sparse(layout=layout)
    assert fl.allclose(fl.triangular_solve(DENSE, system)[0], fl.eye(3))


def test_coordinates_are_never_contiguous():
    assert not DENSE.to_sparse().is_contiguous() and DENSE.to_sparse_csr().is_contiguous()
