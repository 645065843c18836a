"""Floats that programs compute from sizes: graphs compute them, and one serves all sizes."""

import math

import pytest

import flambeau as fl
import flambeau.nn.functional as F

SIZES = (3, 4, 5, 6, 8, 13)


class Captures:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph, examples):
        self.count += 1
        return graph.forward


def graphs_of(function, sizes=SIZES):
    captures = Captures()
    compiled = fl.compile(function, backend=captures)
    for size in sizes:
        x = fl.randn(size, 3)
        fl.testing.assert_close(compiled(x), function(x))
    return captures.count


FLOATS = {
    "quotient": lambda x: x * (2.0 / x.shape[0]),
    "of two sizes": lambda x: x * (x.shape[0] / x.shape[1]),
    "root": lambda x: x.shape[0] ** 0.5 * x,
    "negative power": lambda x: x * x.shape[0] ** -1,
    "whole power": lambda x: x * x.shape[0] ** 2,
    "power of a quotient": lambda x: x / (x.shape[0] / 2) ** 0.5,
    "square root": lambda x: x * math.sqrt(x.shape[0]),
    "logarithm": lambda x: x / math.log(x.shape[0] + 1),
    "sum": lambda x: x * (1.5 + x.shape[0] - math.exp(-x.shape[0])),
    "converted": lambda x: x * float(x.shape[0]),
    "negated": lambda x: x * -(x.shape[0] / 3) * abs(1 / x.shape[0]),
    "argument": lambda x: F.dropout(x, 1 / x.shape[0], training=False) + fl.full((x.shape[0], 1), 1 / x.shape[0]),
    "bound": lambda x: x.clamp(-1 / x.shape[0], 1 / x.shape[0]),
    "decision for all": lambda x: x * 2 if x.shape[0] / 2 > 1 else x,
    "truncated": lambda x: x[: int(x.shape[0] / 2)] * 2,
    "rounded up": lambda x: x[: math.ceil(x.shape[0] / 2)] * 2,
    "rounded down": lambda x: x[: math.floor(x.shape[0] * 0.5)] * 2,
    "greater": lambda x: x / max(x.shape[0] / 2, 1.0),
}


@pytest.mark.parametrize("name", FLOATS)
def test_one_graph_serves_all_sizes(name):
    assert graphs_of(FLOATS[name]) == 1


def test_decisions_divide_the_sizes():
    assert graphs_of(lambda x: x + 1 if x.shape[0] / 3 > 2 else x * (1 / x.shape[0])) == 2


def test_floats_are_results():
    captures = Captures()
    compiled = fl.compile(lambda x: (x * 2, x.shape[0] / 2, math.log(x.shape[0])), backend=captures)
    for size in SIZES:
        assert compiled(fl.ones(size))[1:] == (size / 2, math.log(size))
    assert captures.count == 1


def test_text_of_a_float_is_that_of_the_size():
    compiled = fl.compile(lambda x: (x * 2, f"{x.shape[0] / 2}"), backend=Captures())
    assert [compiled(fl.ones(size))[1] for size in (3, 4, 5)] == ["1.5", "2.0", "2.5"]


def test_a_float_that_decides_on_a_shape_is_that_of_the_size():
    graphs_of(lambda x: x.sum() + fl.arange(0, x.shape[0] / 2, 0.5).sum())
    graphs_of(lambda x: x * fl.arange(0, x.shape[0] / 2, 0.5).shape[0])


def test_a_float_argument_that_decides_on_a_shape_is_guarded():
    compiled = fl.compile(lambda x, end: x * fl.arange(0, end, 1.0).shape[0], backend=Captures())
    for end in (2.5, 3.5, 6.5, 7.5):
        assert compiled(fl.ones(1), end).item() == math.ceil(end)


def test_division_by_zero_is_that_of_the_program():
    compiled = fl.compile(lambda x: x * (1 / (x.shape[0] - 3)), backend=Captures())
    assert compiled(fl.ones(5))[0] == 0.5
    with pytest.raises(ZeroDivisionError):
        compiled(fl.ones(3))


def test_roots_of_negative_numbers_are_complex():
    compiled = fl.compile(lambda x: (x * 2, (x.shape[0] - 4) ** 0.5), backend=Captures())
    assert [compiled(fl.ones(size))[1] for size in (5, 4, 3)] == [1.0, 0.0, (-1) ** 0.5]


def test_sizes_and_learning_rates_are_calculated_with():
    compiled = fl.compile(lambda x, rate: x * (rate * (2.0 / x.shape[0])), backend=Captures())
    for size, rate in ((3, 0.1), (4, 0.2), (5, 0.1), (4, 0.3)):
        fl.testing.assert_close(compiled(fl.ones(size), rate), fl.ones(size) * (rate * (2.0 / size)))
