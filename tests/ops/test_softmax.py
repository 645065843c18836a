"""Softmax and log-softmax against their definition, along every dimension and layout."""

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F


def reference(x, dim):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


@pytest.mark.parametrize("shape", [(1,), (5,), (16,), (17, 15), (3, 100), (4, 33, 7), (2, 3, 130, 5), (1, 1, 6)])
@pytest.mark.parametrize("dtype,tolerance", [(fl.float32, 2e-6), (fl.float64, 1e-12), (fl.bfloat16, 1e-2)])
def test_every_dimension(shape, dtype, tolerance):
    x = fl.as_tensor(np.random.default_rng(0).standard_normal(shape) * 5).to(dtype)
    for dim in range(-1, len(shape)):
        want = reference(x.to(fl.float64).cpu().numpy(), dim)
        assert np.allclose(fl.softmax(x, dim).to(fl.float64).cpu().numpy(), want, atol=tolerance, rtol=tolerance)
        got = fl.log_softmax(x, dim).to(fl.float64).cpu().numpy()
        assert np.allclose(got, np.log(want), atol=10 * tolerance, rtol=tolerance)


def test_layouts():
    x = fl.randn(4, 6, 5, 3)
    for view in (x.contiguous(memory_format=fl.channels_last), x.transpose(0, 2), x[:, ::2], x.expand(2, 4, 6, 5, 3)):
        for dim in range(view.dim()):
            assert np.allclose(view.softmax(dim).cpu().numpy(), reference(view.cpu().numpy(), dim), atol=1e-6)


def test_infinities_and_nan():
    inf, nan = float("inf"), float("nan")
    assert fl.softmax(fl.tensor([-inf, 0.0, 0.0]), 0).tolist() == [0.0, 0.5, 0.5]
    assert np.isnan(fl.softmax(fl.tensor([nan] + [0.0] * 40), 0).cpu().numpy()).all()
    assert np.isnan(fl.softmax(fl.tensor([-inf, -inf]), 0).cpu().numpy()).all()
    big = fl.softmax(fl.tensor([1e4, 0.0, -1e4]), 0)
    assert big.tolist() == [1.0, 0.0, 0.0]
    assert fl.log_softmax(fl.tensor([1e4, 0.0]), 0).tolist() == [0.0, -1e4]


def test_dtype_and_zero_dims():
    assert fl.softmax(fl.tensor([1, 2, 3]), 0, dtype=fl.float64).dtype == fl.float64
    assert fl.softmax(fl.tensor(3.0), 0).item() == 1.0
    assert fl.softmax(fl.empty(0, 3), 1).shape == (0, 3)
    with pytest.raises(NotImplementedError):
        fl.softmax(fl.tensor([1, 2]), 0)
    with pytest.raises(IndexError):
        fl.softmax(fl.ones(2), 1)
    assert fl.softmax(fl.empty(2, 3, device="meta"), 1).device.type == "meta"


def test_functional_forms():
    x = fl.randn(3, 4)
    assert np.allclose(F.softmin(x, 1).cpu().numpy(), reference(-x.cpu().numpy(), 1), atol=1e-6)
    with pytest.warns(UserWarning):
        assert (F.softmax(x) == x.softmax(1)).all()
    hard = F.gumbel_softmax(x, hard=True)
    assert np.allclose(hard.cpu().numpy().sum(1), 1) and np.allclose(hard.cpu().numpy().max(1), 1)
    assert np.allclose(F.gumbel_softmax(x, tau=0.5, dim=0).cpu().numpy().sum(0), 1, atol=1e-6)
