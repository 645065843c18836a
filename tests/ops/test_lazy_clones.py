"""Clones whose bytes are copied when either tensor is written to."""

import pytest

import flambeau as fl
from flambeau import _C

pytestmark = pytest.mark.host


def test_reading_copies_nothing_and_the_first_write_does():
    t = fl.arange(4.0)
    address, storage = _C._data_address(t), _C._storage_address(t)
    clone = t._lazy_clone()
    view = t.view(2, 2)
    assert _C._is_cow_tensor(t) and _C._is_cow_tensor(clone) and _C._is_cow_tensor(view)
    assert (t + clone).tolist() == [0, 2, 4, 6]
    assert _C._data_address(clone) == address and _C._storage_address(clone) != storage
    view += 1
    assert not _C._is_cow_tensor(t) and _C._is_cow_tensor(clone)
    assert t.tolist() == [1, 2, 3, 4] and clone.tolist() == [0, 1, 2, 3]
    assert _C._data_address(t) != address and _C._data_address(clone) == address
    clone.mul_(2)  # the last one keeps the bytes
    assert not _C._is_cow_tensor(clone) and _C._data_address(clone) == address


def test_every_way_to_write_leaves_the_other_alone():
    def check(write):
        t = fl.arange(6.0)
        clone = t._lazy_clone()
        write(clone)
        assert t.tolist() == [0, 1, 2, 3, 4, 5]
        assert clone.tolist() != t.tolist()

    check(lambda c: c.fill_(1))
    check(lambda c: c.__setitem__(0, 9))
    check(lambda c: c.__setitem__(fl.tensor([1]), 9))
    check(lambda c: fl.add(fl.ones(6), 1, out=c))
    check(lambda c: c.numpy().__setitem__(0, 9))
    check(lambda c: c.untyped_storage().fill_(1))
    check(lambda c: fl._foreach_add_([c], 1))
    check(lambda c: c.normal_())
    check(lambda c: fl.compile(lambda x: x.add_(1))(c))
    check(lambda c: c.share_memory_().add_(1))
    check(lambda c: c.index_add_(0, fl.tensor([0]), fl.ones(1)))


def test_gradients_pass_through():
    t = fl.ones(3, requires_grad=True)
    (t._lazy_clone() * 2).sum().backward()
    assert t.grad.tolist() == [2, 2, 2]


def test_clones_outlive_each_other():
    before = _C._unusual_storages()
    t = fl.arange(1000.0)
    clones = [t._lazy_clone() for _ in range(3)]
    del t
    assert clones[0].sum() == 499500
    clones[1].zero_()
    del clones[0]
    assert clones[1].sum() == 499500
    del clones
    assert _C._unusual_storages() == before
