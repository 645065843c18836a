"""Hooks on gradients inside compiled functions run wherever backward takes place."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._dynamo.compile import Report, Settings
from flambeau.compiler import compile_with

SCALE = fl.tensor([1.0, 2.0, 3.0])


def scaled(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * SCALE)
    return (y * y).sum()


def observed(x):
    y = x.sin()
    y.register_hook(lambda gradient: None)
    return y.sum()


def removed(x):
    y = x * 2
    handle = y.register_hook(lambda gradient: gradient * 100)
    y.register_hook(lambda gradient: gradient + 1)
    handle.remove()
    return y.sum()


def closed_over(x):
    weight = x.detach() + 1
    y = x * weight
    y.register_hook(lambda gradient: gradient.clamp(max=0.5) * weight)
    return y.sum(), y


def compiled(function, backend):
    settings = Settings(backend)
    settings.report = Report()
    return compile_with(function, settings), settings.report


def results(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [scaled, observed, removed, closed_over])
def test_backward_after_the_call(function, backend):
    fast, report = compiled(function, backend)
    for _ in range(2):
        gradients = []
        for run in (function, fast):
            x = fl.tensor([0.5, -1.0, 2.0], requires_grad=True)
            sum(value.sum() for value in results(run(x))).backward()
            gradients.append(x.grad)
        assert fl.allclose(*gradients)
    assert len(report.graphs) == 1 and not report.breaks and not report.skips


def test_a_hook_with_effects_runs_in_python():
    seen = []

    def function(x):
        y = x * 2
        y.register_hook(lambda gradient: seen.append(gradient.sum().item()))
        return y.sum()

    x = fl.ones(3, requires_grad=True)
    fl.compile(function, backend="eager")(x).backward()
    assert seen == [3.0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_retained_gradients(backend):
    def later(x):
        y = x * 2
        y.retain_grad()
        return (y * y).sum(), y

    def inside(x):
        y = x * 2
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad, x.grad, y

    for run in (later, compiled(later, backend)[0]):
        x = fl.tensor([1.0, 2.0], requires_grad=True)
        loss, y = run(x)
        loss.backward()
        assert y.retains_grad and y.grad.tolist() == [4.0, 8.0] and x.grad.tolist() == [8.0, 16.0]
    fast, report = compiled(inside, backend)
    for run in (inside, fast):
        y_grad, x_grad, y = run(fl.tensor([1.0, 2.0], requires_grad=True))
        assert y_grad.tolist() == [4.0, 8.0] and x_grad.tolist() == [8.0, 16.0] and y.grad is y_grad
    assert len(report.graphs) == 1 and not report.breaks


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.first.register_full_backward_hook(lambda module, given, made: (given[0] * 2,))
        self.second.register_full_backward_pre_hook(lambda module, made: (made[0].clamp(max=0.5),))
        self.register_full_backward_hook(lambda module, given, made: (given[0] + 1,))

    def forward(self, x):
        return self.second(self.first(x).relu())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backward_hooks_of_modules_are_part_of_the_graph(backend):
    model = Hooked()
    fast = fl.compile(model, backend=backend, fullgraph=True)
    for count in (2, 3, 2):
        x = fl.randn(count, 4)
        found = []
        for run in (model, fast):
            given = x.clone().requires_grad_()
            run(given).sum().backward()
            found.append([given.grad, *(p.grad for p in model.parameters())])
            model.zero_grad()
        assert all(fl.allclose(a, b, atol=1e-6) for a, b in zip(*found))


def test_a_hook_that_is_removed_makes_a_new_graph():
    layer = nn.Linear(2, 2)
    handle = layer.register_full_backward_hook(lambda module, given, made: (given[0] * 0,))
    fast = fl.compile(layer, backend="eager", fullgraph=True)
    gradients = []
    for _ in range(2):
        x = fl.ones(1, 2, requires_grad=True)
        fast(x).sum().backward()
        gradients.append(x.grad)
        handle.remove()
    assert gradients[0].tolist() == [[0.0, 0.0]] and fl.allclose(gradients[1][0], layer.weight.sum(0), atol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backward_hooks_with_effects_run_in_python(backend):
    seen = []
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    for layer in model:
        layer.register_full_backward_hook(lambda module, given, made: seen.append((type(module), made[0])))
    fast, x = fl.compile(model, backend=backend), fl.randn(2, 4)
    found = []
    for run in (model, fast, fast):
        run(x).sum().backward()
        found.append(list(seen))
        seen.clear()
    for other in found[1:]:
        assert [kind for kind, _ in found[0]] == [kind for kind, _ in other]
        assert all(fl.allclose(a, b, atol=1e-6) for (_, a), (_, b) in zip(found[0], other))


def leaf_hook(w):
    return w.register_hook(lambda g: g * 10)


def post_accumulate_hook(w):
    def scale(p):
        p.grad.mul_(7)

    return w.register_post_accumulate_grad_hook(scale)


@pytest.mark.parametrize("register", [leaf_hook, post_accumulate_hook])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_hooks_that_come_and_go_on_leaves_run_in_captured_backwards(register, backend):
    w = fl.ones(3, requires_grad=True)

    def step(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad * 1

    compiled = fl.compile(step, backend=backend)
    for hooked in (False, True, False, True):
        handle = register(w) if hooked else None
        for _ in range(2):
            assert fl.equal(compiled(fl.ones(3) * 2), step(fl.ones(3) * 2))
        if handle is not None:
            handle.remove()


def test_hooks_on_inputs_of_grad_run():
    w = fl.ones(3, requires_grad=True)
    compiled = fl.compile(lambda x: fl.autograd.grad((w * x).sum(), w)[0])
    assert compiled(fl.ones(3)).tolist() == [1, 1, 1]
    w.register_hook(lambda g: g * 10)
    assert compiled(fl.ones(3)).tolist() == [10, 10, 10]
