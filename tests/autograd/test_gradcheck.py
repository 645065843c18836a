"""What gradcheck finds beside wrong gradients of backward."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.autograd import Function, gradcheck, gradgradcheck
from flambeau.autograd.gradcheck import GradcheckError


@pytest.fixture
def x():
    return fl.tensor([0.3, 0.7], dtype=fl.double, requires_grad=True)


class Jittery(Function):
    @staticmethod
    def forward(ctx, x, jitter):
        ctx.jitter = jitter
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return Jittery.apply(gradient, ctx.jitter) * (1 + fl.rand_like(gradient) * ctx.jitter), None


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(("check", "jitter"), [(gradcheck, 1e-6), (gradgradcheck, 1e-12)])
def test_backwards_that_differ(x, check, jitter, fast_mode):
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        check(lambda x: Jittery.apply(x, jitter), x, fast_mode=fast_mode)
    assert check(lambda x: Jittery.apply(x, jitter), x, nondet_tol=1e-5, fast_mode=fast_mode)


def test_constants_that_change_with_an_input(x):
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, x)
    assert gradcheck(lambda x: fl.ones(2), x) and gradcheck(lambda x: (), (x,))


class Scaled(Function):
    """Twice the input, with a tangent of another factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None

    @staticmethod
    def jvp(ctx, tangent, _):
        return tangent * ctx.factor


def test_tangents_of_forward_mode(x):
    assert gradcheck(fl.sin, x, check_forward_ad=True)
    assert gradcheck(lambda x: Scaled.apply(x, 2), x, check_forward_ad=True)
    with pytest.raises(GradcheckError, match="forward mode mismatch for output 0 with respect to input 0"):
        gradcheck(lambda x: Scaled.apply(x, 3), x, check_forward_ad=True)
    assert gradcheck(lambda x: Scaled.apply(x, 3), x)
    with pytest.raises(AssertionError, match="at least one of"):
        gradcheck(fl.sin, x, check_backward_ad=False)


def test_backwards_that_vmap_cannot_follow(x):
    class Branching(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient if float(gradient.sum()) > -100 else gradient * 0

    assert gradcheck(fl.sin, x, check_batched_grad=True) and gradcheck(Branching.apply, x)
    with pytest.raises(GradcheckError, match="batched gradient"):
        gradcheck(Branching.apply, x, check_batched_grad=True)


def test_data_and_tangents_that_cannot_have_derivatives(x):
    with pytest.raises(RuntimeError, match="floating point or complex dtype"):
        x.data = fl.ones(2, dtype=fl.int64)
    with fl.autograd.forward_ad.dual_level():
        dual = fl.autograd.forward_ad.make_dual(x.detach(), fl.ones_like(x))
        with pytest.raises(RuntimeError, match="at the same level"):
            fl.autograd.forward_ad.make_dual(x.detach(), dual)
        with pytest.raises(ValueError, match="tangent to be floating point"):
            fl.autograd.forward_ad.make_dual(x.detach(), fl.ones(2, dtype=fl.int64))


def test_writes_to_one_of_several_views_say_so():
    leaf = fl.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="This view is the output of"):
        leaf.unbind()[0].add_(1)


def test_inputs_whose_numbers_share_memory_are_refused():
    with pytest.raises(RuntimeError, match="dimension with stride 0"):
        gradcheck(fl.sin, fl.ones(1, dtype=fl.float64, requires_grad=True).expand(2, 2), raise_exception=False)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_outputs_that_change_their_kind_nearby(fast_mode):
    at = fl.ones(1, dtype=fl.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="same shape when inputs are perturbed"):
        gradcheck(lambda x: fl.cat([x, x]) if bool((x >= 1).all()) else x, at, fast_mode=fast_mode)
    with pytest.raises(AssertionError, match="same dtype when inputs are perturbed"):
        gradcheck(lambda x: x.float() if bool((x >= 1).all()) else x, at, fast_mode=fast_mode)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, b: x.narrow(1, 2, 2).mul_(b),
        lambda x, b: x.t()[1:3].mul_(b.t()),
        lambda x, b: x.t_().narrow(0, 0, 2).add_(b.t()),
        lambda x, b: x[:, ::2].copy_(b),
        lambda x, b: x.view(2, 2, 4)[0, :, 1:3].add_(b[:2]),
    ],
)
def test_batched_gradients_of_writes_into_views(write):
    def function(root, b):
        x = root.clone()
        write(x, b)
        return x

    root, b = (fl.rand(4, n, dtype=fl.float64, requires_grad=True) for n in (4, 2))
    assert gradcheck(function, (root, b), check_batched_grad=True)
    assert gradgradcheck(function, (root, b), check_batched_grad=True)
