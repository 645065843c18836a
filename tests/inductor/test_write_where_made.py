"""Inputs that a program writes to: the kernel that computes their last state writes it there, where that is safe."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import compile_fx, config, plan
from flambeau._inductor.compile_fx import compile_tensor_function


@pytest.fixture
def launches(monkeypatch):
    """How many kernels each program that is planned launches."""
    made = []

    class Noted(plan.Plan):
        def run(self, scheduled, outputs):
            program = super().run(scheduled, outputs)
            made.append(len(self.launches))
            return program

    monkeypatch.setattr(compile_fx, "Plan", Noted)
    fl.manual_seed(0)
    return made


def _check(function, *given):
    """Compiled and eager, with their effects on the arguments."""
    for reuse in (True, False):
        with config.patch(allow_buffer_reuse=reuse):
            ours, eager = [t.clone() for t in given], [t.clone() for t in given]
            made = compile_tensor_function(function, len(given))
            for _ in range(2):
                for a, b in zip([*made(*ours), *ours], [*function(*eager), *eager]):
                    fl.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.host  # on a GPU it is a kernel for each
def test_an_optimizer_is_one_kernel(launches):
    def function(p, g, m):
        m.mul_(0.9).add_(g)
        p.sub_(m * 0.1)
        return []

    _check(function, *(fl.randn(100, 130) for _ in range(3)))
    assert launches == [1, 1]


@pytest.mark.host  # on a GPU it is a kernel for each
def test_old_values_are_read_at_the_same_point(launches):
    def function(x, y):
        x.add_(1)
        y.mul_(2)
        old = x - y
        x.copy_(y)
        return [old, old * old]

    _check(function, fl.randn(70, 90), fl.randn(70, 90))
    assert launches[0] == 1


def test_two_inputs_change_places(launches):
    def function(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return []

    _check(function, fl.randn(70, 90), fl.randn(70, 90))


def test_a_later_reader_of_the_old_value_sees_it():
    def function(x, w):
        a = x + w
        r = x.t().contiguous() * 2  # another kernel
        x.copy_(a)
        return [r]

    _check(function, fl.randn(64, 64), fl.randn(64, 64))


def test_an_operator_that_reads_the_old_value_sees_it():
    def function(x, w):
        product = x @ w
        x.add_(1)
        return [product, x @ w]

    _check(function, fl.randn(64, 64), fl.randn(64, 64))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.copy_(x.t().clone()),
        lambda x: x.copy_(x.flip(0)),
        lambda x: x.copy_(x[0].expand(64, 64).clone()),
        lambda x: x[1:].copy_(x[:-1].clone()),
        lambda x: x[:, ::2].mul_(3),
        lambda x: x.copy_(x.sum(0) + x),
        lambda x: x.t().add_(x.clone()),
    ],
)
def test_other_elements_of_the_input_are_read(function):
    _check(lambda x: [function(x).sum()], fl.randn(64, 64))


def test_rows_are_folded_before_they_are_written():
    def function(x):
        x.copy_(F.softmax(x, -1))
        return []

    _check(function, fl.randn(40, 50))


def test_a_later_pass_needs_the_old_row():
    def function(x):
        shifted = x + 1  # known in the first pass
        normal = F.layer_norm(x, (50,))  # needs the old row in the last one
        x.copy_(shifted)
        return [normal]

    _check(function, fl.randn(40, 50))


def test_counters_and_means():
    def function(x, mean, count):
        count.add_(1)
        mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return [x - mean, x.sum() / count]

    _check(function, fl.randn(60, 30), fl.randn(30), fl.tensor(3.0))


def test_inputs_with_gaps_and_other_orders():
    def function(x, y):
        x.mul_(2).add_(y)
        y.relu_()
        return [x * y]

    ours = [fl.randn(40, 60)[:, ::2], fl.randn(30, 40).t()]
    eager = [fl.randn(40, 60)[:, ::2].copy_(ours[0]), fl.randn(30, 40).t().copy_(ours[1])]
    made = compile_tensor_function(function, 2)
    for _ in range(2):
        for a, b in zip([*made(*ours), *ours], [*function(*eager), *eager]):
            fl.testing.assert_close(a, b)


def test_gradients_beside_writes():
    def function(x, running):
        running.mul_(0.5).add_(x.detach().mean(0))
        return [(x * running).tanh().sum()]

    results = []
    for f in (function, compile_tensor_function(function, 2)):
        x = fl.linspace(-1, 1, 600).reshape(20, 30).clone().requires_grad_()
        running = fl.ones(30)
        (loss,) = f(x, running)
        results.append([loss, running, *fl.autograd.grad(loss, x)])
    for a, b in zip(*results):
        fl.testing.assert_close(a, b)
