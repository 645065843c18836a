"""Sparse tensors by coordinates: every operator agrees with the same operator on the dense tensor."""

import copy
import io
import pickle

import pytest

import flambeau as fl

INDICES = [[0, 1, 1, 0, 2], [2, 0, 2, 2, 1]]  # (0, 2) twice
VALUES = [3.0, 4.0, 5.0, -1.0, 2.5]


def sample(dtype=fl.float64, requires_grad=False):
    return fl.sparse_coo_tensor(INDICES, fl.tensor(VALUES, dtype=dtype), (3, 4), requires_grad=requires_grad)


def same(sparse, dense):
    assert sparse.shape == dense.shape and sparse.dtype == dense.dtype
    assert fl.allclose(sparse.to_dense() if sparse.layout != fl.strided else sparse, dense)


def test_parts():
    s = sample()
    assert s.layout is fl.sparse_coo and s.is_sparse and not s.is_sparse_csr and not s.is_coalesced()
    assert (s.sparse_dim(), s.dense_dim(), s._nnz(), s.dim(), s.numel()) == (2, 0, 5, 2, 12)
    assert s._indices().tolist() == INDICES and s._values().tolist() == VALUES
    with pytest.raises(RuntimeError, match="uncoalesced"):
        s.indices()
    c = s.coalesce()
    assert c.is_coalesced() and c.coalesce() is c
    assert c.indices().tolist() == [[0, 1, 1, 2], [2, 0, 2, 1]] and c.values().tolist() == [2.0, 4.0, 5.0, 2.5]
    assert s.to_dense().tolist() == [[0, 0, 2, 0], [4, 0, 5, 0], [0, 2.5, 0, 0]]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_dense_to_sparse_and_back(dims):
    x = fl.arange(24.0).reshape(2, 3, 4).remainder(3)
    s = x.to_sparse(dims)
    assert s.sparse_dim() == dims and s.is_coalesced() and fl.equal(s.to_dense(), x)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float16, fl.bfloat16, fl.int64, fl.uint8, fl.bool, fl.complex64])
def test_dtypes(dtype):
    x = fl.tensor([[0, 1, 0], [1, 0, 1]]).to(dtype)
    s = x.to_sparse()
    assert s.dtype == dtype and fl.equal(s.to_dense(), x) and fl.equal(s.t().coalesce().to_dense(), x.t())


def test_radix_sort_of_many_coordinates():
    fl.manual_seed(0)
    rows, columns = fl.randint(0, 3000, (20000,)), fl.randint(0, 70000, (20000,))
    values = fl.randint(-5, 6, (20000,)).double()
    c = fl.sparse_coo_tensor(fl.stack([rows, columns]), values, (3000, 70000)).coalesce()
    places = c.indices()[0] * 70000 + c.indices()[1]
    assert bool((places.diff() > 0).all())
    expected, inverse = fl.unique(rows * 70000 + columns, return_inverse=True)
    assert fl.equal(places, expected)
    assert fl.equal(c.values(), fl.zeros(expected.numel(), dtype=fl.float64).index_add(0, inverse, values))


@pytest.mark.parametrize(
    "make",
    [
        lambda: fl.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,)),
        lambda: fl.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,)),
        lambda: fl.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
        lambda: fl.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 2)),
        lambda: fl.sparse_coo_tensor([[0, 1]], [[1.0], [2.0]], (3, 2)),
        lambda: fl.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (-3,)),
    ],
)
def test_wrong_parts_are_refused(make):
    with pytest.raises(RuntimeError, match="expected"):
        make()


def test_sizes_are_found():
    assert fl.sparse_coo_tensor([[0, 4]], [1.0, 2.0]).shape == (5,)
    assert fl.sparse_coo_tensor(size=(2, 3))._nnz() == 0
    assert fl.sparse_coo_tensor(INDICES, 1.0, (3, 4))._values().tolist() == [1.0] * 5


def test_legacy_constructors():
    made = fl.sparse.FloatTensor(fl.tensor([[0, 1]]), fl.tensor([1.0, 2.0]), fl.Size([3]))
    assert made.to_dense().tolist() == [1.0, 2.0, 0.0] and isinstance(made, fl.sparse.FloatTensor)
    assert not isinstance(made, fl.sparse.DoubleTensor) and fl.sparse.LongTensor(2, 3).shape == (2, 3)


