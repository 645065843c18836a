"""Backward refuses what it kept when its storage, size or parts were changed, and only then."""

import pytest

import flambeau as fl


def _set(w):
    w.set_(fl.tensor([5.0, 6.0]))


def _set_and_write(w):
    w.set_(fl.tensor([5.0, 6.0]))
    w.mul_(2)


def _shrink(w):
    w.resize_(1)


def _data_and_write(w):
    w.data = fl.tensor([5.0, 6.0])
    w.mul_(2)


@pytest.mark.parametrize("change", [_set, _set_and_write, _shrink, _data_and_write])
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_saved_tensor_with_another_storage_or_size_is_refused(change, writes):
    x = fl.ones(2, requires_grad=True)
    w = fl.tensor([3.0, 4.0])
    for _ in range(writes):
        w.add_(1)
    y = x * w
    change(w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_saved_result_that_is_set_is_refused():
    x = fl.ones(2, requires_grad=True)
    y = x.exp()
    with fl.no_grad():
        y.set_(fl.zeros(2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_data_that_is_assigned_is_no_write(writes):
    x = fl.ones(2, requires_grad=True)
    w, fresh = fl.tensor([3.0, 4.0]), fl.tensor([5.0, 6.0])
    for _ in range(writes):
        fresh.add_(0)
    w.add_(1)
    y = x * w
    w.data = fresh
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 6.0]
    assert w._version == 1


def test_written_values_of_a_saved_sparse_tensor_are_refused():
    matrix = fl.eye(2).to_sparse().coalesce()
    x = fl.ones(2, 2, requires_grad=True)
    y = fl.sparse.mm(matrix, x)
    matrix._values().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("resize", [lambda x: x.resize_(3), lambda x: x.resize_as_(fl.ones(3))])
def test_tensors_with_gradients_are_not_resized(resize):
    for x in (fl.ones(2, requires_grad=True), fl.ones(2, requires_grad=True) * 2):
        with fl.no_grad(), pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
            resize(x)
