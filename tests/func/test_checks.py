"""What transformations refuse, and what a function inside of one may not do."""

import pytest

import flambeau as fl
from flambeau.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap


@pytest.mark.parametrize("transform", [grad, jacrev, jacfwd])
def test_argnums(transform):
    x = fl.ones(()), fl.ones(())
    for argnums, said in (
        (2, "but only 2 positional"),
        (-3, "but only"),
        ([0], "int or Tuple"),
        (("0",), "must be int"),
    ):
        with pytest.raises(RuntimeError, match=said):
            transform(fl.mul, argnums=argnums)(*x)
    with pytest.raises(RuntimeError, match="must be unique"):
        transform(fl.mul, argnums=(0, -2))(*x)
    with pytest.raises(RuntimeError, match="must be non-empty"):
        transform(fl.mul, argnums=())(*x)


def test_outputs_must_be_tensors_and_aux_too():
    x = fl.ones(3)
    with pytest.raises(RuntimeError, match="non-empty output"):
        vjp(lambda t: (), x)
    with pytest.raises(RuntimeError, match="should be a tuple"):
        vjp(lambda t: [t, t], x, has_aux=True)
    with pytest.raises(RuntimeError, match="Expected tensors, got unsupported type"):
        jvp(lambda t: (t, 1.0), (x,), (x,), has_aux=True)
    _, pull = vjp(lambda t: (t, (t, t)), x)
    with pytest.raises(RuntimeError, match="Expected pytree structure"):
        pull(((x, (x, x)),))
    with pytest.raises(RuntimeError, match="same python structure"):
        jvp(fl.sin, (x,), x)
    with pytest.raises(RuntimeError, match="Expected all inputs to be real"):
        jacrev(lambda t: t.conj())(fl.ones(2, dtype=fl.cfloat))


def test_stateful_autograd_is_refused_inside():
    class Sine(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos()

    for transform in (grad, jacrev, hessian, vmap):
        with pytest.raises(RuntimeError, match="must override the setup_context"):
            transform(lambda x: Sine.apply(x).sum())(fl.ones(3))
    with pytest.raises(RuntimeError, match="torch\\.autograd\\.functional"):
        grad(lambda x: fl.autograd.functional.jacobian(fl.sin, x).sum())(fl.ones(()))
    with pytest.raises(RuntimeError, match="saved tensor hooks"), fl.autograd.graph.save_on_cpu():
        grad(lambda x: x.sin().sum())(fl.ones(3))

    def hooked(x):
        with fl.autograd.graph.save_on_cpu():
            return x.sin().sum()

    with pytest.raises(RuntimeError, match="saved tensor hooks"):
        grad(hooked)(fl.ones(3))
    assert fl.autograd.functional.jacobian(fl.sin, fl.ones(())).shape == ()


def test_inputs_of_forward_mode_may_be_written():
    x, t = fl.tensor([1.0, 2.0]), fl.ones(2)
    value, tangent = jvp(lambda a: a.mul_(3), (x.clone(),), (t,))
    assert value.tolist() == [3, 6] and tangent.tolist() == [3, 3]
    with fl.autograd.forward_ad.dual_level():
        dual = fl.autograd.forward_ad.make_dual(x.clone(), t)
        assert fl.autograd.forward_ad.unpack_dual(dual).tangent is t
        dual.mul_(2)
        assert fl.autograd.forward_ad.unpack_dual(dual).tangent.tolist() == [2, 2]
