"""Version strings that compare as versions: with strings, tuples and version objects."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]


def _key(version: Any) -> tuple[Any, ...]:
    """Release numbers, then whether it is a final release; the local part after + does not count."""
    if isinstance(version, (tuple, list)):
        version = ".".join(map(str, version))
    text = str(version).partition("+")[0]
    numbers, rest = re.match(r"v?((?:\d+\.)*\d+)?(.*)", text).groups()  # type: ignore[union-attr]
    release = [int(n) for n in (numbers or "0").split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return (*release,), not re.match(r"[.\-_]?(a|b|c|rc|dev|alpha|beta|pre)", rest), rest


class TorchVersion(str):
    """A string such as "2.13.0+cpu" whose comparisons are those of versions."""

    def __lt__(self, other: Any) -> bool:
        return _key(self) < _key(other)

    def __le__(self, other: Any) -> bool:
        return _key(self) <= _key(other)

    def __gt__(self, other: Any) -> bool:
        return _key(self) > _key(other)

    def __ge__(self, other: Any) -> bool:
        return _key(self) >= _key(other)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or _key(self) == _key(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        import flambeau

        return TorchVersion(flambeau.__version__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
