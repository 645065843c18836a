"""Rounding to the grid of quantized tensors, and its gradient, are PyTorch's."""

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

VALUES = np.random.RandomState(0).standard_normal((3, 4)).astype(np.float32)


def compare(name, *args):
    results = []
    for lib in (torch, fl):
        x = lib.tensor(VALUES, requires_grad=True)
        made = getattr(lib, name)(x, *[lib.tensor(a) if isinstance(a, np.ndarray) else a for a in args])
        made.sum().backward()
        results.append((made.detach().numpy(), x.grad.numpy()))
    for want, got in zip(*results):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("scale, zero_point", [(0.1, 0), (0.01, 5), (np.float32(0.03), np.array(2, dtype=np.int32))])
def test_one_grid(scale, zero_point):
    scale = np.array(scale, dtype=np.float32) if isinstance(zero_point, np.ndarray) else scale
    compare("fake_quantize_per_tensor_affine", scale, zero_point, -128, 127)


def test_a_grid_for_each_channel():
    scale = np.array([0.01, 0.1, 0.02, 0.5], dtype=np.float32)
    compare("fake_quantize_per_channel_affine", scale, np.array([0, 1, 2, 3], dtype=np.int32), 1, 0, 15)
