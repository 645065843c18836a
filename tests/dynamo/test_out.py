"""Calls that write their result to a tensor they are given."""

import pytest

import flambeau as fl
from flambeau._dynamo.breaks import GraphBreakError


def total(x, out):
    y = x * 2
    fl.sum(y, -1, out=out)
    return out + 1, y


@pytest.mark.parametrize(
    "shape, dtype", [((3,), fl.float32), ((3, 1), fl.float32), ((5,), fl.float32), ((3,), fl.float64), ((3,), fl.int32)]
)
def test_out_is_as_in_plain_python(shape, dtype):
    x = fl.arange(6.0).view(3, 2) + 0.5
    given, wanted = fl.zeros(shape, dtype=dtype), fl.zeros(shape, dtype=dtype)
    results, expected = fl.compile(total)(x, given), total(x, wanted)
    for got, right in zip((*results, given), (*expected, wanted)):
        fl.testing.assert_close(got, right)


def test_graphs_hold_an_out_that_fits_and_break_at_others():
    compiled = fl.compile(total, fullgraph=True)
    compiled(fl.ones(3, 2), fl.zeros(3))
    with pytest.raises(GraphBreakError, match="GB0029"):
        compiled(fl.ones(3, 2), fl.zeros(3, 1))


def test_membership_among_given_numbers_is_compiled():
    def function(x):
        return fl.isin(x, fl.tensor([0, 3]))

    compiled = fl.compile(function, fullgraph=True)
    assert compiled(fl.arange(4)).tolist() == [True, False, False, True]
