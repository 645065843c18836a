"""`loss_parallel`: cross entropy of logits that are divided along the classes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flambeau.distributed.tensor import _dispatch

__all__ = ["loss_parallel"]


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A `with` block in which labels may be plain tensors, the same on all processes."""
    before, _dispatch.implicit_replication = _dispatch.implicit_replication, True
    try:
        yield
    finally:
        _dispatch.implicit_replication = before
