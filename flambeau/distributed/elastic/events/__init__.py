"""Events of launched jobs, as lines of a log."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Event", "EventSource", "get_logging_handler", "record"]


class EventSource(StrEnum):
    AGENT = "AGENT"
    WORKER = "WORKER"


@dataclass
class Event:
    """Something that happened, with facts about it."""

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def serialize(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        if isinstance(data, Event):
            return data
        values = json.loads(data)
        values["source"] = EventSource(values["source"])
        return Event(**values)

    def __str__(self) -> str:
        return self.serialize()


def get_logging_handler(destination: str = "null") -> logging.Handler:
    return logging.StreamHandler() if destination == "console" else logging.NullHandler()


_loggers: dict[str, logging.Logger] = {}


def record(event: Event, destination: str = "null") -> None:
    """Writes an event to a destination: "console" or "null"."""
    if destination not in _loggers:
        logger = logging.getLogger(f"torchelastic-events-{destination}")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(get_logging_handler(destination))
        _loggers[destination] = logger
    _loggers[destination].info(event.serialize())
