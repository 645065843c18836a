"""2:4 sparse matrices: packing, products, transposes, layers, and what is refused."""

import copy

import pytest

import flambeau as fl
from flambeau.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

F = fl.nn.functional


def pruned(rows, columns, dtype=fl.float32):
    """A random matrix, the two smaller of every four elements of which are zero."""
    fours = fl.randn(rows, columns // 4, 4)
    places = fours.abs().argsort(-1)[..., :2]
    return fours.scatter(-1, places, 0.0).reshape(rows, columns).to(dtype)


@pytest.fixture
def dense():
    fl.manual_seed(0)
    return pruned(32, 64)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float16, fl.bfloat16, fl.int8])
def test_packing_keeps_every_value_in_half_the_elements(dtype):
    fl.manual_seed(0)
    matrix = (pruned(16, 32) * 4).to(dtype)
    matrix[0] = 0  # fours with fewer than two values
    packed = to_sparse_semi_structured(matrix)
    assert isinstance(packed, SparseSemiStructuredTensor) and packed.dtype is dtype and packed.shape == matrix.shape
    assert packed.values().shape == (16, 16) and packed.indices().dtype is fl.int8
    assert fl.equal(packed.to_dense(), matrix) and fl.equal(packed.t().to_dense(), matrix.t())


def test_products(dense):
    matrix, other = to_sparse_semi_structured(dense), fl.randn(64, 5)
    assert fl.allclose(matrix @ other, dense @ other)
    assert fl.allclose(fl.mm(other.t(), matrix.t()), other.t() @ dense.t())
    assert fl.allclose(fl.addmm(fl.ones(32, 5), matrix, other, alpha=2), 1 + 2 * (dense @ other), atol=1e-5)
    x, bias = fl.randn(2, 3, 64), fl.randn(32)
    assert fl.allclose(F.linear(x, matrix, bias), F.linear(x, dense, bias), atol=1e-5)


def test_a_layer_with_a_sparse_weight(dense):
    layer = fl.nn.Linear(64, 32)
    x = fl.randn(4, 64)
    layer.weight = fl.nn.Parameter(dense)
    expected = layer(x)
    layer.weight = fl.nn.Parameter(to_sparse_semi_structured(dense), requires_grad=False)
    assert fl.allclose(layer(x), expected, atol=1e-5)
    x.requires_grad_()
    assert fl.allclose(fl.autograd.grad(layer(x).sum(), x)[0], dense.sum(0).expand(4, 64), atol=1e-5)


def test_copies(dense):
    matrix = to_sparse_semi_structured(dense)
    for same in (matrix.clone(), matrix.detach(), copy.deepcopy(matrix)):
        assert isinstance(same, SparseSemiStructuredTensor) and fl.equal(same.to_dense(), dense)
    assert matrix.to(fl.float16).to_dense().dtype is fl.float16
    assert "SparseSemiStructuredTensor(shape=(32, 64)" in repr(matrix)


def test_what_is_refused(dense):
    with pytest.raises(ValueError, match="at most two elements of every four"):
        to_sparse_semi_structured(fl.ones(16, 16))
    for wrong in (fl.ones(4), dense.t(), dense.double(), fl.zeros(4, 6)):
        with pytest.raises(RuntimeError, match=r"\[to_sparse_semi_structured\] expected"):
            to_sparse_semi_structured(wrong)
    with pytest.raises(NotImplementedError, match="to_dense"):
        to_sparse_semi_structured(dense) + 1
