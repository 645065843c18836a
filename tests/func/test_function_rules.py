"""Functions that say themselves how they are batched and how tangents pass through them."""

from typing import ClassVar

import numpy as np
import pytest

import flambeau as fl
from flambeau.autograd import Function, forward_ad
from flambeau.func import grad, jacfwd, jvp, vmap


class Doubled(Function):
    """Computed by NumPy, so that nothing but its own rule can batch it."""

    calls: ClassVar[list] = []

    @staticmethod
    def forward(x, scale):
        return fl.from_numpy(x.detach().numpy() * scale)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return Doubled.apply(g, ctx.scale), None

    @staticmethod
    def vmap(info, in_dims, x, scale):
        Doubled.calls.append((info.batch_size, info.randomness, in_dims))
        return Doubled.apply(x, scale), in_dims[0]


def test_own_batching_rule():
    x = fl.arange(6.0).reshape(2, 3)
    Doubled.calls.clear()
    assert vmap(lambda row: Doubled.apply(row, 2.0))(x).tolist() == (x * 2).tolist()
    assert Doubled.calls == [(2, "error", (0, None))]
    assert vmap(lambda row: Doubled.apply(row, 2.0), in_dims=1, out_dims=1)(x).tolist() == (x * 2).tolist()
    assert Doubled.calls[-1] == (3, "error", (1, None))


def test_own_batching_rule_and_gradients():
    x = fl.arange(6.0).reshape(2, 3)
    inside = vmap(grad(lambda row: (Doubled.apply(row, 3.0) * fl.arange(3.0)).sum()))(x)
    assert inside.tolist() == [[0.0, 3.0, 6.0]] * 2
    leaf = x.clone().requires_grad_()
    vmap(lambda row: Doubled.apply(row, 3.0))(leaf).sum().backward()
    assert leaf.grad.tolist() == [[3.0] * 3] * 2
    nested = vmap(vmap(lambda v: Doubled.apply(v.reshape(1), 2.0)))(x)
    assert nested.tolist() == (x * 2).unsqueeze(2).tolist()


def test_rule_has_to_say_where_the_batch_is():
    class Wrong(Doubled):
        @staticmethod
        def vmap(info, in_dims, x, scale):
            return x

    with pytest.raises(RuntimeError, match="out_dims"):
        vmap(lambda row: Wrong.apply(row, 2.0))(fl.ones(2, 3))


class Exponential(Function):
    """With a jvp only, which takes what it needs off its context."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.result = output

    @staticmethod
    def jvp(ctx, tangent):
        moved = tangent * ctx.result
        del ctx.result
        return moved


def test_forward_mode_goes_by_jvp():
    x, t = fl.tensor([0.5, -1.0]), fl.tensor([2.0, 3.0])
    want = x.exp() * t
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        moved = forward_ad.unpack_dual(Exponential.apply(dual))
        np.testing.assert_allclose(moved.tangent.numpy(force=True), want.numpy(), rtol=1e-6)
    np.testing.assert_allclose(jvp(Exponential.apply, (x,), (t,))[1].numpy(), want.numpy(), rtol=1e-6)
    np.testing.assert_allclose(jacfwd(Exponential.apply)(x).numpy(), np.diag(x.exp().numpy()), rtol=1e-6)
    with pytest.raises(NotImplementedError):
        Exponential.apply(x.clone().requires_grad_()).sum().backward()


def test_forward_mode_uses_what_was_saved_for_it():
    class Product(Function):
        @staticmethod
        def forward(a, b):
            return a * b

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, ta, tb):
            a, b = ctx.saved_tensors
            return ta * b + a * tb

    a, b = fl.tensor([2.0, 3.0]), fl.tensor([5.0, 7.0])
    out, moved = jvp(Product.apply, (a, b), (fl.ones(2), fl.tensor([1.0, 0.0])))
    assert out.tolist() == [10.0, 21.0] and moved.tolist() == [7.0, 7.0]
