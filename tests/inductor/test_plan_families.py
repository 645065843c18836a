"""Graphs for sizes that were not recorded, made from those that were: when they are, and that they are right."""

import math
import random
import threading

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import _C, nn
from flambeau._inductor import config
from flambeau._inductor.compile_fx import compile_tensor_function

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def seeded():
    fl.manual_seed(0)


class Counted:
    """A compiled function that is compared with eager mode at each call; `made` are the calls whose graph was not recorded."""

    def __init__(self, function, *modules):
        self.function = function
        self.compiled = fl.compile(function)
        self.modules = modules
        self.made = []

    def __call__(self, *shapes):
        inputs = [fl.randn(*shape) for shape in shapes]
        ours = [t.clone().requires_grad_() for t in inputs]
        eager = [t.clone().requires_grad_() for t in inputs]
        before = _C._instantiated_graphs()
        result = self.compiled(*ours)
        self.made.append(_C._instantiated_graphs() > before)
        expected = self.function(*eager)
        fl.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        weight = fl.randn_like(expected)
        gradients = fl.autograd.grad(result, ours, weight)
        for mine, theirs in zip(gradients, fl.autograd.grad(expected, eager, weight)):
            fl.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def block():
    norm, first, second = nn.LayerNorm(12), nn.Linear(12, 20), nn.Linear(20, 12)
    return lambda x: x + second(F.gelu(first(norm(x))))


def test_sizes_between_recorded_ones_are_not_recorded():
    run = Counted(block())
    for rows in (4, 33, 12, 7, 20, 5, 33):
        run((rows, 12))
    assert run.made == [False, False, False, False, True, True, False]


def test_sizes_beyond_the_recorded_ones_are_recorded():
    run = Counted(block())
    for rows in (4, 33, 12, 7, 3, 40, 36):
        run((rows, 12))
    assert run.made == [False, False, False, False, False, False, True]


def test_remainders_that_were_not_seen_are_recorded():
    run = Counted(lambda x: x[: x.shape[0] // 2 * 2].sum(0) + x)
    for rows in (4, 32, 16, 8, 12, 9, 10, 17):
        run((rows, 6))
    assert run.made[:6] == [False, False, False, False, True, False]


def test_fractions_leave_sizes_out():
    run = Counted(lambda x: x.reshape(-1, 2, 3).mean(1).repeat_interleave(2, 0) + x)
    for rows in (4, 40, 10, 22, 16, 28):
        run((rows, 3))
    assert run.made[4:] == [True, True]


@pytest.mark.parametrize("limit", [5, 10, 20])
def test_a_limit_among_the_sizes_is_kept(limit):
    run = Counted(lambda x: x[:limit].sum(0) * 0.1 + x)
    for rows in (4, 33, 12, 7, 25, 15, 20, 6, 9, 10, 11, 30, 5, 17):
        run((rows, 6))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x - x.mean(0)) * 2,
        lambda x: (x / x.shape[0]).sum(0),
        lambda x: F.mse_loss(x.tanh(), x.detach() * 0.1),
        lambda x: x.var(0) + x.std(0),
        lambda x: x.mean((0, 1)) * x,
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.cross_entropy(x, x.argmax(-1), label_smoothing=0.1),
        lambda x: fl.arange(x.shape[0])[:, None] * 10 / x.shape[0] + x,
        lambda x: fl.where(fl.arange(x.shape[0])[:, None] < x.shape[0] - 3, x, x * 0.5),
    ],
)
def test_numbers_that_depend_on_sizes(function):
    """The gradient of a mean is divided by the number of rows, for one."""
    run = Counted(function)
    for rows in (5, 33, 12, 7, 20, 9, 16, 31):
        run((rows, 6))
    assert sum(run.made) >= 3, run.made


def test_kernels_are_the_same_for_numbers_from_other_sizes(monkeypatch):
    from flambeau._inductor import build

    built = []
    monkeypatch.setattr(build, "_compile", lambda *a, real=build._compile: built.append(a) or real(*a))
    run = Counted(lambda x: ((x - x.mean(0)) * 3).square() / x.shape[0])
    run((5, 6))
    known = len(built)
    for rows in (8, 33):
        run((rows, 6))
    assert len(built) == known


