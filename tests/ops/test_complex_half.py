"""complex32: pairs of halves that are stored, copied and converted, and computed with as complex64."""

import copy
import io
import pickle

import pytest

import flambeau as fl

pytestmark = pytest.mark.host

VALUES = [1 + 2j, -0.5j, 3 + 0j]


def half(*values):
    return fl.tensor(values or VALUES, dtype=fl.complex32)


def test_properties():
    assert fl.chalf is fl.complex32 and fl.complex32.itemsize == 4 and fl.complex32.is_complex
    assert fl.complex32.to_real() is fl.float16 and fl.float16.to_complex() is fl.complex32
    assert pickle.loads(pickle.dumps(fl.complex32)) is fl.complex32
    assert fl.finfo(fl.complex32).max == 65504
    assert "dtype=torch.complex32" in repr(half()).replace("flambeau", "torch")


@pytest.mark.parametrize("dtype", [fl.complex64, fl.complex128])
def test_conversions(dtype):
    x = half()
    assert x.tolist() == VALUES and x[0].item() == 1 + 2j
    assert x.to(dtype).tolist() == VALUES and x.to(dtype).chalf().tolist() == VALUES
    assert x.half().tolist() == [1, 0, 3] and x.to(fl.int32).tolist() == [1, 0, 3] and x.bool().tolist() == [True] * 3
    assert fl.tensor([1.5, -2.0]).chalf().tolist() == [1.5, -2]
    assert fl.tensor([1 / 3]).chalf().real.item() == fl.tensor(1 / 3).half().item()  # rounded once


def test_factories():
    assert fl.zeros(2, dtype=fl.chalf).tolist() == [0, 0] and fl.ones(2, dtype=fl.chalf).tolist() == [1, 1]
    assert fl.full((2,), 1j, dtype=fl.chalf).tolist() == [1j, 1j]
    assert fl.randn(5, dtype=fl.chalf).dtype is fl.chalf and fl.empty(0, dtype=fl.chalf).numel() == 0
    parts = fl.tensor([[1.0, 2.0], [0.0, -0.5]], dtype=fl.float16)
    assert fl.view_as_complex(parts).tolist() == [1 + 2j, -0.5j]
    assert fl.complex(parts[:, 0], parts[:, 1]).dtype is fl.chalf


def test_views_share_memory():
    x = half()
    fl.view_as_real(x)[0, 1] = 5
    assert x[0].item() == 1 + 5j and x.real.dtype is fl.float16
    assert x.view(fl.float16).tolist() == [1, 5, 0, -0.5, 3, 0] and x[1:].reshape(2, 1).t().tolist() == [[-0.5j, 3]]


def test_arithmetic():
    x, real = half(), fl.tensor([0.5, 1.0, 2.0], dtype=fl.float16)
    assert (x + x).tolist() == [2 + 4j, -1j, 6] and (x * x).dtype is fl.chalf and (x - 1).tolist() == [2j, -1 - 0.5j, 2]
    assert (x * real).dtype is fl.chalf and (real * 1j).dtype is fl.chalf and x.abs().dtype is fl.float16
    assert (x + fl.ones(3)).dtype is fl.complex64 and (x + fl.ones(3, dtype=fl.float64)).dtype is fl.complex128
    assert (x + fl.ones(3, dtype=fl.bfloat16)).dtype is fl.complex64 and x.conj().tolist() == [1 - 2j, 0.5j, 3]
    assert (x == x).all() and x.exp().dtype is fl.chalf


def test_promotion():
    for other in (fl.bool, fl.uint8, fl.int64, fl.float16):
        assert fl.promote_types(fl.complex32, other) is fl.promote_types(other, fl.complex32) is fl.complex32
    wider = {fl.float32: fl.complex64, fl.bfloat16: fl.complex64, fl.float64: fl.complex128, fl.complex64: fl.complex64}
    for other, result in wider.items():
        assert fl.promote_types(fl.complex32, other) is result
    assert fl.result_type(fl.ones(1, dtype=fl.float16), 1j) is fl.complex32
    assert fl.can_cast(fl.complex64, fl.complex32) and not fl.can_cast(fl.complex32, fl.float16)


def test_copies_and_files():
    x = half()
    buffer = io.BytesIO()
    fl.save({"x": x}, buffer)
    buffer.seek(0)
    for other in (x.clone(), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), fl.load(buffer)["x"], fl.from_dlpack(x)):
        assert other.dtype is fl.chalf and other.tolist() == VALUES
    assert fl.cat([x, x]).tolist() == VALUES * 2 and x[fl.tensor([2, 0])].tolist() == [3, 1 + 2j]
    with pytest.raises(TypeError):
        x.numpy()


def test_gradients():
    x = half().requires_grad_()
    (g,) = fl.autograd.grad((x * x).abs().sum(), x)
    assert g.dtype is fl.chalf and fl.allclose(g.to(fl.complex64), 2 * x.detach().to(fl.complex64), atol=1e-2)


def test_reductions_and_products():
    x = half()
    wide = x.to(fl.complex64)
    for function in (fl.sum, fl.prod, fl.mean, fl.fft.fft, fl.cumsum):
        args = (0,) if function is fl.cumsum else ()
        fl.testing.assert_close(function(x, *args), function(wide, *args).chalf(), rtol=2e-3, atol=2e-3)
    assert x.var().dtype is fl.float16 and x.norm().dtype is fl.float16 and fl.linalg.vector_norm(x).dtype is fl.float16
    fl.testing.assert_close(x.norm().float(), wide.norm(), rtol=1e-3, atol=0)
    assert bool(x.all()) and bool(x.any()) and x.count_nonzero().item() == 3
    assert x.index_add(0, fl.tensor([0]), x[:1])[0].item() == 2 + 4j
    assert (
        fl.nn.functional.conv1d(x.reshape(1, 1, 3), x[:1].reshape(1, 1, 1)).reshape(-1).tolist()
        == (wide * (1 + 2j)).tolist()
    )
    assert fl.linalg.det(fl.eye(2, dtype=fl.chalf) * 2j).item() == -4


def test_what_is_computed_wide_is_written_back_and_differentiated():
    x = half()
    x.index_add_(0, fl.tensor([2]), fl.ones(1, dtype=fl.chalf))
    assert x.dtype is fl.chalf and x.tolist() == [1 + 2j, -0.5j, 4]
    y = half().requires_grad_()
    fl.linalg.vector_norm(y).backward()
    assert y.grad.dtype is fl.chalf
