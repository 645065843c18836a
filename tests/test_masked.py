"""Reductions that leave out masked elements."""

import pytest

import flambeau as fl


def test_logsumexp_of_integers():
    values, mask = fl.tensor([[1, 2], [3, 4]]), fl.tensor([[True, False], [True, True]])
    assert fl.masked.logsumexp(values, 1, mask=mask).tolist() == [1, 4]  # computed in floating point, then cut off


def test_tensors_with_masks_fail_at_use_only():
    from flambeau.masked import MaskedTensor, is_masked_tensor, masked_tensor

    assert isinstance(MaskedTensor, type) and not is_masked_tensor(fl.ones(2))
    with pytest.raises(NotImplementedError, match="masks"):
        masked_tensor(fl.ones(2), fl.ones(2, dtype=fl.bool))
