"""The Tensor class: construction, conversion, storages, copies, pickles, operators and subclasses."""

import copy
import pickle

import numpy as np
import pytest

import flambeau as fl

# ---------------------------------------------------------------------------------------------- construction


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1, fl.int64, ()),
        (1.5, fl.float32, ()),
        (True, fl.bool, ()),
        (1j, fl.complex64, ()),
        ([[1, 2], [3, 4.5]], fl.float32, (2, 2)),
        ([True, 2], fl.int64, (2,)),
        ([[], []], fl.float32, (2, 0)),
        (range(3), fl.int64, (3,)),
        (np.ones((2, 3)), fl.float64, (2, 3)),
        ([np.ones(2), np.zeros(2)], fl.float64, (2, 2)),
        (np.float64(2), fl.float64, ()),
        ([np.int32(1)], fl.int32, (1,)),
        ([fl.tensor(1.0), 2], fl.float32, (2,)),
    ],
)
def test_tensor_infers_shape_and_dtype(data, dtype, shape):
    x = fl.tensor(data)
    assert x.dtype == dtype and x.shape == shape


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("a", TypeError),
        (None, RuntimeError),
        ([None], RuntimeError),
        ([[1], [2, 3]], ValueError),
        ([1, [2]], TypeError),
        (2**70, ValueError),
    ],
)
def test_tensor_rejects_what_is_not_numbers(data, error):
    with pytest.raises(error):
        fl.tensor(data)


def test_python_types_stand_for_dtypes():
    assert fl.tensor([1], dtype=float).dtype == fl.float64 and fl.zeros(1, dtype=int).dtype == fl.int64
    with pytest.raises(TypeError):
        fl.tensor([1], dtype="int")


def test_as_tensor_shares_and_tensor_copies():
    array = np.zeros(3, dtype=np.float32)
    shared, copied = fl.as_tensor(array), fl.tensor(array)
    array[0] = 7
    assert shared[0] == 7 and copied[0] == 0
    assert fl.as_tensor(shared) is shared


