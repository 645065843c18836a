"""Storages of foreign bytes, seeds, overlap and the other small answers that programs rely on."""

from __future__ import annotations

import operator

import pytest

import flambeau as fl


def test_bytes_in_the_other_order_are_swapped():
    data = bytearray([1, 2, 3, 4])
    assert fl.ShortStorage.from_buffer(data, "big").tolist() == [258, 772]
    assert fl.IntStorage.from_buffer(data, "little").tolist() == [67305985]
    assert fl.FloatStorage.from_buffer(bytearray([0x40, 0x10, 0, 0]), "big").tolist() == [2.25]
    assert fl.BoolStorage.from_buffer(bytearray([0, 1, 7]), "big").tolist() == [False, True, True]
    with pytest.raises(ValueError, match="byte_order"):
        fl.ShortStorage.from_buffer(data, "middle")


def test_storages_know_their_size():
    sizes = [fl.zeros(n).storage().__sizeof__() for n in (0, 10, 100)]
    assert sizes[1] - sizes[0] == 40 and sizes[2] - sizes[0] == 400


def test_gradients_along_complex_steps():
    (got,) = fl.gradient(fl.arange(4.0), spacing=1 + 1j)
    fl.testing.assert_close(got, fl.full((4,), 0.5 - 0.5j))


def test_seeds_wrap_around_and_overflow():
    fl.manual_seed(-1)
    assert fl.initial_seed() == 2**64 - 1
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        fl.manual_seed(2**64)


def test_overlap_is_named():
    x = fl.arange(6.0)
    with pytest.raises(RuntimeError, match=r"unsupported operation.*single memory location"):
        fl.addcmul(x[:3], x[1:4], x[1:4], out=x[1:4].as_strided((3,), (1,), 2))
    with pytest.raises(RuntimeError, match=r"unsupported operation.*single memory location"):
        x.index_add_(0, fl.tensor([0, 1, 2]), x[:3])


def test_wrong_kinds_are_named():
    with pytest.raises(TypeError, match=r"can only concatenate tuple \(not range\) to torch\.Size"):
        operator.concat(fl.Size([1]), range(2))
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        fl.ones(2).__contains__("foo")
    assert fl.Tensor(fl.tensor(2.0)).shape == ()


def test_assertions_about_tensors():
    for true in (fl.tensor(1), fl.tensor(-0.1), fl.tensor(True), fl.tensor(0.1j)):
        fl._assert_async(true)
    with pytest.raises(RuntimeError, match="single nonzero value, but got zero"):
        fl._assert_async(fl.tensor(0.0))
    with pytest.raises(RuntimeError, match="the text of the caller"):
        fl._assert_async(fl.tensor(False), "the text of the caller")
    with pytest.raises(RuntimeError, match="expected one element"):
        fl._assert_async(fl.tensor([0, 0]))
