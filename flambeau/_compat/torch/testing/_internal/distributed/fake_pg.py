"""`FakeStore`: what `init_process_group("fake", store=FakeStore(), …)` is given, to try a program of many ranks in one process."""

from __future__ import annotations

from flambeau.distributed._process_group import ProcessGroup
from flambeau.distributed._stores import HashStore

__all__ = ["FakeProcessGroup", "FakeStore"]


class FakeStore(HashStore):
    """A store that nobody else reads."""


FakeProcessGroup = ProcessGroup
