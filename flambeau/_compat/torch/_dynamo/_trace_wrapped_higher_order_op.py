"""Indexing by tensors under `vmap`, which libraries ask to be turned into an operator; here it is one already."""

from __future__ import annotations


class TransformGetItemToIndex:
    """A `with` block in which `x[tensor]` may be batched."""

    def __enter__(self) -> TransformGetItemToIndex:
        return self

    def __exit__(self, *error: object) -> None: ...
