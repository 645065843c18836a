"""What functions under a transform may not do to tensors, and what jvp allows."""

import pytest

import flambeau as fl
from flambeau.func import grad, jvp, vmap


@pytest.mark.parametrize("transform", [grad, vmap, lambda f: vmap(grad(f)), lambda f: grad(lambda x: grad(f)(x).sum())])
def test_requires_grad_is_refused(transform):
    def f(x):
        x.requires_grad_()
        return x.sin().sum()

    with pytest.raises(RuntimeError, match=r"Tensor.requires_grad_\(\)"):
        transform(f)(fl.randn(3))


def test_tensors_of_the_function_may_ask_for_gradients():
    def f(x):
        scale = fl.ones(3, requires_grad=True)
        return (x * scale.detach().requires_grad_()).sum()

    assert fl.equal(grad(f)(fl.ones(3)), fl.ones(3))


def test_retain_grad_is_refused():
    def f(x):
        y = x.sin()
        y.retain_grad()
        return y.sum()

    with pytest.raises(RuntimeError, match=r"Tensor.retain_grad\(\)"):
        grad(f)(fl.randn(3))


def test_jvp_takes_hooks_for_saved_tensors():
    x, t = fl.randn(3), fl.randn(3)

    def f(x):
        with fl.autograd.graph.save_on_cpu():
            return x.sin().sum()

    assert fl.allclose(jvp(f, (x,), (t,))[1], (x.cos() * t).sum())
    with fl.autograd.graph.save_on_cpu():
        assert fl.allclose(jvp(lambda x: x.sin().sum(), (x,), (t,))[1], (x.cos() * t).sum())


def test_dimensions_of_another_structure_than_the_output_of_a_batching_rule():
    class Zeros(fl.autograd.Function):
        @staticmethod
        def forward(x):
            return fl.zeros(x.shape)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return fl.zeros(x.shape[1:]), (None,)

    with pytest.raises(RuntimeError, match="returned an incompatible"):
        vmap(Zeros.apply)(fl.randn(2, 3))
