"""Sparse tensors beside PyTorch's: results, layouts, which element is where, and checkpoints."""

import io

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*beta state.*")

INDICES = [[0, 1, 1, 0, 2], [2, 0, 2, 2, 1]]
VALUES = [3.0, 4.0, 5.0, -1.0, 2.5]

FUNCTIONS = {
    "coalesce": lambda t, s: s.coalesce(),
    "t": lambda t, s: s.t(),
    "double": lambda t, s: s * 2,
    "add": lambda t, s: s + s,
    "add others": lambda t, s: s + s.coalesce(),
    "sum 0": lambda t, s: t.sparse.sum(s, 0),
    "sum": lambda t, s: t.sparse.sum(s),
    "mm": lambda t, s: t.sparse.mm(s, t.ones(4, 2)),
    "mm sparse": lambda t, s: t.sparse.mm(s, s.t()),
    "mv": lambda t, s: s @ t.ones(4),
    "dense mm": lambda t, s: t.ones(2, 3) @ s,
    "addmm": lambda t, s: t.sparse.addmm(t.ones(3, 2), s, t.ones(4, 2), beta=2.0, alpha=0.5),
    "softmax": lambda t, s: t.sparse.softmax(s, 1),
    "log_softmax": lambda t, s: t.sparse.log_softmax(s, 0),
    "relu": lambda t, s: t.relu(s),
    "sqrt": lambda t, s: s.abs().sqrt(),
    "select": lambda t, s: s[0],
    "index_select": lambda t, s: s.index_select(1, t.tensor([2, 0])),
    "cat": lambda t, s: t.cat([s, s]),
    "stack": lambda t, s: t.stack([s, s]),
    "unsqueeze": lambda t, s: s.unsqueeze(0),
    "mask": lambda t, s: t.ones(3, 4).sparse_mask(s.coalesce()),
    "dense plus": lambda t, s: t.ones(3, 4) + s,
    "dense times": lambda t, s: t.ones(3, 4) * s,
    "zeros_like": lambda t, s: t.zeros_like(s),
    "csr": lambda t, s: s.to_sparse_csr(),
    "csr mm": lambda t, s: s.to_sparse_csr() @ t.ones(4, 2),
    "double dtype": lambda t, s: s.double(),
    "norm": lambda t, s: s.norm(),
    "to_sparse": lambda t, s: s.to_dense().to_sparse(),
    "to_sparse 1": lambda t, s: s.to_dense().to_sparse(1),
}


def make(t):
    return t.sparse_coo_tensor(t.tensor(INDICES), t.tensor(VALUES), (3, 4))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("coalesced", [False, True])
def test_same_result(name, coalesced):
    ours, theirs = (FUNCTIONS[name](t, make(t).coalesce() if coalesced else make(t)) for t in (fl, torch))
    assert str(ours.layout) == str(theirs.layout) and tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype) == str(theirs.dtype)
    if ours.layout is fl.sparse_coo and theirs.is_coalesced() and ours.is_coalesced():
        assert ours.indices().tolist() == theirs.indices().tolist()
    torch.testing.assert_close(torch.from_numpy(ours.to_dense().numpy()), theirs.to_dense())


def test_same_text():
    for edit in (lambda t, s: s, lambda t, s: s.to_sparse_csr(), lambda t, s: s.double(), lambda t, s: t.zeros_like(s)):
        assert repr(edit(fl, make(fl))) == repr(edit(torch, make(torch)))


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_checkpoints_cross_over(layout):
    for writer, reader in ((fl, torch), (torch, fl)):
        s = make(writer).coalesce().to_sparse(layout=getattr(writer, layout))
        buffer = io.BytesIO()
        writer.save({"s": s}, buffer)
        buffer.seek(0)
        loaded = reader.load(buffer, weights_only=True)["s"]
        assert str(loaded.layout) == str(s.layout) and loaded.to_dense().tolist() == s.to_dense().tolist()


def test_same_gradients():
    grads = []
    for t in (fl, torch):
        values, dense = t.tensor(VALUES, requires_grad=True), t.ones(4, 2, requires_grad=True)
        out = t.sparse.mm(t.sparse_coo_tensor(t.tensor(INDICES), values, (3, 4)), dense)
        (out * t.arange(6.0).reshape(3, 2)).sum().backward()
        grads.append((values.grad.tolist(), dense.grad.tolist()))
    assert grads[0][0] == pytest.approx(grads[1][0])
    assert grads[0][1] == grads[1][1]