def test_reversed_arrays_are_copied_or_refused():
    assert fl.tensor(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    with pytest.raises(ValueError):
        fl.from_numpy(np.arange(3)[::-1])


def test_numpy_shares_memory_and_keeps_it_alive():
    x = fl.zeros(2, 3)
    a = x.numpy()
    a[1, 2] = 5
    assert x[1, 2] == 5
    del x
    assert a.sum() == 5
    assert fl.zeros(0, 3).numpy().shape == (0, 3)
    with pytest.raises(TypeError):
        fl.zeros(2, dtype=fl.bfloat16).numpy()
    np.testing.assert_array_equal(np.asarray(fl.arange(3)), [0, 1, 2])


def test_buffers_and_dlpack():
    assert fl.frombuffer(bytearray(b"\x01\x00\x02\x00"), dtype=fl.int16).tolist() == [1, 2]
    assert fl.frombuffer(b"abcd", dtype=fl.uint8, offset=1, count=2).tolist() == [98, 99]
    with pytest.raises(ValueError):
        fl.frombuffer(bytearray(3), dtype=fl.int16)
    assert fl.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert np.from_dlpack(fl.arange(3)).tolist() == [0, 1, 2]


def test_legacy_types():
    assert fl.FloatTensor([1, 2]).dtype == fl.float32 and fl.LongTensor(2, 3).shape == (2, 3)
    assert isinstance(fl.ones(1), fl.FloatTensor) and not isinstance(fl.ones(1), fl.LongTensor)
    assert fl.ones(1).type() == "torch.FloatTensor" and fl.ones(1).type("torch.LongTensor").dtype == fl.int64
    assert fl.Tensor([1, 2]).dtype == fl.float32 and fl.Tensor(2, 3).shape == (2, 3)
    assert fl.ones(1, dtype=fl.int8).new([1]).dtype == fl.int8


# ---------------------------------------------------------------------------------------------- conversion


def test_to_returns_the_tensor_itself_when_nothing_changes():
    x = fl.ones(2)
    assert x.to(fl.float32) is x and x.to("cpu") is x and x.float() is x and x.to(x) is x and x.contiguous() is x
    assert x.to(fl.float32, copy=True) is not x
    assert x.to("cpu", fl.float64).dtype == fl.float64 and x.to(device="meta").is_meta
    assert x.to(fl.ones(1, dtype=fl.int8)).dtype == fl.int8


def test_halves_round_to_nearest_even():
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * 100
    np.testing.assert_array_equal(fl.from_numpy(values).half().numpy(), values.astype(np.float16))
    halves = values.astype(np.float16)
    np.testing.assert_array_equal(fl.from_numpy(halves).float().numpy(), halves.astype(np.float32))


def test_meta_tensors_have_no_data():
    x = fl.ones(2, device="meta")
    for call in (x.tolist, x.cpu):
        with pytest.raises(NotImplementedError):
            call()
    assert repr(x) == "tensor(..., device='meta', size=(2,))"


def test_resizing_keeps_what_the_storage_holds():
    x = fl.arange(4)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_(3).tolist() == [0, 1, 2]
    assert x.resize_(10).shape == (10,) and x[:4].tolist() == [0, 1, 2, 3]


# ---------------------------------------------------------------------------------------------- storages and copies


def test_there_is_one_storage_object_for_each_storage():
    x = fl.arange(6)
    assert x[2:].untyped_storage() is x.untyped_storage()
    assert x.untyped_storage().nbytes() == 48 and x.storage().size() == 6
    assert x[2:].storage().tolist() == [0, 1, 2, 3, 4, 5]
    assert isinstance(x.storage(), fl.LongStorage) and not isinstance(x.storage(), fl.FloatStorage)


def test_set_points_a_tensor_at_another_storage():
    x, y = fl.zeros(2, dtype=fl.int64), fl.arange(6)
    x.set_(y.untyped_storage(), 1, (2, 2), (2, 1))
    assert x.tolist() == [[1, 2], [3, 4]] and x.untyped_storage() is y.untyped_storage()
    with pytest.raises(RuntimeError):
        fl.zeros(2).set_(y)


def test_pickles_and_deep_copies_keep_sharing():
    x = fl.arange(6).reshape(2, 3)
    for a, b in (pickle.loads(pickle.dumps((x, x[1]))), copy.deepcopy((x, x[1]))):
        assert a.tolist() == x.tolist()
        a[1, 0] = 99
        assert b[0] == 99 and x[1, 0] == 3


def test_pickles_keep_strides_attributes_and_classes():
    assert pickle.loads(pickle.dumps(fl.ones(2, 3).t())).stride() == (1, 3)
    x = fl.ones(2)
    x.note = "kept"
    assert pickle.loads(pickle.dumps(x)).note == "kept"
    for value in (fl.float16, fl.device("cpu"), fl.Size([1, 2]), fl.strided, fl.channels_last, fl.add, fl.Tensor):
        assert pickle.loads(pickle.dumps(value)) == value


# ---------------------------------------------------------------------------------------------- operators


def test_numbers_on_the_left_promote_as_numbers():
    x = fl.tensor([1, 2, 4])
    assert (2 - x).tolist() == [1, 0, -2] and (2 - x).dtype == fl.int64
    assert (2.5 - x).dtype == fl.float32 and (4 / x).tolist() == [4, 2, 1]
    assert (5 // x).tolist() == [5, 2, 1] and (5 % x).tolist() == [0, 1, 1]
    assert (2**x).tolist() == [2, 4, 16] and (1 << x).tolist() == [2, 4, 16]
    assert (2 - fl.ones(2, dtype=fl.float16)).dtype == fl.float16
    assert (6 & x).tolist() == [0, 2, 4]


def test_comparison_with_other_things():
    x = fl.ones(2)
    assert (x == None) is False and (x != "a") is True  # noqa: E711
    with pytest.raises(TypeError):
        x < None  # noqa: B015
    with pytest.raises(TypeError):
        x + "a"


def test_conversion_to_python_numbers():
    assert int(fl.tensor([3])) == 3 and float(fl.tensor(1.5)) == 1.5 and [0, 1][fl.tensor(1)] == 1
    for kind in (int, float):
        with pytest.raises(ValueError):
            kind(fl.ones(2))
    with pytest.raises(RuntimeError):
        bool(fl.ones(2))
    with pytest.raises(RuntimeError):
        fl.ones(2).item()
    with pytest.raises(TypeError):
        len(fl.tensor(1))
    assert f"{fl.tensor(1.5):.3f}" == "1.500"


def test_filling_expanded_tensors_and_copying_numbers():
    assert fl.ones(1).expand(3).fill_(2).tolist() == [2, 2, 2]
    assert fl.ones(2).copy_(3).tolist() == [3, 3]
    with pytest.raises(RuntimeError):
        fl.ones(2).fill_(1j)
    with pytest.raises(RuntimeError):
        fl.ones(3).copy_(fl.ones(2))


# ---------------------------------------------------------------------------------------------- subclasses


class Marked(fl.Tensor):
    """A subclass without anything of its own."""


def test_results_of_subclasses_are_of_the_subclass():
    x = fl.ones(2).as_subclass(Marked)
    assert type(x + 1) is Marked and type(x.reshape(2, 1)) is Marked
    assert type(copy.deepcopy(x)) is Marked and type(pickle.loads(pickle.dumps(x))) is Marked
    assert repr(x) == "Marked([1., 1.])"


def test_data_shares_memory():
    x = fl.zeros(2)
    x.data[0] = 3
    assert x[0] == 3
    x.data = fl.ones(3, dtype=fl.float64)
    assert x.shape == (3,) and x.dtype == fl.float64
