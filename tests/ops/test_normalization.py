"""Normalisations against NumPy, in every layout and precision."""

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape) * 3 + 2


def standardized(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize(
    "dtype,tolerance", [(fl.float32, 1e-5), (fl.float64, 1e-12), (fl.bfloat16, 5e-2), (fl.float16, 1e-2)]
)
@pytest.mark.parametrize("shape,axes", [((4, 5), (1,)), ((7, 3, 33), (2,)), ((2, 3000), (1,)), ((2, 3, 4), (1, 2))])
def test_layer_norm(shape, axes, dtype, tolerance):
    normalized = [shape[a] for a in axes]
    x, w, b = (fl.as_tensor(array(*s)).to(dtype) for s in (shape, normalized, normalized))
    wide = [t.to(fl.float64).cpu().numpy() for t in (x, w, b)]
    want = standardized(wide[0], axes)
    close = {"atol": tolerance * 10, "rtol": tolerance * 10}
    assert np.allclose(F.layer_norm(x, normalized).to(fl.float64).cpu().numpy(), want, **close)
    assert np.allclose(
        F.layer_norm(x, normalized, w, b).to(fl.float64).cpu().numpy(), want * wide[1] + wide[2], **close
    )
    _, mean, rstd = fl.native_layer_norm(x, normalized, w, b, 1e-5)
    assert mean.shape == rstd.shape == tuple(1 if i in axes else s for i, s in enumerate(shape))


def test_layer_norm_is_accurate_far_from_zero():
    x = fl.as_tensor((array(3, 5000) + 1e4).astype(np.float32))
    got = F.layer_norm(x, (5000,)).cpu().numpy()
    assert np.allclose(got, standardized(x.cpu().numpy().astype(np.float64), 1), atol=2e-3)


def test_rms_norm():
    x, w = array(6, 40), array(40)
    want = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3) * w
    assert np.allclose(F.rms_norm(fl.as_tensor(x), (40,), fl.as_tensor(w), eps=1e-3).cpu().numpy(), want)


def test_group_norm():
    x, w, b = array(3, 6, 4, 5), array(6), array(6)
    want = standardized(x.reshape(3, 2, -1), 2).reshape(x.shape) * w[:, None, None] + b[:, None, None]
    t = fl.as_tensor(x)
    for layout in (t, t.contiguous(memory_format=fl.channels_last)):
        got = F.group_norm(layout, 2, fl.as_tensor(w), fl.as_tensor(b))
        assert np.allclose(got.cpu().numpy(), want) and got.stride() == layout.stride()
    with pytest.raises(RuntimeError):
        F.group_norm(t, 4)
    with pytest.raises(ValueError):
        F.group_norm(fl.ones(1, 2), 2)


@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 7), (2, 5, 6, 4), (2, 3, 4, 2, 3), (300, 20)])
@pytest.mark.parametrize("dtype,tolerance", [(fl.float32, 1e-4), (fl.float64, 1e-10), (fl.bfloat16, 5e-2)])
def test_batch_norm(shape, dtype, tolerance):
    x = fl.tensor(array(*shape)).to(dtype)
    wide = x.to(fl.float64).cpu().numpy()
    axes = tuple(a for a in range(len(shape)) if a != 1)
    channels = [1, -1] + [1] * (len(shape) - 2)
    w, b = array(shape[1]), array(shape[1])
    parameter = fl.float32 if dtype == fl.bfloat16 else dtype
    layouts = [x]
    if len(shape) == 4:
        layouts += [x.contiguous(memory_format=fl.channels_last), x.transpose(2, 3).contiguous().transpose(2, 3)]
    for t in layouts:
        mean, var = fl.zeros(shape[1], dtype=parameter), fl.ones(shape[1], dtype=parameter)
        weight, bias = fl.as_tensor(w).to(parameter), fl.as_tensor(b).to(parameter)
        got = F.batch_norm(t, mean, var, weight, bias, training=True).to(fl.float64).cpu().numpy()
        want = standardized(wide, axes) * w.reshape(channels) + b.reshape(channels)
        assert np.allclose(got, want, atol=tolerance * 10, rtol=tolerance)
        assert np.allclose(mean.cpu().numpy(), 0.1 * wide.mean(axes), atol=1e-2 if dtype == fl.bfloat16 else 1e-5)
        assert np.allclose(
            var.cpu().numpy(), 0.9 + 0.1 * wide.var(axes, ddof=1), rtol=1e-2 if dtype == fl.bfloat16 else 1e-5
        )
        got = F.batch_norm(t, mean, var, training=False).to(fl.float64).cpu().numpy()
        m, v = (s.to(fl.float64).cpu().numpy().reshape(channels) for s in (mean, var))
        assert np.allclose(got, (wide - m) / np.sqrt(v + 1e-5), atol=tolerance * 10, rtol=tolerance)


def test_batch_norm_errors():
    x = fl.randn(2, 3)
    with pytest.raises(RuntimeError):
        F.batch_norm(x, None, None, training=False)
    with pytest.raises(ValueError):
        F.batch_norm(x[:1], None, None, training=True)
    with pytest.raises(RuntimeError):
        F.batch_norm(x, fl.zeros(4), fl.ones(4))
    with pytest.raises(NotImplementedError):
        F.batch_norm(fl.ones(2, 3, dtype=fl.int64), None, None, training=True)
    assert F.batch_norm(fl.empty(0, 3, 2), None, None, training=True).shape == (0, 3, 2)


def test_instance_norm():
    x = array(3, 4, 5, 6)
    mean, var = fl.zeros(4, dtype=fl.float64), fl.ones(4, dtype=fl.float64)
    got = F.instance_norm(fl.as_tensor(x), mean, var)
    assert np.allclose(got.cpu().numpy(), standardized(x, (2, 3)))
    assert np.allclose(mean.cpu().numpy(), 0.1 * x.mean((2, 3)).mean(0))
    with pytest.raises(ValueError):
        F.instance_norm(fl.ones(2, 3, 1))


def test_local_response_norm():
    x = array(2, 7, 3)
    for size in (1, 2, 3, 5):
        want = np.empty_like(x)
        for c in range(7):
            window = x[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1]
            want[:, c] = x[:, c] / (1.5 + 0.01 * (window**2).sum(1) / size) ** 0.6
        assert np.allclose(F.local_response_norm(fl.as_tensor(x), size, 0.01, 0.6, 1.5).cpu().numpy(), want)


def test_meta():
    x = fl.empty(2, 4, 3, 3, device="meta")
    assert F.layer_norm(x, (3,)).shape == x.shape
    assert F.batch_norm(x, None, None, training=True).device.type == "meta"
    assert F.group_norm(x, 2).shape == x.shape