# ---------------------------------------------------------------------------------------------- operators


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s * 2,
        lambda s: 2 * s,
        lambda s: s / 2,
        lambda s: -s,
        lambda s: s.t(),
        lambda s: s.transpose(0, 1),
        lambda s: s.permute(1, 0),
        lambda s: s.abs(),
        lambda s: s.relu(),
        lambda s: s.sin(),
        lambda s: s.pow(2),
        lambda s: s + s,
        lambda s: s - 2 * s,
        lambda s: s * s,
        lambda s: s.sum(),
        lambda s: s.sum(0),
        lambda s: s.sum(1, keepdim=True),
        lambda s: s.sum((0, 1)),
        lambda s: s.clone(),
        lambda s: s.detach(),
        lambda s: s.float(),
        lambda s: s[1],
        lambda s: s.select(1, 2),
        lambda s: s.index_select(1, fl.tensor([2, 0, 2])),
        lambda s: s[fl.tensor([2, 0])],
        lambda s: s.unsqueeze(1),
        lambda s: fl.cat([s, s]),
        lambda s: fl.cat([s, 2 * s], 1),
        lambda s: fl.stack([s, s], 1),
        lambda s: fl.zeros_like(s),
        lambda s: s.norm(),
        lambda s: s @ fl.arange(8.0, dtype=fl.float64).reshape(4, 2),
        lambda s: fl.arange(6.0, dtype=fl.float64).reshape(2, 3) @ s,
        lambda s: s @ fl.ones(4, dtype=fl.float64),
        lambda s: s @ s.t(),
        lambda s: fl.ones(3, 4, dtype=fl.float64) + s,
        lambda s: fl.ones(3, 4, dtype=fl.float64) - s,
        lambda s: fl.full((3, 4), 2.0, dtype=fl.float64) * s,
        lambda s: s * fl.arange(4.0, dtype=fl.float64),
        lambda s: fl.addmm(fl.ones(3, 3, dtype=fl.float64), s, s.to_dense().t(), beta=2, alpha=3),
    ],
)
def test_operators_agree_with_dense(function):
    for s in (sample(), sample().coalesce()):
        same(function(s), function(s.to_dense()))


def test_dense_dimensions():
    values = fl.arange(12.0).reshape(3, 4)
    s = fl.sparse_coo_tensor([[2, 0, 2]], values, (3, 4))
    assert (s.sparse_dim(), s.dense_dim()) == (1, 1)
    for function in (
        lambda s: s * 3,
        lambda s: s.sum(0),
        lambda s: s.sum(1),
        lambda s: s.sum(),
        lambda s: s[2],
        lambda s: s.index_select(0, fl.tensor([2])),
        lambda s: s.unsqueeze(2),
        lambda s: s + s,
        lambda s: fl.ones(3, 4) + s,
        lambda s: fl.cat([s, s], 1),
    ):
        same(function(s), function(s.to_dense()))


def test_sparse_times_sparse_without_common_elements():
    a, b = fl.sparse_coo_tensor([[0]], [2.0], (3,)), fl.sparse_coo_tensor([[1]], [3.0], (3,))
    assert (a * b)._nnz() == 0 and (a + b).to_dense().tolist() == [2.0, 3.0, 0.0]
    assert fl.sparse_coo_tensor(size=(3,)).mul(a)._nnz() == 0


def test_batches_of_matrices():
    s = fl.stack([sample(), 2 * sample()])
    x = fl.arange(24.0, dtype=fl.float64).reshape(2, 4, 3)
    same(fl.bmm(s, x), fl.bmm(s.to_dense(), x))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_is_over_the_elements_that_are_there(name, dim):
    s = sample().coalesce()
    got = getattr(fl.sparse, name)(s, dim)
    hidden = s.to_dense().masked_fill(s.to_dense() == 0, float("-inf"))
    expected = getattr(fl, name)(hidden, dim)
    assert fl.allclose(got.values(), expected[tuple(s.indices())])


def test_in_place():
    s = sample()
    s.mul_(2)
    same(s, 2 * sample().to_dense())
    s.add_(sample())
    same(s, 3 * sample().to_dense())
    assert s.zero_()._nnz() == 0 and s.is_coalesced()
    s.copy_(sample())
    same(s, sample().to_dense())
    d = fl.ones(3, 4, dtype=fl.float64)
    d.add_(sample(), alpha=2)
    assert fl.allclose(d, 1 + 2 * sample().to_dense())


