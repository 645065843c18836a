"""Counts of the collectives that distributed tensors run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flambeau.distributed.tensor import _redistribute

__all__ = ["CommDebugMode"]


class CommDebugMode:
    """A `with` block that counts the collectives inside."""

    def __enter__(self) -> CommDebugMode:
        _redistribute.counting += 1
        self._start = len(_redistribute.communications)
        return self

    def __exit__(self, *error: object) -> None:
        self._seen = _redistribute.communications[self._start :]
        _redistribute.counting -= 1
        if not _redistribute.counting:
            _redistribute.communications.clear()

    def _kinds(self) -> list[str]:
        seen = getattr(self, "_seen", None)
        return [kind for kind, _ in (_redistribute.communications[self._start :] if seen is None else seen)]

    def get_total_counts(self) -> int:
        return len(self._kinds())

    def get_comm_counts(self) -> Any:
        import flambeau
        from flambeau.distributed import _functional_collectives  # noqa: F401

        counted = Counter(self._kinds())
        return {getattr(flambeau.ops._c10d_functional, kind): count for kind, count in counted.items()}
