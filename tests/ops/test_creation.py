"""Tensors from nothing: values, dtypes, devices and errors of the functions that make them."""

import math

import numpy as np
import pytest

import flambeau as fl


@pytest.mark.parametrize(
    "dtype", [fl.float32, fl.float64, fl.float16, fl.bfloat16, fl.int64, fl.uint8, fl.bool, fl.complex64]
)
def test_constant_fills_have_the_dtype_asked_for(dtype):
    assert fl.zeros(2, 3, dtype=dtype).tolist() == [[0] * 3] * 2
    assert fl.ones((2, 3), dtype=dtype).tolist() == [[1] * 3] * 2
    assert fl.full([70000], 1, dtype=dtype).sum(dtype=fl.float64 if not dtype.is_complex else None).item() == 70000
    assert fl.zeros(2, dtype=dtype).dtype == dtype


def test_full_takes_its_dtype_from_the_value():
    assert fl.full((1,), True).dtype == fl.bool
    assert fl.full((1,), 2).dtype == fl.int64
    assert fl.full((1,), 2.5).dtype == fl.float32
    assert fl.full((1,), 2j).dtype == fl.complex64
    with pytest.raises(RuntimeError):
        fl.full((1,), 2j, dtype=fl.float32)


def test_sizes_come_as_arguments_or_as_a_sequence():
    assert fl.empty(2, 3).shape == fl.empty((2, 3)).shape == fl.empty(size=(2, 3)).shape == (2, 3)
    assert fl.zeros(()).shape == ()
    with pytest.raises(RuntimeError):
        fl.empty(-1)


def test_like_keeps_dtype_and_order_of_memory():
    x = fl.ones(2, 3, dtype=fl.int32).t()
    y = fl.zeros_like(x)
    assert y.dtype == fl.int32 and y.stride() == x.stride()
    assert fl.zeros_like(x, memory_format=fl.contiguous_format).stride() == (2, 1)
    assert fl.full_like(x, 7).tolist() == [[7, 7]] * 3
    assert x.new_full((2,), 3).dtype == fl.int32


def test_channels_last():
    x = fl.empty(2, 3, 4, 5, memory_format=fl.channels_last)
    assert x.stride() == (60, 1, 15, 3)
    assert x.is_contiguous(memory_format=fl.channels_last) and not x.is_contiguous()


@pytest.mark.parametrize("args", [(5,), (2, 7), (0, 10, 3), (10, 0, -4), (0.0, 1.0, 0.25), (1, 2.5), (5, 5)])
def test_arange_agrees_with_numpy(args):
    got = fl.arange(*args)
    want = np.arange(*args)
    assert got.dtype == (fl.int64 if want.dtype.kind == "i" else fl.float32)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_arange_rejects_steps_that_lead_away():
    with pytest.raises(RuntimeError):
        fl.arange(0, 5, -1)
    with pytest.raises(RuntimeError):
        fl.arange(0, 5, 0)


def test_spaced_values_include_both_ends_exactly():
    x = fl.linspace(0.1, 0.9, 7, dtype=fl.float64)
    np.testing.assert_allclose(x.numpy(), np.linspace(0.1, 0.9, 7))
    assert x[0].item() == 0.1 and x[-1].item() == 0.9
    np.testing.assert_allclose(fl.logspace(0, 3, 4, base=2).numpy(), [1, 2, 4, 8])
    assert fl.linspace(3, 4, 1).tolist() == [3]
    assert fl.linspace(fl.tensor(1.0), 3, 3).tolist() == [1, 2, 3]
    assert fl.linspace(0, 1, 0).shape == (0,)


