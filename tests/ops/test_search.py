"""Searching in sorted sequences."""

import flambeau as fl


def test_one_value_is_not_a_number():
    """A tensor of one element keeps its shape, unlike a number."""
    edges = fl.tensor([1, 3, 5])
    assert fl.searchsorted(edges, fl.tensor([4])).tolist() == [2]
    assert fl.bucketize(fl.tensor([[3]]), edges, right=True).tolist() == [[2]]
    assert fl.searchsorted(edges, 4).shape == () and fl.bucketize(4, edges).item() == 2
