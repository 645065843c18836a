"""Contexts that filter warnings, scripted functions, functions allowed in the graph, extremes of sizes that data decides."""

import dataclasses
import warnings

import pytest

import flambeau as fl


def compiled(function, **options):
    return fl.compile(function, backend="eager", **options)


def test_filtered_warnings_do_not_break_the_graph():
    def f(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = x.sin()
        return y, len(caught)

    y, count = compiled(f, fullgraph=True)(fl.ones(2))
    assert fl.equal(y, fl.ones(2).sin()) and count == 0


@pytest.mark.parametrize("reads", [False, True])
def test_a_warning_is_caught_where_the_program_catches_it(reads):
    def f(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = x.sin()
            if reads and y.sum().item() > 0:
                y = y + 1
            warnings.warn("inside", stacklevel=1)
        warnings.warn("outside", stacklevel=1)
        return y, [str(w.message) for w in caught]

    g = compiled(f)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y, caught = g(fl.ones(2))
        assert fl.equal(y, fl.ones(2).sin() + reads) and caught == ["inside"]
        assert [str(w.message) for w in seen] == ["outside"]


def test_filters_that_outlive_the_call_are_set():
    def f(x):
        warnings.simplefilter("ignore", DeprecationWarning)
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        compiled(f)(fl.ones(2))
        assert warnings.filters[0][0] == "ignore"


def test_scripted_functions_are_captured_as_they_were_written():
    @fl.jit.script
    def scaled(x, by: int = 2):
        return x * by

    f = compiled(lambda x: scaled(x) + scaled(x, 3), fullgraph=True)
    assert fl.equal(f(fl.ones(2)), fl.full((2,), 5.0))


def test_dataclasses_reach_functions_that_are_allowed_in_the_graph():
    @dataclasses.dataclass(frozen=True)
    class Pair:
        x: fl.Tensor
        y: fl.Tensor
        scale: int = 5

    @fl._dynamo.allow_in_graph
    def total(pair, *, more):
        return (pair.x + more.y) * pair.scale

    f = fl.compile(lambda x, y: total(Pair(x, y), more=Pair(y, x)), fullgraph=True)
    assert fl.equal(f(fl.ones(2), fl.ones(2)), fl.full((2,), 10.0))


def test_functions_without_result_that_are_allowed_in_the_graph_are_called():
    calls = []

    @fl._dynamo.allow_in_graph
    def note():
        calls.append(fl.is_grad_enabled())

    def f(x):
        note()
        return x + 1

    g = compiled(f, fullgraph=True)
    g(fl.ones(2))
    before = len(calls)
    g(fl.ones(2))
    assert len(calls) == before + 1 and all(calls)


@pytest.mark.parametrize("choose", [min, max])
def test_extremes_of_sizes_that_data_decides(choose):
    f = fl.compile(lambda x: fl.ones(choose(x.item(), 4)), fullgraph=True)
    for size in (3, 5):
        assert f(fl.tensor(size)).shape == (choose(size, 4),)


@pytest.mark.parametrize("make", [lambda a: [a.item()], lambda a: a.item(), lambda a: [[a.item(), 2], [3, a.item()]]])
@pytest.mark.parametrize("first, second", [(3, 5), (3.5, -1.25)])
def test_tensors_of_numbers_that_data_decides(make, first, second):
    def f(x):
        return fl.tensor(make(x)) * 2

    g = fl.compile(f, fullgraph=True)
    for value in (first, second):
        expected, got = f(fl.tensor([value])), g(fl.tensor([value]))
        assert fl.equal(got, expected) and got.dtype is expected.dtype


def test_tensors_of_conditions_that_data_decides():
    f = fl.compile(lambda x, y: fl.tensor([x.item(), y.item()]), fullgraph=True)
    for pair in ((True, False), (False, True)):
        assert f(*map(fl.tensor, pair)).tolist() == list(pair)


def test_branches_on_sizes_that_data_decides():
    def f(x):
        return fl.cond(x.nonzero().size(0) > 2, lambda x: x + 1, lambda x: x + 3, (x,))

    g = fl.compile(f, fullgraph=True)
    for x in (fl.ones(4), fl.tensor([1.0, 0.0, 0.0, 0.0])):
        assert fl.equal(g(x), f(x))
