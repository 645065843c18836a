"""Schemas that follow from Python functions read as if they were written out."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau.ops.record import Scalar
from flambeau.ops.schema import Schema, of_function


def test_arguments_and_results_follow_from_annotations():
    def op(
        self: fl.Tensor, other: fl.Tensor | Scalar, dim: int | None = None, *, mode: str = "mean", rest: Any = None
    ) -> tuple[fl.Tensor, fl.Tensor]:
        return self, self

    written = (
        "op.two(Tensor self, Tensor|Scalar other, int? dim=None, *, str mode='mean', any rest=None) -> (Tensor, Tensor)"
    )
    assert of_function(op, "op.two") == Schema.parse(written)


def test_lists_follow_from_annotations():
    def op(tensors: list[fl.Tensor], sizes: list[int], alpha: Scalar = 1) -> tuple[fl.Tensor, ...]:
        return tuple(tensors)

    assert of_function(op, "op") == Schema.parse("op(Tensor[] tensors, int[] sizes, Scalar alpha=1) -> Tensor[]")


def test_results_may_have_names():
    def op(self: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
        return self, self

    assert of_function(op, "op", "sign logabsdet") == Schema.parse("op(Tensor self) -> (Tensor sign, Tensor logabsdet)")
    with pytest.raises(ValueError, match="zip"):
        of_function(op, "op", "sign")


def test_annotations_without_a_type_are_refused():
    def op(self: fl.Tensor, size: set[int]) -> fl.Tensor:
        return self

    with pytest.raises(ValueError, match=r"\[schema\] expected an annotation .*, got 'set\[int\]'"):
        of_function(op, "op")