def test_constants_that_depend_on_sizes_in_other_ways_are_recorded():
    run = Counted(lambda x: x.tanh() * x.shape[0] ** 0.5)
    for rows in (4, 33, 12, 7, 20):
        run((rows, 6))
    assert not any(run.made)


def test_one_row_and_none_are_recorded():
    run = Counted(lambda x: (x - x.sum(0)) * x.softmax(-1))
    for rows in (1, 4, 33, 12, 7, 2, 1, 20):
        run((rows, 6))
    assert run.made == [False] * 7 + [True]
    result = run.compiled(fl.empty(0, 6))
    assert result.shape == (0, 6)


def test_two_sizes():
    projection = nn.Linear(8, 24)

    def attention(x):
        q, k, v = projection(x).view(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * 0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape) + x

    run = Counted(attention)
    choice = random.Random(0)
    for batch, length in ((2, 3), (9, 3), (2, 20), (9, 20), (5, 3), (5, 20), (2, 11), (9, 11)):
        run((batch, length, 8))
    for _ in range(20):
        run((choice.randint(2, 9), choice.randint(3, 20), 8))
    assert sum(run.made) > 10


@pytest.mark.parametrize("seed", range(6))
def test_a_size_that_is_halved_beside_another(seed):
    """Rounded integers must not pass for polynomials of two sizes by chance."""
    kernel = fl.randn(4, 4, 3) * 0.3

    def function(x):
        half = F.conv1d(x.transpose(1, 2), kernel, padding=1, stride=2)
        return half.sum(2)[:, None] * 0.1 + x.softmax(1)

    run = Counted(function)
    choice = random.Random(seed)
    low, high = (choice.randint(2, 4), choice.randint(2, 4)), (choice.randint(7, 20), choice.randint(7, 20))
    for batch, length in (low, high, (low[0], high[1]), (high[0], low[1])):
        run((batch, length, 4))
    for _ in range(14):
        run((choice.randint(low[0], high[0]), choice.randint(low[1], high[1]), 4))


def test_the_smaller_of_two_sizes():
    def function(x, y):
        n = min(x.shape[0], y.shape[0])
        return (x[:n] * y[:n]).sum(0) + x.sum() + y.mean()

    run = Counted(function)
    choice = random.Random(1)
    for _ in range(40):
        run((choice.randint(2, 30), 4), (choice.randint(2, 30), 4))


def test_memory_that_is_no_multiple_of_a_line():
    def function(x):
        a = x.cumsum(0).tanh()
        b = (a.t() @ a).sin()
        c = a @ b
        d = c.sort(0).values + a.flip(0).cumsum(0)
        return (d @ b).softmax(-1) + c.flip(0)

    run = Counted(function)
    for rows in (3, 301, 150, *range(5, 300, 13)):
        run((rows, 7))
    assert sum(run.made) > 15


def test_convolutions_and_pooling():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 1)
    )
    model.eval()
    run = Counted(lambda x: model(x))
    for batch in (2, 9, 5, 3, 8, 4):
        run((batch, 3, 17, 17))
    for height in (21, 33, 25, 23, 29, 27, 40, 18, 19, 31):
        run((4, 3, height, 17))
    assert run.made[4:6] == [True, True]


def test_inputs_that_are_written():
    def function(x, y):
        y.mul_(0.5).add_(x.tanh())
        return x * y

    compiled = fl.compile(function)
    before = _C._instantiated_graphs()
    for rows in (4, 33, 12, 7, 20, 5):
        x, y = fl.randn(rows, 6), fl.randn(rows, 6)
        mine, theirs = y.clone(), y.clone()
        fl.testing.assert_close(compiled(x, mine), function(x, theirs))
        fl.testing.assert_close(mine, theirs)
    shared = fl.randn(9, 6)
    expected = function(*[shared.clone()] * 2)
    fl.testing.assert_close(compiled(shared, shared), expected)
    assert _C._instantiated_graphs() - before >= 2


def test_dropout_draws_the_numbers_of_eager_mode():
    def function(x):
        return F.dropout(x * 2, 0.5) + x

    compiled = fl.compile(function)
    for rows in (4, 33, 12, 7, 20):
        x = fl.randn(rows, 6)
        fl.manual_seed(rows)
        expected = function(x)
        fl.manual_seed(rows)
        fl.testing.assert_close(compiled(x), expected)


