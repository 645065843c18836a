"""Symbolic sizes: one artifact for all of them, unless the program looks."""

import operator

import pytest

import flambeau as fl


def compiled(function, **options):
    return fl.compile(function, backend="eager", fullgraph=True, **options)


def count(function):
    return function._count()


@pytest.mark.parametrize("make", [lambda n: fl.randn(n, 4), lambda n: fl.randn(4, n).t()], ids=["rows", "columns"])
def test_one_artifact_for_all_batch_sizes(make):
    weight = fl.randn(4, 4)

    def f(x):
        return fl.relu(x @ weight).sum(1) * 2 + x.shape[0]

    fast = compiled(f)
    for n in (8, 1, 0, 2, 3, 1024):
        x = make(n)
        assert fl.equal(fast(x), f(x))
    assert count(fast) <= 2


def test_a_model_serves_batches_from_0_to_1024():
    model = fl.nn.Sequential(fl.nn.Linear(6, 5), fl.nn.GELU(), fl.nn.LayerNorm(5), fl.nn.Linear(5, 2))
    fast = compiled(model)
    for n in (4, 1, 0, 7, 1024):
        x = fl.randn(n, 6)
        assert fl.equal(fast(x), model(x))
    assert type(fast)._compiled_call._count() == 1


def test_views_with_sizes_from_the_shape():
    def f(x):
        b, t, c = x.shape
        y = x.view(b, t, 2, c // 2).transpose(1, 2)
        return y.reshape(b, -1), y.shape, b * t

    fast = compiled(f)
    for shape in ((2, 3, 4), (1, 5, 4), (7, 1, 8)):
        x = fl.randn(shape)
        got, wanted = fast(x), f(x)
        assert fl.equal(got[0], wanted[0]) and got[1:] == wanted[1:]
        assert type(got[1]) is fl.Size and type(got[2]) is int
    assert count(fast) == 1


def test_a_branch_on_a_size_is_guarded():
    def f(x):
        return x + 1 if x.shape[0] > 3 else x - 1

    fast = compiled(f)
    for n in (2, 3, 4, 5, 1):
        x = fl.randn(n)
        assert fl.equal(fast(x), f(x))
    assert count(fast) == 2


def test_loops_over_a_size_specialise():
    def f(x):
        total = fl.zeros(())
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    fast = compiled(f)
    for n in (2, 3, 2):
        x = fl.randn(n)
        assert fl.equal(fast(x), f(x))


def test_dynamic_false_specialises():
    fast = compiled(lambda x: x + 1, dynamic=False)
    for n in (2, 3, 4):
        fast(fl.randn(n))
    assert count(fast) == 3


def test_mark_static():
    fast = compiled(lambda x: x + 1)
    for n in (2, 3):
        x = fl.randn(n, 5)
        fl._dynamo.mark_static(x, 0)
        fast(x)
    assert count(fast) == 2


def test_two_arguments_of_equal_and_different_sizes():
    def f(x, y):
        return x + y

    fast = compiled(f)
    for a, b in ((3, 3), (4, 4), (3, 1), (1, 5), (5, 5)):
        x, y = fl.randn(a), fl.randn(b)
        assert fl.equal(fast(x, y), f(x, y))


def test_integers_that_change_become_inputs():
    def f(x, n):
        return x * n + n // 2

    fast = compiled(f)
    for n in range(20):
        x = fl.randn(3)
        assert fl.equal(fast(x, n), f(x, n))
    assert count(fast) <= 3


def test_floats_that_change_become_inputs():
    def f(x, s):
        return x * s + (s + 1.5) * 2

    fast = compiled(f)
    for n in range(20):
        x = fl.randn(3)
        assert fl.equal(fast(x, n / 7), f(x, n / 7))
    assert count(fast) <= 3


def test_a_branch_on_a_float_that_changes_is_guarded():
    def f(x, s):
        return x + s if s > 0.5 else x - s

    fast = compiled(f)
    for s in (0.1, 0.9, 0.2, 0.8, 0.9, 0.1):
        assert fl.equal(fast(fl.ones(2), s), f(fl.ones(2), s))


def test_sizes_as_keys_and_text():
    def f(x):
        table = {x.shape[0]: "rows", (x.shape[1],): "columns"}
        return table, f"{x.shape[0]}x{x.shape[1]}", x.shape[0] in {3, 4}, x * 1

    fast = compiled(f)
    for shape in ((3, 4), (5, 4), (4, 4)):
        x = fl.ones(shape)
        assert fast(x)[:3] == f(x)[:3]


def test_strides_are_guarded():
    def f(x):
        return x.t().contiguous().view(-1)

    fast = compiled(f)
    for x in (fl.randn(3, 4), fl.randn(4, 3).t(), fl.randn(8, 4)[::2], fl.randn(3, 8)[:, ::2], fl.randn(3, 1)):
        assert fl.equal(fast(x), f(x))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "mod", "pow"])
def test_sizes_on_the_left_of_tensors(name):
    operation = getattr(operator, name)
    compiled = fl.compile(lambda x: operation(x.size(0), x), fullgraph=True, dynamic=True)
    for n in (2, 3, 5):
        x = fl.arange(1, n + 1)
        assert fl.equal(compiled(x), operation(n, x))


def test_overloads_are_chosen_by_sizes_that_vary():
    def program(x, n):
        clamped = fl.ops.aten.clamp(x, 0, n) + fl.ops.aten.add(x, n)
        product = fl.ops.aten.addmm(x[:n, None], fl.ones(n, 2), fl.ones(2, 1), beta=n)
        return clamped, product, fl.ops.aten.where(x[:1] > n, x[:1], n)

    compiled = fl.compile(program, fullgraph=True)
    x = fl.arange(10.0)
    for n in range(5, 9):
        for got, expected in zip(compiled(x, n), program(x, n)):
            assert fl.equal(got, expected)