def test_masks_and_resizing():
    d, s = fl.arange(12.0, dtype=fl.float64).reshape(3, 4), sample()
    assert d.sparse_mask(s.coalesce()).values().tolist() == [2.0, 4.0, 6.0, 9.0]
    part = fl.sparse_coo_tensor([[0, 2], [2, 2]], [1.0, 1.0], (3, 4)).double().coalesce()
    assert s.sparse_mask(part).values().tolist() == [2.0, 0.0]
    grown = s.clone().sparse_resize_((5, 6), 2, 0)
    assert grown.shape == (5, 6) and fl.equal(grown.to_dense()[:3, :4], s.to_dense())
    assert s.clone().sparse_resize_and_clear_((2, 2, 2), 1, 2).dense_dim() == 2


@pytest.mark.parametrize("function", [fl.exp, fl.cos, lambda s: s == s, lambda s: s.view(12), lambda s: s + 1])
def test_what_has_no_sparse_meaning_is_refused(function):
    with pytest.raises(RuntimeError):
        function(sample())


def test_memory_is_never_read_as_if_it_were_dense():
    s = sample()
    for read in (s.tolist, s.data_ptr, s.stride, s.untyped_storage, lambda: s.nbytes):
        with pytest.raises(RuntimeError):
            read()
    with pytest.raises(TypeError):
        s.numpy()
    with pytest.raises(RuntimeError):
        bool(s)
    assert fl.sparse_coo_tensor([[0]], [1.5], (1,)).item() == 1.5


def test_printing():
    assert repr(sample().float()) == (
        "tensor(indices=tensor([[0, 1, 1, 0, 2],\n                       [2, 0, 2, 2, 1]]),\n"
        "       values=tensor([ 3.0000,  4.0000,  5.0000, -1.0000,  2.5000]),\n"
        "       size=(3, 4), nnz=5, layout=torch.sparse_coo)"
    )
    assert repr(fl.sparse_coo_tensor(size=(2, 2), requires_grad=True)).endswith(
        "layout=torch.sparse_coo, requires_grad=True)"
    )


def test_copies():
    s = sample(requires_grad=True)
    assert copy.deepcopy(s).requires_grad
    buffer = io.BytesIO()
    fl.save({"s": s}, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(s), pickle.loads(pickle.dumps(s)), fl.load(buffer)["s"]):
        assert other.layout is fl.sparse_coo and fl.equal(other.to_dense(), s.to_dense())
        assert not other.is_coalesced()
        assert other._values().data_ptr() != s._values().data_ptr()


# ---------------------------------------------------------------------------------------------- gradients


def test_gradients_reach_values_and_dense_operand():
    values = fl.tensor(VALUES, dtype=fl.float64, requires_grad=True)
    dense = fl.arange(8.0, dtype=fl.float64).reshape(4, 2).requires_grad_()

    def product(values, dense):
        return fl.sparse.mm(fl.sparse_coo_tensor(INDICES, values, (3, 4)), dense)

    assert fl.autograd.gradcheck(product, (values, dense))
    assert fl.autograd.gradgradcheck(product, (values, dense))


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s.to_dense(),
        lambda s: (s * 2 + s).to_dense(),
        lambda s: s.coalesce().values(),
        lambda s: (s * s).to_dense(),
        lambda s: (s @ s.t()).to_dense(),
        lambda s: fl.sparse.sum(s, 0).to_dense(),
        lambda s: fl.sparse.softmax(s, 1).to_dense(),
        lambda s: fl.sparse.log_softmax(s, 0).to_dense(),
        lambda s: s.tanh().to_dense(),
        lambda s: fl.cat([s, s.abs()]).to_dense(),
        lambda s: s[1].to_dense(),
        lambda s: s.index_select(0, fl.tensor([1, 1])).to_dense(),
        lambda s: fl.ones(3, 4, dtype=fl.float64) + s,
        lambda s: fl.ones(3, 4, dtype=fl.float64).sparse_mask(s.coalesce()).mul(2).to_dense() + s,
        lambda s: s.to_sparse_csr() @ fl.arange(8.0, dtype=fl.float64).reshape(4, 2),
    ],
)
def test_gradients_of_values(function):
    values = fl.tensor(VALUES, dtype=fl.float64, requires_grad=True)
    assert fl.autograd.gradcheck(lambda v: function(fl.sparse_coo_tensor(INDICES, v, (3, 4))), (values,))


