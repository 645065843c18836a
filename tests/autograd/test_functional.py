"""Functional API, func transformations, gradient checks, checkpointing and training by hand."""

import math

import pytest

import flambeau as fl
from flambeau import func
from flambeau.autograd import functional, gradcheck, gradgradcheck
from flambeau.utils.checkpoint import checkpoint, checkpoint_sequential


def random(*shape, seed=0):
    return fl.randn(*shape, generator=fl.Generator(fl.get_default_device()).manual_seed(seed), dtype=fl.float64)


def test_products_and_matrices():
    x = random(3)
    a = random(3, 3, seed=1)

    def f(x):
        return a @ x.sin()

    full = a * x.cos()
    v = random(3, seed=2)
    assert fl.allclose(functional.jacobian(f, x), full)
    assert fl.allclose(functional.vjp(f, x, v)[1], v @ full)
    assert fl.allclose(functional.jvp(f, x, v)[1], full @ v)

    def g(x):
        return (x**3).sum()

    assert fl.allclose(functional.hessian(g, x), fl.diag(6 * x))
    assert fl.allclose(functional.hvp(g, x, v)[1], 6 * x * v)
    assert fl.allclose(functional.vhp(g, x, v)[1], 6 * x * v)


def test_func_grad_nests():
    x = fl.tensor(2.0)
    assert func.grad(lambda x: x**3)(x).item() == 12.0
    assert func.grad(func.grad(lambda x: x**3))(x).item() == 12.0
    assert func.grad(func.grad(func.grad(lambda x: x**3)))(x).item() == 6.0
    assert not func.grad(lambda x: x**3)(x).requires_grad


def test_func_argnums_aux_and_value():
    def f(x, y):
        return x * y * y, x + 1

    x, y = fl.tensor(2.0), fl.tensor(3.0)
    (gx, gy), aux = func.grad(f, argnums=(0, 1), has_aux=True)(x, y)
    assert (gx.item(), gy.item(), aux.item()) == (9.0, 12.0, x.item() + 1)
    (value, aux), g = func.value_and_grad(f, has_aux=True)(x, y)
    assert (value.item(), g.item()) == (18.0, 9.0)


def test_func_sees_outer_parameters():
    w = fl.tensor(3.0, requires_grad=True)
    g = func.grad(lambda x: w * x * x)(fl.tensor(2.0))
    g.backward()
    assert g.item() == 12.0 and w.grad.item() == 4.0


def test_jacobians_and_hessian():
    x = random(3)
    assert fl.allclose(func.jacrev(lambda x: x**2)(x), fl.diag(2 * x))
    assert fl.allclose(func.jacfwd(lambda x: x**2)(x), fl.diag(2 * x))
    assert fl.allclose(func.hessian(lambda x: (x**3).sum())(x), fl.diag(6 * x))
    _out, pull = func.vjp(lambda x: x.sin(), x)
    (pulled,) = pull(fl.ones(3, dtype=fl.float64))
    assert fl.allclose(pulled, x.cos())
    assert fl.allclose(func.jvp(lambda x: x.sin(), (x,), (fl.ones(3, dtype=fl.float64),))[1], x.cos())
    assert fl.allclose(func.vmap(lambda a, b: a * b, in_dims=(0, None))(x, x[0]), x * x[0])


def test_gradcheck_finds_errors():
    x = random(3).requires_grad_()
    assert gradcheck(lambda x: (x * x).exp(), x)
    assert gradgradcheck(lambda x: (x * x).exp(), x)

    class Wrong(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, x)
    assert not gradcheck(Wrong.apply, x, raise_exception=False)


def test_gradcheck_of_complex_numbers():
    z = fl.complex(random(3), random(3, seed=1)).requires_grad_()
    assert gradcheck(lambda z: z * z.conj() + z.exp(), z)
    assert gradcheck(lambda z: z.abs(), z)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    w = random(4, 4).requires_grad_()
    x = random(2, 4, seed=1).requires_grad_()
    runs = []

    def part(x):
        runs.append(1)
        return fl.nn.functional.dropout((x @ w).tanh(), 0.5)

    fl.manual_seed(3)
    out = checkpoint(part, x, use_reentrant=reentrant)
    after = fl.get_rng_state()
    out.sum().backward()
    assert len(runs) == 2 and fl.equal(after, fl.get_rng_state())
    got = (w.grad, x.grad)
    w.grad = x.grad = None
    fl.manual_seed(3)
    part(x).sum().backward()
    assert fl.allclose(got[0], w.grad) and fl.allclose(got[1], x.grad)


