"""Typed storages: what they are made of, casts, and those of quantized numbers."""

import pytest

import flambeau as fl
from flambeau.storage import LEGACY_CLASSES, StorageBase, TypedStorage, UntypedStorage

FloatStorage = LEGACY_CLASSES["FloatStorage"]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: FloatStorage(device="cpu"), RuntimeError),
        (lambda: FloatStorage(dtype=fl.float32), RuntimeError),
        (lambda: FloatStorage(0, 0), RuntimeError),
        (lambda: FloatStorage("text"), TypeError),
        (lambda: FloatStorage(fl.ones(2)), TypeError),
        (lambda: FloatStorage(wrap_storage=FloatStorage(2)), TypeError),
        (lambda: TypedStorage(wrap_storage=UntypedStorage(4)), RuntimeError),
        (lambda: TypedStorage(wrap_storage=UntypedStorage(4), dtype=0), TypeError),
        (lambda: FloatStorage(2).fill_(FloatStorage(2)), RuntimeError),
        (lambda: FloatStorage(2)["a"], RuntimeError),
        (StorageBase, RuntimeError),
    ],
)
def test_what_a_storage_is_not_made_of_is_refused(make, kind):
    with pytest.raises(kind):
        make()


def test_casts():
    storage = LEGACY_CLASSES["IntStorage"]([1, 2])
    assert storage.float().tolist() == [1.0, 2.0] and storage.float().dtype == fl.float32
    assert storage.bool().tolist() == [True, True]
    assert storage.int() is storage


def test_storages_of_quantized_numbers_hold_integers():
    storage = LEGACY_CLASSES["QInt8Storage"]([1, -2])
    assert storage.tolist() == [1, -2] and storage.nbytes() == 2 and storage.dtype is fl.qint8


def test_programs_derive_storages():
    class Own(StorageBase):
        pass

    assert isinstance(Own(UntypedStorage(2)), StorageBase)
    assert isinstance(UntypedStorage(2), StorageBase)


def test_typed_storages_are_said_to_go_away_once():
    from flambeau import storage

    storage._reset_warn_typed_storage_removal()
    with pytest.warns(UserWarning, match="TypedStorage is deprecated") as caught:
        fl.ones(2).storage()
        FloatStorage(2)
    assert len(caught) == 1 and caught[0].filename == __file__
