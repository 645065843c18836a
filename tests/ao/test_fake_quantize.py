"""Fake quantization: values on the grid in floating point, and gradients that stop at its ends."""

import pytest

import flambeau as fl


def test_values_are_the_nearest_of_the_grid():
    x = fl.tensor([-10.0, -0.26, -0.24, 0.0, 0.13, 3.0])
    y = fl.fake_quantize_per_tensor_affine(x, 0.5, 2, 0, 7)
    assert y.tolist() == [-1.0, -0.5, 0.0, 0.0, 0.0, 2.5]
    quantized = fl.quantize_per_tensor(x.clamp(-1, 2.5), 0.5, 2, fl.quint8)
    assert fl.equal(y, quantized.dequantize())


def test_a_scale_for_each_channel():
    x = fl.tensor([[0.3, 1.3], [0.3, 1.3]])
    y = fl.fake_quantize_per_channel_affine(x, fl.tensor([0.5, 0.25]), fl.zeros(2, dtype=fl.int32), 0, -2, 2)
    assert y.tolist() == [[0.5, 1.0], [0.25, 0.5]]


@pytest.mark.parametrize("channels", [False, True])
def test_gradients_pass_inside_the_grid_only(channels):
    x = fl.tensor([-5.0, -0.4, 0.2, 5.0], requires_grad=True)
    if channels:
        y = fl.fake_quantize_per_channel_affine(x, fl.full((4,), 0.5), fl.zeros(4, dtype=fl.int32), 0, -4, 3)
    else:
        y = fl.fake_quantize_per_tensor_affine(x, 0.5, 0, -4, 3)
    y.backward(fl.tensor([1.0, 2.0, 3.0, 4.0]))
    assert x.grad.tolist() == [0, 2, 3, 0]


def test_scale_and_zero_point_may_be_tensors():
    x = fl.randn(8)
    wanted = fl.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15)
    got = fl.fake_quantize_per_tensor_affine(x, fl.tensor([0.25]), fl.tensor([3], dtype=fl.int32), 0, 15)
    assert fl.equal(got, wanted)


def test_mistakes_are_named():
    with pytest.raises(RuntimeError, match="floating point"):
        fl.fake_quantize_per_tensor_affine(fl.ones(2, dtype=fl.int64), 1.0, 0, 0, 1)
    with pytest.raises(RuntimeError, match="quant_min"):
        fl.fake_quantize_per_tensor_affine(fl.ones(2), 1.0, 0, 2, 1)
    with pytest.raises(RuntimeError, match="zero_point"):
        fl.fake_quantize_per_tensor_affine(fl.ones(2), 1.0, 9, 0, 7)
    with pytest.raises(RuntimeError, match="axis"):
        fl.fake_quantize_per_channel_affine(fl.ones(2), fl.ones(2), fl.zeros(2), 1, 0, 7)
    with pytest.raises(RuntimeError, match="scales"):
        fl.fake_quantize_per_channel_affine(fl.ones(2), fl.ones(3), fl.zeros(3), 0, 0, 7)


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16, fl.float64])
def test_values_of_other_precisions_take_the_place_that_single_precision_finds(dtype):
    fl.manual_seed(0)
    x = (fl.randn(500) * 8).to(dtype)
    wanted = fl.fake_quantize_per_tensor_affine(x.float(), 0.1, 10, 0, 255).to(dtype)
    for scale, zero_point in ((0.1, 10), (fl.tensor(0.1), fl.tensor(10, dtype=fl.int32))):
        got = fl.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 255)
        assert got.dtype is dtype and fl.equal(got, wanted)


def test_scales_of_channels_in_other_precisions_are_refused():
    x, zero_points = fl.randn(2, 3), fl.zeros(2, dtype=fl.int32)
    with pytest.raises(RuntimeError, match="expected scales of float32 or bfloat16"):
        fl.fake_quantize_per_channel_affine(x, fl.ones(2, dtype=fl.float64), zero_points, 0, 0, 255)


def test_empty_batches_change_no_range():
    low, high = fl.tensor(float("inf")), fl.tensor(float("-inf"))
    on, scale, zero_point = fl.tensor(1), fl.tensor([1.0]), fl.tensor([0], dtype=fl.int32)
    result = fl.fused_moving_avg_obs_fake_quant(fl.empty(0, 5), on, on, low, high, scale, zero_point, 0.01, 0, 255, 0)
    assert result.shape == (0, 5) and low.isinf()


def test_zero_points_between_places_are_added_before_rounding():
    x, scale, zero_point = fl.tensor([[0.2], [0.7]]), fl.tensor([1.0, 1.0]), fl.tensor([0.4, 0.4])
    got = fl.fake_quantize_per_channel_affine(x, scale, zero_point, 0, 0, 255)
    fl.testing.assert_close(got, fl.tensor([[0.6], [0.6]]))
