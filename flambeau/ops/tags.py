"""Tags at run time: which operators have one, from the table of operators and without importing their records.

The tags are those of `record.TAGS`, and the kinds of records ("pointwise", "reduction", ...).
"""

from __future__ import annotations

import functools

from flambeau.ops.record import KINDS

__all__ = ["functions", "operators"]


@functools.cache
def operators(*tags: str) -> frozenset[str]:
    """The full names of the operators with any of the tags. Forms derived from a record (`add_`) are not among them."""
    return frozenset(name for tag in tags for name, _ in _rows(tag))


@functools.cache
def functions(*tags: str) -> frozenset[str]:
    """The names of the functions and methods of which every overload has one of the tags."""
    chosen = operators(*tags)
    public = {function for tag in tags for _, function in _rows(tag)}
    return frozenset(public - {function for kind in KINDS for name, function in _rows(kind) if name not in chosen})


@functools.cache
def _rows(tag: str) -> list[tuple[str, str]]:
    from flambeau import _C

    return _C._tagged(tag)
