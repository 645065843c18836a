"""Streams and events of any accelerator: the types that those of each kind of device derive from."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Needs:
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"[{cls.__name__}] expected an accelerator, got a machine or build without one")


class Stream(_Needs):
    """A queue of work on a device."""


class Event(_Needs):
    """A mark in a stream."""
