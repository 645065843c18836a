"""Events of launched jobs, as lines of a log."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import traceback
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "Event", "EventSource", "NodeState", "RdzvEvent", "construct_and_record_rdzv_event", "get_logging_handler", "record",
    "record_rdzv_event",
]  # fmt: skip


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


class NodeState(StrEnum):
    """What a node of a rendezvous does."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class RdzvEvent:
    """Something that happened while nodes met."""

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    def serialize(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        if isinstance(data, RdzvEvent):
            return data
        values = json.loads(data)
        values["node_state"] = NodeState(values["node_state"])
        return RdzvEvent(**values)

    def __str__(self) -> str:
        return self.serialize()


def get_logging_handler(destination: str = "null") -> logging.Handler:
    return logging.StreamHandler() if destination == "console" else logging.NullHandler()


_loggers: dict[str, logging.Logger] = {}


def _logger_of(destination: str) -> logging.Logger:
    if destination not in _loggers:
        logger = logging.getLogger(f"torchelastic-events-{destination}")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(get_logging_handler(destination))
        _loggers[destination] = logger
    return _loggers[destination]


def record(event: Event, destination: str = "null") -> None:
    """Writes an event to a destination: "console" or "null"."""
    _logger_of(destination).info(event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    _logger_of("dynamic_rendezvous").info(event.serialize())


def construct_and_record_rdzv_event(
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Writes what happened in a rendezvous, where something reads it."""
    if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
        return
    trace = traceback.format_exc() if sys.exc_info()[0] is not None else ""
    facts = hostname or socket.getfqdn(), os.getpid() if pid is None else pid
    record_rdzv_event(RdzvEvent(name, run_id, message, *facts, node_state, master_endpoint, rank, local_id, trace))
