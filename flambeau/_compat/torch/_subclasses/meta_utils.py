"""How tests compare what two tensors are, apart from their values and devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl


def assert_metadata_eq(
    assert_eq: Callable[[Any, Any], None],
    first: fl.Tensor,
    second: fl.Tensor,
    *,
    skip_symbolic: bool = False,
    skip_leaf: bool = False,
) -> None:
    """Hand dtype, shape, strides, bits and gradients of two tensors to `assert_eq`, pair by pair."""
    names = ["dtype", "requires_grad", "is_sparse", "layout"] + ["is_leaf"] * (not skip_leaf)
    if not first.is_sparse and not first.is_sparse_csr:
        names += ["is_conj", "is_neg", "is_inference"]
        if not skip_symbolic:
            names += ["stride", "storage_offset"]
    if not skip_symbolic:
        names.append("shape")
    for name in names:
        values = [getattr(tensor, name) for tensor in (first, second)]
        assert_eq(*[value() if callable(value) else value for value in values])
    assert_eq(first.grad is None, second.grad is None)
    if first.grad is not None and second.grad is not None:
        assert_metadata_eq(assert_eq, first.grad, second.grad, skip_symbolic=skip_symbolic, skip_leaf=skip_leaf)
