"""`_remote_device`: a device of a process, as "rank:1/cpu" or "worker/cuda:0" say."""

from __future__ import annotations

import flambeau

__all__ = ["_remote_device"]


class _remote_device:
    """A rank or the name of a worker, and a device there."""

    def __init__(self, remote_device: str | flambeau.device) -> None:
        text = str(remote_device)
        if text.startswith("rank:") and "/" not in text:
            text += "/cpu"
        place, slash, device = text.rpartition("/")
        if text.count("/") > 1 or (slash and not (place and device)):
            raise ValueError(
                f"[_remote_device] Could not parse remote_device: {text}. The valid format is 'rank:<rank>/<device>'"
            )
        self._rank: int | None = None
        self._worker_name: str | None = None
        kind, colon, number = place.partition(":")
        if kind == "rank" and colon:
            if not number.isdigit():
                raise ValueError(f"[_remote_device] expected a number as rank, got {number!r}")
            self._rank = int(number)
        elif place:
            self._worker_name = place
        if not slash and ":" not in text and text not in ("cpu", "cuda", "meta"):
            self._worker_name, device = text, "cpu"
        self._device = flambeau.device(device)

    def worker_name(self) -> str | None:
        return self._worker_name

    def rank(self) -> int | None:
        return self._rank

    def device(self) -> flambeau.device:
        return self._device

    def __repr__(self) -> str:
        if self._worker_name is not None:
            return f"{self._worker_name}/{self._device}"
        return f"rank:{self._rank}/{self._device}" if self._rank is not None else str(self._device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _remote_device) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))
