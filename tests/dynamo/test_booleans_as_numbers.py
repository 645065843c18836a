"""Numbers among booleans, and booleans among numbers, in compiled functions."""

import pytest

import flambeau as fl


def test_booleans_are_filled_with_booleans():
    def function(x):
        x.fill_(0.5)
        return x & fl.full((2,), 0.25, dtype=fl.bool)

    given = fl.tensor([True, False])
    assert fl.compile(function)(given).tolist() == [True, True]
    assert given.tolist() == [True, True]


@pytest.mark.parametrize("value", [0.5, -1, float("inf"), 0.0, True])
def test_numbers_among_truth_values_are_true_unless_zero(value):
    def function(x):
        return x.masked_fill(x, value)

    x = fl.tensor([True, False])
    assert function(x).tolist() == fl.compile(function)(x).tolist() == [bool(value), False]


def test_booleans_among_numbers_are_numbers():
    def function(x):
        return True**x + fl.where(x > 1, True, x)

    x = fl.tensor([0.5, 2.0])
    fl.testing.assert_close(fl.compile(function)(x), function(x))
