"""Calls that stay one node of the graph: what they refer to is guarded, effects and other tensors break the graph."""

import pytest

import flambeau as fl

SCALE = 2.0
SEEN = []


class Scaled(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * SCALE

    @staticmethod
    def backward(ctx, grad):
        return grad * SCALE * 10


class Noting(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        SEEN.append(tuple(x.shape))
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        SEEN.append("backward")
        return grad * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_globals_of_an_own_function_are_guarded(backend, monkeypatch):
    fast = fl.compile(lambda x: Scaled.apply(x).sum(), backend=backend, fullgraph=True)
    for scale in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        x = fl.ones(3, requires_grad=True)
        total = fast(x)
        total.backward()
        assert total.item() == 3 * scale
        assert x.grad.tolist() == [10 * scale] * 3


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_effects_of_an_own_function_happen_at_every_call(backend):
    fast = fl.compile(lambda x: Noting.apply(x) + 1, backend=backend)
    SEEN.clear()
    for _ in range(3):
        x = fl.ones(2, requires_grad=True)
        fast(x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]
    assert SEEN == [(2,), "backward"] * 3


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_vmap_over_a_function_that_closes_over_tensors(backend):
    def f(x, w):
        scale = w.sum()
        return fl.func.vmap(lambda row: (row * w).sum() * scale)(x)

    fast = fl.compile(f, backend=backend, fullgraph=True)
    for k in (1.0, 2.0):
        x, w = fl.arange(6.0).reshape(2, 3) * k, fl.tensor([1.0, 2.0, 3.0]) * k
        assert fl.allclose(fast(x, w), f(x, w))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_per_sample_gradients(backend):
    def loss(w, x):
        return (x @ w).square().sum()

    def f(w, x):
        return fl.func.vmap(fl.func.grad(loss), in_dims=(None, 0))(w, x)

    w, x = fl.arange(6.0).reshape(3, 2), fl.arange(12.0).reshape(4, 3)
    assert fl.allclose(fl.compile(f, backend=backend, fullgraph=True)(w, x), f(w, x))


def test_cached_functions_run_once():
    import functools

    calls = []

    @functools.lru_cache
    def table(n):
        calls.append(n)
        return fl.arange(n)

    fast = fl.compile(lambda x: x + table(3), backend="eager", fullgraph=True)
    assert fast(fl.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert fast(fl.zeros(3)).tolist() == [0.0, 1.0, 2.0]
    assert calls == [3]


class Hundredfold(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 100


def write_item(x, y):
    x[0] = y[0]
    return Hundredfold.apply(x).sum()


def write_item_of_result(x, y):
    x = x * 1
    x[0] = y[0]
    return Hundredfold.apply(x).sum()


def write_view(x, y):
    view = x[:2]
    view.mul_(y[:2])
    return Hundredfold.apply(x).sum() + Hundredfold.apply(view).sum()


def write_beside_detached(x, y):
    apart = x.detach()
    x.mul_(y)
    return Hundredfold.apply(x).sum() + (1000 if apart.requires_grad else 0)


@pytest.mark.parametrize("program", [write_item, write_item_of_result, write_view, write_beside_detached])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_tensor_that_got_a_gradient_by_a_write_has_its_own_backward(program, backend):
    results = []
    for run in (program, fl.compile(program, backend=backend)):
        x, y = fl.ones(3), fl.ones(3, requires_grad=True)
        result = run(x, y)
        result.backward()
        results.append((result.detach(), y.grad))
    fl.testing.assert_close(results[1], results[0])


def test_a_written_tensor_is_no_leaf():
    def program(x, y):
        x.mul_(y)
        return x * 1, x.requires_grad, x.is_leaf, x.grad_fn is None

    got = fl.compile(program)(fl.ones(3), fl.ones(3, requires_grad=True))
    assert got[1:] == (True, False, False)