def test_gradient_of_a_sparse_leaf_is_sparse():
    s = sample(requires_grad=True)
    assert s.is_leaf and s.requires_grad
    dense = fl.arange(8.0, dtype=fl.float64).reshape(4, 2)
    (s @ dense).sum().backward()
    assert s.grad.is_sparse and s.grad.coalesce().values().tolist() == [9.0, 1.0, 9.0, 5.0]
    (2 * s.to_dense()).sum().backward()
    assert s.grad.is_sparse and s.grad.coalesce().values().tolist() == [11.0, 3.0, 11.0, 7.0]
    s.grad = None
    fl.sparse.sum(s).backward()
    assert s.grad.coalesce().values().tolist() == [1.0] * 4


@pytest.mark.parametrize("options", [{}, {"dim": (0, 1)}])
def test_the_sum_of_all_elements_has_a_dense_gradient(options):
    s = sample(requires_grad=True)
    total = s.sum(**options)
    (total.to_dense() if total.is_sparse else total).sum().backward()
    assert not s.grad.is_sparse and fl.equal(s.grad, fl.ones(s.shape, dtype=s.dtype))


@pytest.mark.parametrize("shape", [(4, 5), (3, 1, 5), (2, 4, 1)])
def test_products_broadcast_dense_and_sparse(shape):
    s, d = fl.randn(4, 5).to_sparse(), fl.randn(shape)
    assert fl.allclose((s * d).to_dense(), s.to_dense() * d)
    assert fl.allclose((d * s).to_dense(), s.to_dense() * d)


def test_a_sparse_number_scales():
    s, scale = fl.randn(4, 5).to_sparse(), fl.tensor(2.0).to_sparse()
    assert fl.equal((s * scale).to_dense(), (scale * s).to_dense()) and fl.equal(
        (s * scale).to_dense(), s.to_dense() * 2
    )


def test_a_dense_tensor_is_multiplied_in_place():
    s, d = fl.randn(4, 5).to_sparse(), fl.randn(4, 5)
    assert fl.equal(d.clone().mul_(s), d * s.to_dense())


def test_slices_are_selected_from_the_end_as_well():
    s = fl.randn(4, 5).to_sparse()
    assert fl.equal(s.index_select(0, fl.tensor([-1, 0])).to_dense(), s.to_dense()[[-1, 0]])
    with pytest.raises(IndexError, match="out of range"):
        s.index_select(0, fl.tensor([4]))


def test_zeros_are_written_to_a_sparse_out():
    out = fl.eye(3).to_sparse()
    assert fl.zeros((2, 3), out=out) is out and out.shape == (2, 3) and out._nnz() == 0


@pytest.mark.parametrize("padding_idx", [None, 1])
def test_embedding_with_sparse_gradients(padding_idx):
    weight, index = fl.arange(12.0).reshape(4, 3), fl.tensor([[1, 3], [1, 0]])
    grads = []
    for sparse in (False, True):
        w = weight.clone().requires_grad_()
        for _ in range(2):
            out = fl.nn.functional.embedding(index, w, padding_idx=padding_idx, sparse=sparse)
            (out * fl.arange(12.0).reshape(2, 2, 3)).sum().backward()
        assert w.grad.is_sparse == sparse
        grads.append(w.grad.to_dense())
    assert fl.equal(*grads)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag_with_sparse_gradients(mode):
    index, offsets = fl.tensor([1, 3, 1, 0]), fl.tensor([0, 3])
    grads = []
    for sparse in (False, True):
        w = fl.arange(12.0).reshape(4, 3).requires_grad_()
        out = fl.nn.functional.embedding_bag(index, w, offsets, mode=mode, sparse=sparse)
        (out * fl.arange(6.0).reshape(2, 3)).sum().backward()
        assert w.grad.is_sparse == sparse
        grads.append(w.grad.to_dense())
    assert fl.allclose(*grads)


def test_sparse_gradients_through_other_operators():
    """Derivatives of operators that know dense gradients only get dense ones."""
    w = fl.arange(12.0).reshape(4, 3).requires_grad_()
    fl.nn.functional.embedding(fl.tensor([1, 1]), w.sin() * 2, sparse=True).sum().backward()
    expected = fl.zeros(4, 3)
    expected[1] = 4 * w[1].detach().cos()
    assert not w.grad.is_sparse and fl.allclose(w.grad, expected)


