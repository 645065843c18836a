"""The frame hook: Python functions that native code calls back are captured, and nothing else changes."""

import contextvars
import sys
import threading
import traceback

import pytest

import flambeau as fl
from flambeau import _C, nn


def through_native(function, *args, **kwargs):
    """Calls a function from native code that capture does not look into."""
    return contextvars.copy_context().run(function, *args, **kwargs)


class Counter:
    """A backend that counts the operators of each graph."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, examples, **options):
        self.graphs.append([n.target for n in graph.graph.nodes if n.op.startswith("call")])
        return graph.forward


def compiled(function):
    counter = Counter()
    return fl.compile(function, backend=counter), counter


def callback(x, scale=2, *rest, flag=True, **more):
    y = x * scale
    for r in rest:
        y = y + r
    return y.sin() if flag else y - len(more)


def test_a_function_that_native_code_calls_is_captured():
    def f(x):
        return through_native(callback, x + 1) * 3

    fast, counter = compiled(f)
    x = fl.ones(3)
    for _ in range(3):
        assert fl.equal(f(x), fast(x))
    assert fl.sin in [t for graph in counter.graphs for t in graph] or "sin" in str(counter.graphs)
    assert not _C._frame_hook_active()


CALLS = [
    lambda x: through_native(callback, x, 3),
    lambda x: through_native(callback, x, 3, x, x),
    lambda x: through_native(callback, x, flag=False, a=1, b=2),
    lambda x: through_native(lambda v: through_native(callback, v) + 1, x),
    lambda x: eval("callback(x) + 1", {"callback": callback, "x": x}),
    lambda x: [through_native(callback, x, n) for n in range(3)][2],
    lambda x: through_native(nn.functional.relu, x),
    lambda x: through_native(nn.Linear(3, 3, bias=False).to(x.dtype), x).shape,
    lambda x: through_native(lambda: x * 5),
    lambda x: list(through_native(generate, x)),
    lambda x: through_native(closes_over, x)(2),
]


@pytest.mark.parametrize("index", range(len(CALLS)))
def test_results(index):
    call = CALLS[index]
    fast = fl.compile(call, backend="eager")
    x = fl.arange(3.0)
    for _ in range(3):
        wanted, got = call(x), fast(x)
        assert str(wanted) == str(got)


def generate(x):
    for i in range(3):
        yield x + i


def closes_over(x):
    n = 3

    def inner(k):
        return x * n + k

    n = 4
    return inner


def test_effects_and_exceptions():
    log = []

    def noisy(x):
        log.append(float(x.sum()))
        if x.sum() > 5:
            raise ValueError("too large")
        return x + 1

    def f(x):
        try:
            return through_native(noisy, x * 2)
        except ValueError as error:
            return str(error), [entry.name for entry in traceback.extract_tb(error.__traceback__)][-1]

    fast = fl.compile(f, backend="eager")
    for x in (fl.ones(2), fl.ones(4), fl.ones(2)):
        wanted, got = f(x), fast(x)
        assert str(wanted) == str(got)
    assert log == [4.0, 4.0, 8.0, 8.0, 4.0, 4.0]


def test_functions_without_tensors_are_left_alone():
    calls = []

    def plain(n):
        calls.append(sys._getframe().f_code.co_name)
        return n + 1

    def f(x):
        return x * through_native(plain, 3)

    fast, counter = compiled(f)
    assert fl.equal(fast(fl.ones(2)), fl.ones(2) * 4)
    assert calls == ["plain"] and len(counter.graphs) == 1


def test_deep_recursion_and_many_calls():
    def count(x, n):
        return x if n == 0 else through_native(count, x + 1, n - 1)

    fast = fl.compile(lambda x: through_native(count, x, 20), backend="eager")
    for _ in range(3):
        assert fast(fl.zeros(1)).item() == 20


def test_disable_of_one_frame_only():
    def inner(x):
        return x.cos() + 1

    @fl._dynamo.disable(recursive=False)
    def middle(x):
        return inner(x) * 2

    fast, counter = compiled(lambda x: middle(x + 1) - 1)
    x = fl.ones(2)
    assert fl.equal(fast(x), (x + 1).cos().add(1).mul(2).sub(1))
    assert any("cos" in str(graph) for graph in counter.graphs)
    assert fl._dynamo.is_dynamo_disable_recursive(middle) is False


def test_skip_code():
    def skipped(x):
        return x.tan()

    fl._dynamo.eval_frame.skip_code(skipped.__code__)
    fast, counter = compiled(lambda x: through_native(skipped, x + 1))
    assert fl.equal(fast(fl.ones(2)), fl.full((2,), 2.0).tan())
    assert not any("tan" in str(graph) for graph in counter.graphs)


def test_the_hook_can_be_turned_off(monkeypatch):
    monkeypatch.setattr(fl._dynamo.config, "frame_hook", False)
    fast, counter = compiled(lambda x: through_native(callback, x + 1))
    fast(fl.ones(2))
    assert not any("sin" in str(graph) for graph in counter.graphs)


def test_tracing_sees_the_frames_themselves():
    names = []

    def follow(frame, event, arg):
        names.append(frame.f_code.co_name)

    fast = fl.compile(lambda x: through_native(callback, x), backend="eager")
    fast(fl.ones(2))
    sys.setprofile(follow)
    try:
        fast(fl.ones(2))
    finally:
        sys.setprofile(None)
    assert "<compiled>" not in names


def test_several_threads():
    errors = []
    functions = [fl.compile(lambda x, n=n: through_native(callback, x + n) * n, backend="eager") for n in range(3)]

    def work(seed):
        try:
            for i in range(20):
                n = (seed + i) % 3
                x = fl.ones(2 + i % 4)
                assert fl.equal(functions[n](x), callback(x + n) * n)
                assert through_native(callback, 1 * x, flag=False).sum() == 2 * x.numel()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not _C._frame_hook_active()
