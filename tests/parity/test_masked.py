"""Tensors with masks beside PyTorch's."""

import warnings

import numpy as np
import pytest

import flambeau as fl
import flambeau.masked

torch = pytest.importorskip("torch")

DATA = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
MASK = np.random.default_rng(1).random((2, 3, 4)) > 0.4
MASK[1, 2] = False
CALLS = {
    "arithmetic": lambda L, x: (x * 2 + 1) / x.abs(),
    "dense": lambda L, x: x * L.ones(4) - L.ones(2, 3, 4),
    "compare": lambda L, x: x > 0,
    "unary": lambda L, x: L.exp(x.tanh()).clamp(0.1, 2),
    "where": lambda L, x: L.where(x.get_mask(), x, x * 2),
    "views": lambda L, x: x.reshape(6, 4).transpose(0, 1)[1:, ::2].unsqueeze(0),
    "expand": lambda L, x: x.unsqueeze(0).expand(2, 2, 3, 4),
    "join": lambda L, x: L.stack([L.cat([x, x]), L.cat([x, x])]),
    "convert": lambda L, x: x.to(L.float64),
    "softmax": lambda L, x: x.softmax(-1),
    "in place": lambda L, x: x.clone().add_(1).mul_(x),
    **{f"{name} {dim} {keep}": lambda L, x, name=name, dim=dim, keep=keep: getattr(x, name)(dim, keepdim=keep)
       for name in ("sum", "mean", "amax", "amin", "argmax", "argmin") for dim in (0, -1) for keep in (False, True)},
    **{f"{name} all": lambda L, x, name=name: getattr(L, name)(x) for name in ("sum", "mean", "amax", "prod", "std", "var")},
    "all": lambda L, x: (x > -5).all(),
    "all 1": lambda L, x: (x > 0).all(1),
    "refused product": lambda L, x: x @ x,
    "refused median": lambda L, x: x.median(),
}  # fmt: skip


def outcome(L, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = L.masked.masked_tensor(L.from_numpy(DATA.copy()), L.from_numpy(MASK.copy()))
        try:
            made = CALLS[name](L, x)
        except Exception as error:
            return type(error), None, None
        return None, made.get_data().numpy(), made.get_mask().numpy()


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    (error, data, mask), (their_error, their_data, their_mask) = outcome(fl, name), outcome(torch, name)
    assert error is their_error
    if error is None:
        assert np.array_equal(mask, their_mask) and data.dtype == their_data.dtype
        assert np.allclose(data[mask], their_data[mask], atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("shape", [(2, 3, 4), (6, 4), (24,)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_text(shape, dtype):
    texts = []
    for L in (fl, torch):
        data, mask = L.from_numpy(DATA.reshape(shape) * 3), L.from_numpy(MASK.reshape(shape))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            texts.append(repr(L.masked.masked_tensor(data.to(getattr(L, dtype)), mask)))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "prod"])
def test_gradients(name):
    found = []
    for L in (fl, torch):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = L.masked.masked_tensor(L.from_numpy(DATA.copy()), L.from_numpy(MASK.copy()), requires_grad=True)
            getattr(L, name)(x * x, *(() if name == "prod" else (-1,))).sum().backward()
            found.append(x.grad.get_data().numpy()[MASK])
    assert np.allclose(*found, rtol=1e-4, atol=1e-6)
