"""Sparse matrices row by row (CSR) and column by column (CSC)."""

import copy
import pickle

import pytest

import flambeau as fl

DENSE = fl.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]], dtype=fl.float64)


@pytest.mark.parametrize("layout", [fl.sparse_csr, fl.sparse_csc])
def test_conversions(layout):
    for start in (DENSE, DENSE.to_sparse(), DENSE.to_sparse_csr(), DENSE.to_sparse_csc()):
        s = start.to_sparse(layout=layout)
        assert s.layout is layout and s._nnz() == 3 and fl.equal(s.to_dense(), DENSE)
        assert fl.equal(s.to_sparse().to_dense(), DENSE) and s.to_sparse().layout is fl.sparse_coo


def test_parts():
    csr = DENSE.to_sparse_csr()
    assert csr.is_sparse_csr and not csr.is_sparse
    assert csr.crow_indices().tolist() == [0, 1, 3] and csr.col_indices().tolist() == [1, 0, 2]
    assert csr.values().tolist() == [2.0, 3.0, 4.0]
    csc = DENSE.to_sparse_csc()
    assert csc.ccol_indices().tolist() == [0, 1, 2, 3] and csc.row_indices().tolist() == [1, 0, 1]
    with pytest.raises(RuntimeError):
        csc.crow_indices()
    with pytest.raises(RuntimeError):
        csr.indices()


@pytest.mark.parametrize(
    "parts",
    [
        ([0, 1, 3], [1, 0, 5], [1.0, 2.0, 3.0]),
        ([0, 1, 2], [1, 0, 2], [1.0, 2.0, 3.0]),
        ([1, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0]),
        ([0, 2, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0]),
        ([0, 1, 3], [1, 0], [1.0, 2.0, 3.0]),
    ],
)
def test_wrong_parts_are_refused(parts):
    with pytest.raises(RuntimeError, match="expected"):
        fl.sparse_csr_tensor(*parts, (len(parts[0]) - 1, 3))


def test_printing():
    assert repr(fl.sparse_csr_tensor([0, 1, 3], [1, 0, 2], [2.0, 3.0, 4.0], (2, 3))) == (
        "tensor(crow_indices=tensor([0, 1, 3]),\n       col_indices=tensor([1, 0, 2]),\n"
        "       values=tensor([2., 3., 4.]), size=(2, 3), nnz=3,\n       layout=torch.sparse_csr)"
    )


@pytest.mark.parametrize("layout", [fl.sparse_csr, fl.sparse_csc])
def test_operators(layout):
    s = DENSE.to_sparse(layout=layout)
    x = fl.arange(6.0, dtype=fl.float64).reshape(3, 2)
    for function in (
        lambda s: s @ x,
        lambda s: x @ s,
        lambda s: s @ fl.ones(3, dtype=fl.float64),
        lambda s: s @ s.t(),
        lambda s: s * 2,
        lambda s: s + s,
        lambda s: s.t(),
        lambda s: -s.abs(),
        lambda s: s.sum(),
        lambda s: fl.sparse.addmm(fl.ones(2, 2, dtype=fl.float64), s, x),
    ):
        got, expected = function(s), function(DENSE)
        assert fl.allclose(got.to_dense(), expected)


def test_copies():
    s = DENSE.to_sparse_csr()
    for other in (s.clone(), s.detach(), copy.deepcopy(s), pickle.loads(pickle.dumps(s)), s.float().double()):
        assert other.layout is fl.sparse_csr and fl.equal(other.to_dense(), DENSE)


def test_gradients():
    values = fl.tensor([2.0, 3.0, 4.0], dtype=fl.float64, requires_grad=True)
    x = fl.arange(6.0, dtype=fl.float64).reshape(3, 2).requires_grad_()
    assert fl.autograd.gradcheck(lambda v, x: fl.sparse_csr_tensor([0, 1, 3], [1, 0, 2], v, (2, 3)) @ x, (values, x))
    assert fl.autograd.gradcheck(lambda v: fl.sparse_csc_tensor([0, 1, 2], [1, 0], v, (2, 2)).to_dense(), (values[:2],))


def test_sampled_product():
    s = DENSE.to_sparse_csr()
    a, b = fl.arange(4.0, dtype=fl.float64).reshape(2, 2), fl.arange(6.0, dtype=fl.float64).reshape(2, 3)
    got = fl.sparse.sampled_addmm(s, a, b, beta=2, alpha=3)
    assert fl.allclose(got.to_dense(), (2 * DENSE + 3 * (a @ b)) * (DENSE != 0))


def test_diagonals():
    made = fl.sparse.spdiags(fl.arange(9.0).reshape(3, 3), fl.tensor([0, -1, 1]), (3, 3))
    assert made.to_dense().tolist() == [[0, 7, 0], [3, 1, 8], [0, 4, 2]]
