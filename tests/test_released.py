"""Objects that outlive the tensor they stand for, and tensors of storages."""

from __future__ import annotations

import weakref

import pytest

import flambeau as fl


def test_an_object_from_a_weak_reference_whose_tensor_is_gone():
    x = fl.ones(2)
    reference = weakref.ref(x)
    y = fl.ones(2)
    y.grad = x
    del x
    x = reference()
    del y
    with pytest.raises(RuntimeError, match="storage"):
        x.sigmoid()
    x.foo = 3
    del x


def test_tensors_of_storages():
    x = fl.arange(6.0).reshape(2, 3)
    storage = x.storage()
    assert fl.equal(fl.tensor(storage), x.flatten())
    assert fl.equal(fl.tensor(storage.untyped(), dtype=fl.float32), x.flatten())
    assert fl.tensor(storage).data_ptr() != x.data_ptr()
    with pytest.raises(RuntimeError, match="Expected a Storage of type"):
        fl.tensor(storage, dtype=fl.int64)