def test_derivatives_of_derivatives():
    def function(x):
        return (x.tanh() * x).sum(0)

    compiled = fl.compile(function)
    for rows in (4, 33, 12, 7):
        x = fl.randn(rows, 6, requires_grad=True)
        second = []
        for run in (compiled, function):
            (first,) = fl.autograd.grad(run(x).sum(), x, create_graph=True)
            second.append(fl.autograd.grad(first.square().sum(), x)[0])
        fl.testing.assert_close(*second)


def test_modes_have_graphs_of_their_own():
    function = block()
    compiled = fl.compile(function)
    for rows in (4, 33, 12, 7, 20):
        x = fl.randn(rows, 12)
        with fl.no_grad():
            assert not compiled(x).requires_grad
        assert compiled(x).requires_grad
        with fl.autocast("cpu", dtype=fl.bfloat16):
            fl.testing.assert_close(compiled(x), function(x), rtol=2e-2, atol=2e-2)


def test_strides_are_part_of_the_geometry():
    compiled = fl.compile(lambda x: x * 2 + x.sum(0))
    for rows in (4, 33, 12, 7, 20):
        for x in (fl.randn(rows, 6), fl.randn(6, rows).t(), fl.randn(rows, 12)[:, ::2]):
            fl.testing.assert_close(compiled(x), x * 2 + x.sum(0))


def test_functions_that_nobody_guards_are_recorded():
    compiled = compile_tensor_function(lambda x: [x * 2 if x.shape[0] == 7 else x + 1], 1)
    for rows in (4, 33, 12, 7, 20):
        x = fl.randn(rows, 3)
        fl.testing.assert_close(compiled(x)[0], x * 2 if rows == 7 else x + 1)


def test_training_steps_with_scalars():
    def losses(compile_it):
        fl.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = fl.optim.Adam(model.parameters(), lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = (model(x).tanh() * 0.1).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = fl.compile(step) if compile_it else step
        return [
            run(fl.full((rows, 6), 0.1 * rows)).item() for rows in (9, 4, 33, 12, 7, 20, 5)
        ]  # the first makes the state

    before = _C._instantiated_graphs()
    assert losses(True) == pytest.approx(losses(False), rel=1e-4)
    assert _C._instantiated_graphs() - before == 2


def test_the_setting_turns_it_off():
    with config.patch(parametric_plans=False):
        run = Counted(block())
        for rows in (4, 33, 12, 7, 20):
            run((rows, 12))
    assert not any(run.made)
    run.compiled = fl.compile(run.function, options={"parametric_plans": False})
    for rows in (4, 33, 12, 7, 20):
        run((rows, 12))
    assert not any(run.made)


def test_threads_make_graphs_at_once():
    function = block()
    compiled = fl.compile(function)
    with fl.no_grad():
        for rows in (4, 90, 33, 50):
            compiled(fl.randn(rows, 12))
    failures = []

    def work(start):
        with fl.no_grad():
            for rows in range(start, 90, 4):
                x = fl.full((rows, 12), 0.01 * rows)
                x[:, 0] = 1
                if not fl.allclose(compiled(x), function(x), atol=1e-5):
                    failures.append(rows)

    threads = [threading.Thread(target=work, args=(5 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_many_sizes_are_bounded_in_memory():
    """Graphs that are unused for longest are forgotten, and made again."""
    compiled = fl.compile(lambda x: (x * 2).tanh().sum(0) + x)
    for rows in [4, 700, 301, *range(5, 700, 2), 5, 7]:
        x = fl.full((rows, 2), 0.5)
        fl.testing.assert_close(compiled(x), (x * 2).tanh().sum(0) + x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "number",
    [
        lambda n: 3.0 / n,
        lambda n: n**0.5,
        lambda n: 1 / math.sqrt(n),
        lambda n: 2 * n**-0.5,
        lambda n: -1 / n,
        lambda n: math.log(n),
        lambda n: 1 / math.log2(n),
    ],
)
def test_floats_of_sizes_are_not_recorded(number):
    run = Counted(lambda x: x.sin() * number(x.shape[0]))
    for rows in (7, 41, 13, 19, 10, 23, 37):
        run((rows, 6))
    assert any(run.made)
    assert not run.made[0]
