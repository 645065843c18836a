"""Views and reshapes: what shares memory, what copies, and the geometry of both."""

import itertools

import numpy as np
import pytest

import flambeau as fl


def shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def test_reshape_views_when_it_can_and_copies_when_it_must():
    x = fl.arange(12).reshape(3, 4)
    assert shares(x.reshape(2, 6), x)
    assert not shares(x.t().reshape(6, 2), x)
    assert x.t().reshape(-1).tolist() == x.cpu().numpy().T.reshape(-1).tolist()
    assert shares(x[:, :2].reshape(3, 2, 1), x)
    with pytest.raises(RuntimeError):
        x.view(5, 5)
    with pytest.raises(RuntimeError):
        x.t().view(-1)
    with pytest.raises(RuntimeError):
        x.reshape(-1, -1)


def test_flatten_and_unflatten():
    x = fl.zeros(2, 3, 4)
    assert x.flatten().shape == (24,) and x.flatten(1).shape == (2, 12) and x.flatten(0, 1).shape == (6, 4)
    assert x.flatten(1, 1) is x
    assert fl.zeros(()).flatten().shape == (1,)
    assert x.unflatten(2, (2, -1)).shape == (2, 3, 2, 2)
    with pytest.raises(RuntimeError):
        x.flatten(2, 1)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(5, 7), (33, 65), (20, 3, 70), (2, 17, 18, 19)])
def test_copies_between_any_two_orders_of_dimensions(shape, dtype):
    a = (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)
    for order in itertools.permutations(range(len(shape))):
        np.testing.assert_array_equal(fl.as_tensor(a).permute(order).contiguous().cpu().numpy(), a.transpose(order))


def test_channels_last_round_trip():
    x = fl.arange(2 * 20 * 9 * 5).reshape(2, 20, 9, 5)
    y = x.to(memory_format=fl.channels_last)
    assert y.stride() == (900, 1, 100, 20) and y.tolist() == x.tolist()
    assert y.contiguous().stride() == x.stride()


def test_changes_to_the_tensor_itself():
    x = fl.arange(6).reshape(1, 2, 3)
    assert x.squeeze_() is x and x.shape == (2, 3)
    assert x.t_().shape == (3, 2) and x.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.unsqueeze_(-1).shape == (3, 2, 1)
    assert x.transpose_(0, 1).shape == (2, 3, 1)
    assert x.as_strided_((2,), (3,)).tolist() == [0, 3]


def test_movedim_and_its_errors():
    x = fl.zeros(2, 3, 4)
    assert x.movedim(0, -1).shape == (3, 4, 2)
    assert x.movedim((0, 1), (2, 0)).shape == (3, 4, 2)
    with pytest.raises(RuntimeError):
        x.movedim((0, 0), (1, 2))
    with pytest.raises(IndexError):
        x.movedim(3, 0)


def test_attributes_that_are_views():
    x = fl.arange(6).reshape(2, 3)
    assert x.T.shape == (3, 2) and shares(x.T, x) and x.mT.shape == (3, 2)
    z = fl.tensor([[1 + 2j, 3 - 4j]])
    assert z.H.tolist() == [[1 - 2j], [3 + 4j]] and z.real.tolist() == [[1, 3]] and z.imag.tolist() == [[2, -4]]
    z.real = 5.0
    assert z.tolist() == [[5 + 2j, 5 - 4j]]
    assert fl.view_as_complex(fl.view_as_real(z)).tolist() == z.tolist()
    with pytest.raises(RuntimeError):
        x.imag  # noqa: B018


def test_views_as_another_dtype():
    x = fl.tensor([1.0, -1.0])
    assert x.view(fl.int32).tolist() == [0x3F800000, 0xBF800000 - 2**32]
    assert x.view(fl.uint8).shape == (8,)
    with pytest.raises(RuntimeError):
        fl.zeros(3, dtype=fl.uint8).view(fl.int32)


@pytest.mark.parametrize("dtype", [fl.uint8, fl.int16, fl.bfloat16, fl.float32, fl.float64, fl.complex128], ids=str)
def test_copies_of_transposed_tensors(dtype):
    for shape in ((16, 16), (40, 72), (65, 33), (3, 35, 34), (2, 32, 5, 48)):
        count = 1
        for n in shape:
            count *= n
        x = fl.arange(count).remainder(251).reshape(shape).to(dtype)
        plain = x.to(fl.complex128).cpu().numpy()
        for one, two in ((-1, -2), (0, -1)):
            copy = x.transpose(one, two).contiguous()
            assert copy.is_contiguous()
            np.testing.assert_array_equal(copy.to(fl.complex128).cpu().numpy(), plain.swapaxes(one, two))


def test_slices_with_a_step_beyond_all_sizes():
    x = fl.arange(10)
    assert x[:: 2**63 - 1].tolist() == [0] and x[3 :: 2**62].tolist() == [3] and x[10 :: 2**62].tolist() == []
    assert fl.slice_copy(x, 0, 3, None, 2**63 - 1).tolist() == [3]
