"""Tables of vectors trained with sparse gradients end where dense gradients lead."""

import pytest

import flambeau as fl


def train(sparse, make):
    table = fl.nn.Embedding(5, 3, sparse=sparse)
    with fl.no_grad():
        table.weight.copy_(fl.arange(15.0).reshape(5, 3) / 10)
    optimizer = make(list(table.parameters()))
    for _ in range(3):
        optimizer.zero_grad()
        (table(fl.tensor([1, 1, 3])) ** 2).sum().backward()
        assert table.weight.grad.is_sparse == sparse
        optimizer.step()
    return table.weight.detach()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: fl.optim.SGD(p, lr=0.1),
        lambda p: fl.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: fl.optim.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
        lambda p: fl.optim.Adagrad(p, lr=0.1),
    ],
)
def test_sparse_and_dense_gradients_agree(make):
    assert fl.allclose(train(True, make), train(False, make))


def test_sparse_adam_leaves_unused_rows_alone():
    after = train(True, lambda p: fl.optim.SparseAdam(p, lr=0.1))
    before = fl.arange(15.0).reshape(5, 3) / 10
    unused = fl.tensor([0, 2, 4])
    assert fl.equal(after[unused], before[unused]) and not fl.equal(after, before)


def test_adam_refuses_sparse_gradients():
    with pytest.raises(RuntimeError):
        train(True, lambda p: fl.optim.Adam(p))
