"""Reductions that leave out masked elements."""

import flambeau as fl


def test_logsumexp_of_integers():
    values, mask = fl.tensor([[1, 2], [3, 4]]), fl.tensor([[True, False], [True, True]])
    assert fl.masked.logsumexp(values, 1, mask=mask).tolist() == [1, 4]  # computed in floating point, then cut off
