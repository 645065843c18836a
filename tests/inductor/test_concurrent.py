"""Small kernels that run side by side in one step."""

import itertools
import threading

import pytest

import flambeau as fl
from flambeau._inductor import compile_fx, config, plan
from flambeau._inductor.compile_fx import compile_tensor_function
from flambeau._inductor.concurrent import verify_concurrent
from flambeau._inductor.ir import OperatorCall
from flambeau._inductor.steps import ConcurrentLoopsStep, LoopStep

pytestmark = pytest.mark.host  # it is threads that kernels are divided over

SHAPES = [(50, 100), (50,), (10, 50), (10,), (3, 7, 11), (), (129, 31), (8, 1, 9)]


@pytest.fixture
def programs(monkeypatch):
    """The steps of each program that is planned, checked."""
    made = []

    class Noted(plan.Plan):
        def run(self, scheduled, outputs):
            program = super().run(scheduled, outputs)
            needed = self._needed(scheduled, outputs)
            stored = [[] if isinstance(i, OperatorCall) else [b for b in i.made if b in needed] for i in scheduled]
            assert verify_concurrent(scheduled, stored, self.times)
            made.append(program.steps)
            return program

    monkeypatch.setattr(compile_fx, "Plan", Noted)
    fl.manual_seed(0)
    return made


def _counts(steps):
    loops = [step for step in steps if isinstance(step, (LoopStep, ConcurrentLoopsStep))]
    return [len(step.loops) if isinstance(step, ConcurrentLoopsStep) else 1 for step in loops]


def _momentum(*tensors):
    """Steps of an optimizer, written down parameter by parameter."""
    n = len(tensors) // 3
    for p, g, m in zip(tensors[:n], tensors[n : 2 * n], tensors[2 * n :]):
        m.mul_(0.9).add_(g)
        p.sub_(m * 0.1)
    return []


def _given():
    return [fl.randn(shape) for _ in range(3) for shape in SHAPES]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("reuse", [True, False])
def test_parameters_of_many_shapes(programs, threads, reuse):
    before = fl.get_num_threads()
    fl.set_num_threads(threads)
    try:
        with config.patch(allow_buffer_reuse=reuse):
            made = compile_tensor_function(_momentum, 3 * len(SHAPES))
            ours = _given()
            eager = [t.clone() for t in ours]
            for _ in range(3):
                made(*ours)
                _momentum(*eager)
            for a, b in zip(ours, eager):
                fl.testing.assert_close(a, b)
    finally:
        fl.set_num_threads(before)
    counts = _counts(programs[0])
    assert max(counts) >= 5 and sum(counts) >= 2 * len(counts)


def test_what_depends_on_another_waits(programs):
    def function(x, y):
        a = x.sum(1)
        b = y.exp()
        c = a.cumsum(0)  # no loop
        return [b + 1, (c * 2).sum(), a - c]

    x, y = fl.randn(5, 6), fl.randn(40)
    for ours, eager in zip(compile_tensor_function(function, 2)(x, y), function(x, y)):
        fl.testing.assert_close(ours, eager)


def test_what_one_reads_is_not_written_by_another(programs):
    """The second loop writes to what the first one reads, over another shape."""

    def function(x, y):
        s = x.sum(0)
        x.copy_(y.expand(x.shape))
        return [s]

    for _ in range(2):
        x, y = fl.randn(30, 20), fl.randn(20)
        expected = x.sum(0)
        (s,) = compile_tensor_function(function, 2)(x, y)
        fl.testing.assert_close(s, expected)
        assert fl.equal(x, y.expand(30, 20))


def test_what_two_kernels_read_last_is_no_place_for_the_result_of_one(programs):
    def function(x, w):
        p = x @ w
        return [p.sum(0), (p + 1).t().contiguous().exp(), p.reshape(-1, 5).amax(1), p * 2]

    x, w = fl.randn(50, 30), fl.randn(30, 60)
    made = compile_tensor_function(function, 2)
    for _ in range(3):
        for ours, eager in zip(made(x, w), function(x, w)):
            fl.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


def test_large_kernels_keep_their_threads(programs):
    def function(x, y):
        return [x + 1, y * 2]

    made = compile_tensor_function(function, 2)
    x, y = fl.randn(300, 300), fl.randn(7, 11000)
    for ours, eager in zip(made(x, y), function(x, y)):
        fl.testing.assert_close(ours, eager)
    assert _counts(programs[0]) == [1, 1]


def test_many_kernels_from_many_threads(programs):
    shapes = list(itertools.islice(itertools.cycle(SHAPES), 40))

    def function(*given):
        return [t.sin() * k for k, t in enumerate(given)]

    made = compile_tensor_function(function, len(shapes))
    failed = []

    def work(seed):
        given = [fl.full(shape, float(seed + k)) for k, shape in enumerate(shapes)]
        expected = function(*given)
        for _ in range(10):
            for a, b in zip(made(*given), expected):
                if not fl.allclose(a, b):
                    failed.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed
