"""Transformations of functions beside PyTorch's: the same functions on the same numbers."""

import math

import pytest

torch = pytest.importorskip("torch")
import flambeau as fl  # noqa: E402


def numbers(lib, *shape, seed=0):
    values = [math.sin(12.9898 * (i + 1) + 78.233 * seed) for i in range(math.prod(shape))]
    return lib.tensor(values, dtype=lib.float64).reshape(shape)


def loss(lib):
    F = lib.nn.functional
    return lambda w, b, x, y: F.cross_entropy(F.linear(x.unsqueeze(0), w, b).tanh(), y.unsqueeze(0))


def single_gradients(lib):
    w, b, x = numbers(lib, 4, 3), numbers(lib, 4, seed=1), numbers(lib, 5, 3, seed=2)
    y = lib.tensor([0, 1, 2, 3, 0])
    return lib.func.vmap(lib.func.grad(loss(lib), (0, 1)), in_dims=(None, None, 0, 0))(w, b, x, y)


def jacobians(lib):
    x = numbers(lib, 2, 3)

    def f(v):
        return v.sin() * v.sum()

    return [
        lib.func.jacrev(f)(x[0]),
        lib.func.jacfwd(f)(x[0]),
        lib.func.hessian(lambda v: (v**3).sum())(x[1]),
        lib.func.vmap(lib.func.jacrev(f))(x),
        lib.func.jvp(f, (x[0],), (x[1],))[1],
        lib.func.vjp(f, x[0])[1](x[1])[0],
    ]


def dimensions(lib):
    x, y = numbers(lib, 2, 5, 3), numbers(lib, 3, 5, seed=1)
    v = lib.func.vmap
    return [
        v(lambda a, b: a @ b, in_dims=(1, 1), out_dims=1)(x, y),
        v(v(lambda a: a.softmax(0)))(x),
        v(lambda a: a.sum(0), in_dims=-1, out_dims=-1)(x),
        v(lambda a, b: lib.stack([a[0], b]), in_dims=(2, 0))(x, y[:, :5]),
        v(lambda a: lib.linalg.det(a @ a.mT + lib.eye(5, dtype=lib.float64)))(x),
        v(lambda a: lib.nn.functional.layer_norm(a, (3,)), chunk_size=1)(x),
    ]


@pytest.mark.parametrize("program", [single_gradients, jacobians, dimensions], ids=lambda f: f.__name__)
def test_transformations_agree(program):
    for got, want in zip(program(fl), program(torch), strict=True):
        assert tuple(got.shape) == tuple(want.shape)
        assert got.reshape(-1).tolist() == pytest.approx(want.reshape(-1).tolist(), rel=1e-9, abs=1e-12)
        assert got.requires_grad == want.requires_grad


@pytest.mark.parametrize(
    "call",
    [
        lambda lib, x: lib.func.vmap(lambda v: v, in_dims=None)(x),
        lambda lib, x: lib.func.vmap(lambda a, b: a)(x, x[:2]),
        lambda lib, x: lib.func.vmap(lambda v: v, in_dims=2)(x),
        lambda lib, x: lib.func.vmap(lambda v: 1)(x),
        lambda lib, x: lib.func.vmap(lambda v: v if v.sum() > 0 else -v)(x),
        lambda lib, x: lib.func.vmap(lambda v: v + lib.rand(2))(x),
        lambda lib, x: lib.func.grad(lambda v: v)(x),
        lambda lib, x: lib.func.vmap(lambda v: lib.zeros(2, dtype=lib.float64).add_(v))(x),
    ],
)
def test_the_same_mistakes_raise(call):
    with pytest.raises(Exception) as theirs:
        call(torch, numbers(torch, 3, 2))
    with pytest.raises(theirs.type if theirs.type is not NotImplementedError else RuntimeError):
        call(fl, numbers(fl, 3, 2))
