"""Making tensors with masks."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.masked.maskedtensor.core import MaskedTensor, check_parts, enter, masked_view

__all__ = ["as_masked_tensor", "masked_tensor"]


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A copy of the data with a mask, True where an element is present; a leaf of its own."""
    check_parts(data, mask)
    masked = masked_view(data.detach().clone(), mask.clone())
    return masked.requires_grad_() if requires_grad else masked


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """The data itself with a mask. Gradients flow to it, and are zero where elements are absent."""
    check_parts(data, mask)
    return masked_view(enter(data, mask), mask)