def test_checkpoint_sequential():
    x = random(3).requires_grad_()
    parts = [fl.sin, fl.cos, fl.exp, fl.tanh]
    checkpoint_sequential(parts, 2, x, use_reentrant=False).sum().backward()
    got, x.grad = x.grad, None
    x.sin().cos().exp().tanh().sum().backward()
    assert fl.allclose(got, x.grad)


# ---------------------------------------------------------------- training by hand


def test_linear_regression_finds_its_line():
    x = fl.linspace(-1, 1, 50).unsqueeze(1)
    y = 3 * x + 0.5
    w, b = fl.zeros(1, 1, requires_grad=True), fl.zeros(1, requires_grad=True)
    for _ in range(200):
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with fl.no_grad():
            for p in (w, b):
                p -= 0.3 * p.grad
                p.grad = None
    assert w.item() == pytest.approx(3.0, abs=1e-3) and b.item() == pytest.approx(0.5, abs=1e-3)


def test_two_layer_net_separates_xor():
    fl.manual_seed(0)
    x = fl.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = fl.tensor([0, 1, 1, 0])
    functional_ = fl.nn.functional
    parameters = [p.requires_grad_() for p in (fl.randn(16, 2), fl.zeros(16), fl.randn(2, 16) * 0.3, fl.zeros(2))]
    w1, b1, w2, b2 = parameters
    for _ in range(300):
        scores = functional_.linear(functional_.linear(x, w1, b1).tanh(), w2, b2)
        loss = functional_.cross_entropy(scores, y)
        loss.backward()
        with fl.no_grad():
            for p in parameters:
                p -= 0.5 * p.grad
                p.grad = None
    assert loss.item() < 0.05


def test_recurrent_cell_unrolled():
    w = fl.tensor([[0.5, -0.3], [0.2, 0.4]], dtype=fl.float64, requires_grad=True)
    x = random(200, 2)

    def run(w):
        h = fl.zeros(2, dtype=fl.float64)
        for t in range(200):
            h = (w @ h + x[t]).tanh()
        return h.sum()

    run(w).backward()
    eps = 1e-6
    moved = w.detach().clone()
    moved[0, 1] += eps
    up = run(moved).item()
    moved[0, 1] -= 2 * eps
    assert w.grad[0, 1].item() == pytest.approx((up - run(moved).item()) / (2 * eps), rel=1e-5)
    assert math.isfinite(w.grad.sum().item())


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda f, x: functional.vjp(lambda a: a.detach(), x, x, strict=True),
            "Output 0 .* does not require gradients",
        ),
        (lambda f, x: functional.vjp(f, x, x, create_graph=True, strict=True), r"jacobian .* independent of input 0"),
        (
            lambda f, x: functional.hvp(lambda a: f(a).sum(), x, x, strict=True),
            "with respect to input 0 is independent",
        ),
        (lambda f, x: functional.jacobian(f, x, strict=True, vectorize=True), "not supported together"),
        (lambda f, x: functional.jvp(f, x), "can only be None if the input"),
        (lambda f, x: functional.vhp(f, x, x), "should contain a single element"),
    ],
)
def test_strict_mode_refuses_constants(call, words):
    with pytest.raises(RuntimeError, match=words):
        call(lambda a: 3 * a, random(4))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_runs_again_in_the_precision_of_the_first_run(reentrant):
    modes = []

    def part(x):
        modes.append((fl.is_autocast_enabled("cpu"), fl.get_autocast_dtype("cpu")))
        return fl.mm(x, x)

    x = fl.rand(3, 3, requires_grad=True)
    with fl.autocast("cpu", fl.bfloat16):
        loss = checkpoint(part, x, use_reentrant=reentrant).sum()
    loss.backward()
    assert modes == [(True, fl.bfloat16)] * 2


def test_checkpoint_stops_early_unless_told():
    runs = []

    def part(x):
        y = x.sin().cos()
        runs.append(1)
        return y.clone()

    for early_stop, expected in ((True, 1), (False, 2)):
        runs.clear()
        checkpoint(part, fl.ones((), requires_grad=True), use_reentrant=False, early_stop=early_stop).backward()
        assert len(runs) == expected


def test_grad_asks_tensor_likes():
    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func, args

    x = Like()
    assert fl.autograd.grad(x, x) == (fl.autograd.grad, ((x,), (x,)))
