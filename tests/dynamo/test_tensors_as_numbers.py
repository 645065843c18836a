"""Operators that take a tensor of one element for a number read it in the graph."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau import nn

CALLS = {
    "full": lambda v: fl.full((3,), v),
    "alpha": lambda v: fl.add(fl.ones(2), 1, alpha=v),
    "leaky_relu": lambda v: nn.functional.leaky_relu(-fl.ones(2), v),
    "leaky_relu_of_scalar": lambda v: nn.functional.leaky_relu(-fl.tensor(2.0), v),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_is_taken_for_a_number(name):
    function = CALLS[name]
    compiled = fl.compile(function, fullgraph=True)
    for value in (1, 2, 0.25, 0.75):
        fl.testing.assert_close(compiled(fl.tensor(value)), function(fl.tensor(value)))


def test_sizes_are_taken_from_tensors():
    compiled = fl.compile(lambda n: fl.zeros(n, 2) + 1, fullgraph=True)
    assert compiled(fl.tensor(3)).shape == (3, 2) and compiled(fl.tensor(5)).shape == (5, 2)


def test_a_tensor_of_several_elements_is_still_refused():
    with pytest.raises(TypeError, match="fill_value"):
        fl.compile(lambda v: fl.full((3,), v))(fl.ones(2, 2))
