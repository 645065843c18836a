"""Compressed layouts with rows, columns, blocks, batches and dense dimensions: all ways between them."""

import itertools

import pytest

import flambeau as fl

LAYOUTS = [fl.sparse_csr, fl.sparse_csc, fl.sparse_bsr, fl.sparse_bsc]
BLOCKED = (fl.sparse_bsr, fl.sparse_bsc)
SHAPES = [((4, 6), 0), ((2, 4, 6), 0), ((2, 3, 4, 6), 0), ((4, 6, 2), 1), ((2, 4, 6, 3, 2), 2)]


def matrix(shape, dense):
    generator = fl.Generator().manual_seed(0)
    values = fl.randn(shape, generator=generator)
    keep = fl.rand(shape[: len(shape) - dense], generator=generator) > 0.6
    return values * keep.reshape(*keep.shape, *[1] * dense)


def compressed(t, layout, dense):
    block = {"blocksize": (2, 3)} if layout in BLOCKED else {}
    return t.to_sparse(layout=layout, dense_dim=dense, **block)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("shape, dense", SHAPES, ids=str)
def test_there_and_back(layout, shape, dense):
    t = matrix(shape, dense)
    s = compressed(t, layout, dense)
    assert s.layout is layout and s.shape == t.shape and s.dense_dim() == dense
    assert s.to_dense().equal(t)
    assert s.clone().to_dense().equal(t) and s.detach().layout is layout
    assert (s * 2).to_dense().equal(t * 2) and s.sin().to_dense().allclose(t.sin())
    rows = layout in (fl.sparse_csr, fl.sparse_bsr)
    starts, plain = (s.crow_indices(), s.col_indices()) if rows else (s.ccol_indices(), s.row_indices())
    again = fl.sparse_compressed_tensor(starts, plain, s.values(), s.shape, layout=layout)
    assert again.to_dense().equal(t)
    assert s.to_sparse_coo().to_dense().equal(t)


@pytest.mark.parametrize("a, b", itertools.product(LAYOUTS, LAYOUTS), ids=str)
def test_from_one_layout_to_another(a, b):
    t = matrix((4, 6), 0)
    assert compressed(compressed(t, a, None), b, None).to_dense().equal(t)
    if a in BLOCKED or b not in BLOCKED:
        batch = matrix((2, 4, 6), 0)
        assert compressed(compressed(batch, a, None), b, None).to_dense().equal(batch)
    narrow = fl.sparse_csr_tensor(
        fl.tensor([0, 1, 2], dtype=fl.int32), fl.tensor([1, 0], dtype=fl.int32), fl.ones(2), (2, 2)
    )
    assert narrow.to_sparse_csc().row_indices().dtype is fl.int32


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_transposition_keeps_the_parts(layout):
    t = matrix((4, 6), 0)
    s = compressed(t, layout, None)
    turned = s.transpose(0, 1)
    swapped = dict(zip(LAYOUTS, [LAYOUTS[1], LAYOUTS[0], LAYOUTS[3], LAYOUTS[2]]))
    assert turned.layout is swapped[layout] and turned.to_dense().equal(t.t())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_reach_the_values(layout):
    s = compressed(matrix((4, 6), 0), layout, None)
    weight = fl.arange(24.0).reshape(4, 6)
    values = s.values().clone().requires_grad_()
    rows = layout in (fl.sparse_csr, fl.sparse_bsr)
    parts = (s.crow_indices(), s.col_indices()) if rows else (s.ccol_indices(), s.row_indices())
    made = fl.sparse_compressed_tensor(*parts, values, s.shape, layout=layout)
    (made.to_dense() * weight).sum().backward()
    expected = fl.sparse_compressed_tensor(*parts, values.grad, s.shape, layout=layout).to_dense()
    stored = fl.sparse_compressed_tensor(*parts, fl.ones_like(values), s.shape, layout=layout).to_dense()
    assert expected.equal(weight * stored)


def test_what_is_refused():
    t = matrix((4, 6), 0)
    with pytest.raises(RuntimeError, match="blocksize"):
        t.to_sparse_bsr((2,))
    with pytest.raises(RuntimeError, match="divisible by blocksize"):
        t.to_sparse_bsr((3, 3))
    with pytest.raises(RuntimeError, match="one start more"):
        fl.sparse_csr_tensor([0, 1], [0], [1.0], (2, 2))
    with pytest.raises(RuntimeError, match="grow from 0"):
        fl.sparse_csr_tensor([0, 2, 1], [0], [1.0], (2, 2))
    with pytest.raises(RuntimeError, match="in \\[0, 2\\)"):
        fl.sparse_csr_tensor([0, 1, 1], [5], [1.0], (2, 2))
    with pytest.raises(RuntimeError, match="sparse row compressed"):
        t.to_sparse_csc().crow_indices()


def test_out_forms_and_gradcheck_take_sparse_tensors():
    s = matrix((4, 6), 0).double().to_sparse()
    out = fl.sparse_coo_tensor(s.shape, dtype=fl.double)
    assert fl.sin(s, out=out) is out and out.to_dense().allclose(s.to_dense().sin())
    assert fl.autograd.gradcheck(lambda x: x.to_dense() * 2, s.requires_grad_(), masked=True)


def test_likes_of_sparse_tensors():
    s = matrix((4, 6), 0).to_sparse()
    drawn = fl.randn_like(s, layout=fl.strided)
    assert drawn.shape == s.shape and drawn.unique().numel() > 4
    assert fl.full_like(s, 3.0, layout=fl.strided).unique().tolist() == [3]
    for layout in LAYOUTS:
        zeros = fl.zeros_like(compressed(matrix((2, 4, 6), 0), layout, None))
        assert zeros.layout is layout and zeros.to_dense().equal(fl.zeros(2, 4, 6))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_sums_and_products_keep_the_layout(layout):
    a, b = matrix((2, 4, 6), 0), matrix((2, 4, 6), 0).flip(0)
    s, t = compressed(a, layout, None), compressed(b, layout, None)
    assert (s + t).layout is layout and (s + t).to_dense().allclose(a + b)
    assert (s * t).layout is layout and (s * t).to_dense().allclose(a * b)
