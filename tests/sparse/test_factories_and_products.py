"""Sparse tensors made of sizes and like others, and products beyond `mm`, beside the same with dense tensors."""

import pytest

import flambeau as fl

F = fl.nn.functional
COMPRESSED = [fl.sparse_csr, fl.sparse_csc]
LAYOUTS = [fl.sparse_coo, *COMPRESSED]
DENSE = [[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [0.0, 0.0, 4.0]]


def matrix(layout, requires_grad=False):
    return fl.tensor(DENSE).to_sparse(layout=layout).requires_grad_(requires_grad)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [fl.zeros, fl.empty])
def test_zeros_of_a_size(layout, make):
    x = make(2, 4, 3, layout=layout, dtype=fl.float64)
    assert x.layout is layout and x.dtype is fl.float64 and x._nnz() == 0
    assert fl.equal(x.to_dense(), fl.zeros(2, 4, 3, dtype=fl.float64))
    assert matrix(layout).new_zeros(2, 3).layout is layout


def test_sizes_that_a_layout_does_not_take():
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        fl.zeros(2, layout=fl.sparse_csr)
    with pytest.raises(RuntimeError, match="without blocks"):
        fl.zeros(2, 2, layout=fl.sparse_bsr)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_values_like_those_of_another(layout):
    x = matrix(layout)
    assert fl.equal(fl.ones_like(x).to_dense(), (fl.tensor(DENSE) != 0).float())
    assert fl.rand_like(x)._nnz() == x._nnz() and fl.randn_like(x).layout is layout
    assert fl.full_like(x, 2.0, dtype=fl.float64).values().tolist() == [2.0] * 4
    assert fl.ones_like(x, layout=fl.strided).tolist() == [[1.0] * 3] * 3
    assert x.fill_(5.0).values().tolist() == [5.0] * 4
    assert fl.equal(x + fl.ones(3, 3), x.to_dense() + 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layers_with_sparse_weights(layout):
    weight, x, bias = matrix(layout, True), fl.randn(2, 5, 3, requires_grad=True), fl.randn(3)
    dense = fl.tensor(DENSE, requires_grad=True)
    ours, expected = F.linear(x, weight, bias), F.linear(x, dense, bias)
    assert fl.allclose(ours, expected, atol=1e-6)
    assert fl.allclose(fl.autograd.grad(ours.sum(), x)[0], fl.autograd.grad(expected.sum(), x)[0], atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vectors_and_systems(layout):
    x, b = matrix(layout), fl.tensor([[1.0], [2.0], [3.0]])
    assert fl.allclose(fl.addmv(fl.ones(3), x, fl.ones(3), beta=2, alpha=3), 2 + 3 * x.to_dense().sum(1))
    solved = fl.linalg.solve_triangular(x, b, upper=True)
    assert fl.allclose(x.to_dense() @ solved, b)


def test_products_that_stay_sparse():
    x, other = matrix(fl.sparse_coo), fl.randn(3, 4)
    product = x.to_dense() @ other
    rows = fl.sparse_coo_tensor([[0], [1]], [2.0], (3, 3))
    assert fl.allclose(fl.hspmm(rows, other).to_dense(), rows.to_dense() @ other)
    assert fl.hspmm(rows, other).sparse_dim() == 1
    assert fl.allclose(fl.smm(x, other).to_dense(), product) and fl.smm(x, other)._nnz() == 12
    total = fl.sspaddmm(x, x, fl.eye(3), beta=2, alpha=3)
    assert total.is_sparse and fl.allclose(total.to_dense(), 5 * x.to_dense())


def test_corners():
    x = matrix(fl.sparse_coo)
    out = fl.zeros(3, 3).to_sparse()
    assert fl.equal(fl.neg(x, out=out).to_dense(), -x.to_dense()) and out is not x
    nothing = fl.sparse_coo_tensor(fl.zeros(2, 0, dtype=fl.int64), fl.zeros(0), (0, 3))
    assert fl.sparse.log_softmax(nothing, 0)._nnz() == 0
    with pytest.raises(RuntimeError, match=r"\[add\]"):
        x + fl.ones(3, 3)


def test_elements_are_not_assigned():
    for sparse in (fl.eye(3).to_sparse(), fl.eye(3).to_sparse_csr()):
        with pytest.raises(TypeError, match="Cannot assign to a sparse tensor"):
            sparse[0, 0] = 2.0


def test_indices_of_matrices_are_converted():
    rows = fl.tensor([0, 0, 2])
    assert fl._convert_indices_from_coo_to_csr(rows, 4).tolist() == [0, 2, 2, 3, 3]
    starts, columns = fl.tensor([0, 2, 2, 3]), fl.tensor([1, 0, 2])
    assert fl._convert_indices_from_csr_to_coo(starts, columns).tolist() == [[0, 0, 2], [1, 0, 2]]
    assert fl._convert_indices_from_csr_to_coo(starts, columns, out_int32=True, transpose=True).dtype is fl.int32
    batches = fl._convert_indices_from_csr_to_coo(starts.expand(2, 4), columns.expand(2, 3))
    assert batches.tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 2, 0, 0, 2], [1, 0, 2, 1, 0, 2]]
    fl._validate_compressed_sparse_indices(True, starts, columns, 3, 3, 3)
    with pytest.raises(RuntimeError, match="expected"):
        fl._validate_compressed_sparse_indices(True, starts, columns, 3, 2, 3)


def test_empty_like_keeps_the_layout():
    sparse = fl.eye(4).to_sparse_csr()
    assert (
        fl.empty_like(sparse).layout is fl.sparse_csr
        and fl.zeros_like(sparse, layout=fl.sparse_csc).layout is fl.sparse_csc
    )
    with pytest.raises(RuntimeError, match="different sparse layout"):
        fl.empty_like(sparse, layout=fl.sparse_csc)


def test_nothing_and_batches():
    assert fl.zeros(3, 0, 0).to_sparse(1).shape == (3, 0, 0) and fl.zeros(2, 3, 0).to_sparse_csr(dense_dim=1).shape == (
        2,
        3,
        0,
    )
    batches = fl.eye(4).expand(2, 4, 4).to_sparse_csr()
    with pytest.raises(RuntimeError, match="batched sparse compressed"):
        batches.select(1, 0)
    for layout, block in ((fl.sparse_csr, None), (fl.sparse_bsc, (2, 2))):
        compressed = fl.eye(4).expand(2, 4, 4).to_sparse(layout=layout, blocksize=block)
        assert compressed.select(0, 1).layout is layout and compressed[1].to_dense().tolist() == fl.eye(4).tolist()
    dense = fl.arange(12.0).reshape(2, 3, 2)
    chosen = dense.to_sparse_csr(dense_dim=1).select(2, -1)
    assert chosen.layout is fl.sparse_csr and chosen.to_dense().tolist() == dense.select(2, -1).tolist()


def test_masked_reductions_of_sparse_tensors():
    dense = fl.tensor([[1.0, 0.0], [-2.0, 3.0]])
    mask = fl.tensor([[True, True], [False, True]])
    for layout in (fl.sparse_coo, fl.sparse_csr):
        result = fl.masked.sum(dense.to_sparse(layout=layout), 0, keepdim=True, mask=mask.to_sparse(layout=layout))
        assert result.layout is layout and result.to_dense().tolist() == [[1.0, 3.0]]
        assert fl.masked.amin(dense.to_sparse(layout=layout), mask=mask).item() == 0
        fl.testing.assert_close(dense.to_sparse(layout=layout).angle().to_dense(), dense.angle())