def test_sparse_and_dense_gradients_add_up():
    w = fl.ones(3, 2, requires_grad=True)
    fl.nn.functional.embedding(fl.tensor([1]), w, sparse=True).sum().backward()
    w.sum().backward()
    assert w.grad.to_dense().tolist() == [[1, 1], [2, 2], [1, 1]]
    fl.nn.functional.embedding(fl.tensor([0]), w, sparse=True).sum().backward()
    assert w.grad.to_dense().tolist() == [[2, 2], [2, 2], [1, 1]]
    (a,) = fl.autograd.grad(fl.nn.functional.embedding(fl.tensor([2]), w, sparse=True).sum() + w.sum(), w)
    assert a.to_dense().tolist() == [[1, 1], [1, 1], [2, 2]]


def test_large_products_in_parallel():
    fl.manual_seed(1)
    s = (fl.rand(400, 300) < 0.05).float() * fl.randn(400, 300)
    x = fl.randn(300, 300)
    assert fl.allclose(s.to_sparse() @ x, s @ x, atol=1e-4)
    for dtype in (fl.bfloat16, fl.float16, fl.int64, fl.complex64):
        a, b = (s * 4).round().to(dtype), (x * 4).round().to(dtype)
        assert fl.allclose((a.to_sparse() @ b).to(fl.complex64), (a @ b).to(fl.complex64), rtol=1e-2, atol=1e-1)


def test_selecting_keeps_integers_and_permuting_keeps_order():
    indices = fl.tensor([[0, 0, 1], [0, 0, 1]])
    t = fl.sparse_coo_tensor(indices, fl.ones(3, dtype=fl.int8), (3, 3))
    assert t[0, 0].dtype == fl.int8 and t[0, 0] == 2
    cube = fl.rand(2, 3, 4).to_sparse()
    assert cube.permute(0, 2, 1).is_coalesced() and not cube.permute(1, 0, 2).is_coalesced()
    assert fl.equal(cube.permute(0, 2, 1).to_dense(), cube.to_dense().permute(0, 2, 1))
    again = t.new(indices, fl.ones(3, dtype=fl.int8), (3, 3))
    assert fl.equal(again.to_dense(), t.to_dense())
    with pytest.raises(RuntimeError, match=r"blocksize.*, but got 1"):
        fl.randn(1).to_sparse(blocksize=(1,))


@pytest.mark.parametrize("coalesced", [True, False])
@pytest.mark.parametrize(("shape", "other"), [((3, 2, 5), (3, 1, 5)), ((3, 2, 5), (3, 2, 1)), ((3, 1, 4), (3, 2, 1))])
def test_products_broadcast_dense_dimensions(shape, other, coalesced):
    def draw(shape):
        t = fl.sparse_coo_tensor(fl.tensor([[0, 2, 2]]), fl.rand(3, *shape[1:], dtype=fl.float64), shape)
        return (t.coalesce() if coalesced else t).requires_grad_()

    x, y = draw(shape), draw(other)
    product = x * y
    assert product.is_sparse and fl.allclose(product.to_dense(), x.to_dense() * y.to_dense())
    assert fl.autograd.gradcheck(lambda a, b: (a * b).to_dense(), (x, y), masked=True) if coalesced else True
    with pytest.raises(RuntimeError, match="one shape"):
        x * fl.sparse_coo_tensor(fl.tensor([[0]]), fl.ones(1, *shape[1:], dtype=fl.float64), (1, *shape[1:]))


@pytest.mark.parametrize("name", ["asin_", "sqrt_", "relu_", "floor_", "log1p_"])
def test_functions_in_place_need_coalesced_tensors(name):
    t = fl.sparse_coo_tensor(fl.tensor([[0, 0, 1]]), fl.tensor([0.25, 0.25, 0.5]), (3,))
    with pytest.raises(RuntimeError, match=f"{name} requires coalesced input"):
        getattr(t, name)()
    expected = getattr(fl, name[:-1])(t.to_dense())
    assert fl.equal(getattr(t.coalesce(), name)().to_dense(), expected)


def test_positive_changes_nothing():
    s = fl.sparse_coo_tensor([[0, 1], [1, 0]], [1 + 2j, 3 - 4j], (2, 2))
    for one in (s, s.to_dense().to_sparse_csr()):
        assert (+one).to_dense().equal(s.to_dense()) and fl.positive(one).to_dense().equal(s.to_dense())