def test_spaced_integers_keep_the_ends_of_their_range():
    low, high = -(2**63), 2**63 - 1
    assert fl.linspace(low, high, 5, dtype=fl.int64).tolist() == [low, -(2**62), 0, 2**62, high]
    assert fl.linspace(high, low, 2, dtype=fl.int64).tolist() == [high, low]
    assert fl.linspace(2**53 + 1, 2**53 + 3, 3, dtype=fl.int64).tolist()[::2] == [2**53 + 1, 2**53 + 3]
    assert fl.linspace(high - 9, high, 4, dtype=fl.int64).tolist()[1:] == [high] * 3
    assert fl.linspace(0, 2**31 - 2, 3, dtype=fl.int32).tolist() == [0, 2**30 - 1, 2**31 - 2]
    assert fl.linspace(-7, 8, 4, dtype=fl.int64).tolist() == [-7, -2, 3, 8]
    assert fl.linspace(high, 0, 1, dtype=fl.int64).tolist() == [high]


def test_eye_is_rectangular_when_asked():
    assert fl.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert fl.eye(3, dtype=fl.bool).numpy().trace() == 3


def test_out_decides_dtype():
    out = fl.empty(0, dtype=fl.int64)
    assert fl.arange(3, out=out) is out and out.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError):
        fl.zeros(2, dtype=fl.float32, out=fl.empty(2, dtype=fl.int64))


@pytest.mark.host
def test_default_device_applies_to_new_tensors_only():
    x = fl.ones(2)
    with fl.device("meta"):
        assert fl.zeros(2).is_meta and fl.tensor([1]).is_meta and fl.arange(3).is_meta
        assert not fl.zeros_like(x).is_meta and not x.new_zeros(2).is_meta
        with fl.device("cpu"):
            assert fl.ones(1).is_cpu
    assert fl.zeros(2).is_cpu
    fl.set_default_device("meta")
    try:
        assert fl.get_default_device() == fl.device("meta") and fl.ones(1).is_meta
    finally:
        fl.set_default_device(None)


def test_windows_follow_their_formulas():
    n = np.arange(6)
    np.testing.assert_allclose(fl.hann_window(6).numpy(), 0.5 - 0.5 * np.cos(2 * math.pi * n / 6), atol=1e-6)
    np.testing.assert_allclose(fl.hamming_window(6, periodic=False).numpy(), np.hamming(6), atol=1e-6)
    np.testing.assert_allclose(fl.blackman_window(6, False, dtype=fl.float64).numpy(), np.blackman(6), atol=1e-12)
    np.testing.assert_allclose(fl.bartlett_window(6, False).numpy(), np.bartlett(6), atol=1e-6)
    np.testing.assert_allclose(fl.kaiser_window(6, False, 5.0, dtype=fl.float64).numpy(), np.kaiser(6, 5.0), rtol=1e-6)
    np.testing.assert_allclose(
        fl.signal.windows.kaiser(6, beta=5.0, dtype=fl.float64).numpy(), np.kaiser(6, 5.0), rtol=1e-6
    )
    assert fl.signal.windows.hann(0).shape == (0,) and fl.signal.windows.gaussian(1).tolist() == [1]
    with pytest.raises(ValueError):
        fl.signal.windows.hann(-1)


def test_moving_keeps_the_order_of_dimensions_of_what_has_holes():
    assert fl.randn(64, 64).t()[2:10, 3:9].to("meta").stride() == (1, 8)
    assert fl.randn(4, 5, 6).permute(2, 0, 1)[::2].to("meta", fl.float64).stride() == (1, 15, 3)
    assert fl.randn(4, 1, 6).expand(4, 5, 6).to("meta").stride() == (30, 6, 1)


def test_arange_over_the_whole_range_of_integers():
    assert fl.arange(-(2**63), 2**63 - 1, 2**62).tolist() == [-(2**63), -(2**62), 0, 2**62]
    assert fl.arange(2**63 - 1, -(2**63), -(2**62)).tolist() == [2**63 - 1, 2**62 - 1, -1, -(2**62) - 1]
    assert fl.arange(5, 0, -2).tolist() == [5, 3, 1] and fl.arange(0, 5, 5).tolist() == [0]


@pytest.mark.parametrize("build", [fl.tensor, fl.as_tensor])
def test_lists_that_contain_themselves_are_refused(build):
    endless = [0]
    endless.append(endless)
    for data in (endless, [[1, 2], endless], [endless]):
        with pytest.raises(TypeError, match="self-referential lists are incompatible"):
            build(data)
