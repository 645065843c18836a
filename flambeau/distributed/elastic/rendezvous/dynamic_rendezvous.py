"""`DynamicRendezvousHandler`: nodes that come and go meet in rounds, over a backend that keeps one small state for all.

A round is complete when `max_nodes` have joined, or when `min_nodes` have and no other came for a while. A node that joins
while a round is complete waits; those of the round see it (`num_nodes_waiting`) and begin the next one.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from flambeau.distributed._stores import PrefixStore, Store
from flambeau.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

__all__ = ["DynamicRendezvousHandler", "RendezvousBackend", "RendezvousTimeout", "Token", "create_handler"]

Token = Any
_POLL = 0.02  # seconds between looks at the state


class RendezvousBackend(ABC):
    """Keeps a state in bytes, and changes it only for those who know the latest one."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None: ...

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None: ...


class RendezvousTimeout:
    """How long to wait for enough nodes, for more of them after that, for the end, and for a sign of life."""

    join: datetime.timedelta
    last_call: datetime.timedelta
    close: datetime.timedelta
    heartbeat: datetime.timedelta

    def __init__(
        self,
        join: datetime.timedelta | None = None,
        last_call: datetime.timedelta | None = None,
        close: datetime.timedelta | None = None,
        heartbeat: datetime.timedelta | None = None,
    ) -> None:
        times = {"join": (join, 600), "last_call": (last_call, 30), "close": (close, 30), "heartbeat": (heartbeat, 5)}
        for name, (value, default) in times.items():
            setattr(self, name, datetime.timedelta(seconds=default) if value is None else value)
        for name, value in vars(self).items():
            if value <= datetime.timedelta(0):
                raise ValueError(f"[RendezvousTimeout] The {name} timeout ({value}) must be positive.")


def _empty() -> dict[str, Any]:
    return {"round": 0, "complete": False, "closed": False, "joined": [], "waiting": [], "since": 0.0}


class DynamicRendezvousHandler(RendezvousHandler):
    """One node of a meeting. `connect` gives backend and store when they are first needed."""

    def __init__(
        self,
        connect: Callable[[], tuple[RendezvousBackend, Store]],
        backend: str,
        parameters: RendezvousParameters,
        timeout: RendezvousTimeout,
    ) -> None:
        self.parameters, self._timeout, self._backend_name = parameters, timeout, backend
        self._connect = connect
        self._connection: tuple[RendezvousBackend, Store] | None = None
        self._node = f"{parameters.local_addr or socket.getfqdn()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"

    @classmethod
    def from_backend(
        cls,
        run_id: str,
        store: Store,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: int = 5,
        keep_alive_max_attempt: int = 3,
    ) -> DynamicRendezvousHandler:
        parameters = RendezvousParameters(backend.name, "", run_id, min_nodes, max_nodes, local_addr)
        return cls(lambda: (backend, store), backend.name, parameters, timeout or RendezvousTimeout())

    @property
    def settings(self) -> RendezvousParameters:
        return self.parameters

    @property
    def use_agent_store(self) -> bool:
        return os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    # ------------------------------------------------------------------------------------ the state

    def _at(self) -> tuple[RendezvousBackend, Store]:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _read(self) -> tuple[dict[str, Any], Token]:
        answer = self._at()[0].get_state()
        if answer is None:
            return _empty(), None
        try:
            return json.loads(answer[0]), answer[1]
        except ValueError as error:
            raise RendezvousStateError(
                "[rendezvous] expected the state of a meeting at the backend, got another"
            ) from error

    def _change(self, change: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The state after `change(state)`, which says whether it changed something; tried until nobody was faster."""
        while True:
            state, token = self._read()
            if not change(state):
                return state
            answer = self._at()[0].set_state(json.dumps(state).encode(), token)
            if answer is not None and answer[2]:
                return state

    # ------------------------------------------------------------------------------------ joining

    def _join(self, state: dict[str, Any]) -> bool:
        before = json.dumps(state)
        if state["closed"]:
            raise RendezvousClosedError(
                f"[rendezvous] expected the meeting {self.get_run_id()!r} to be open, got a closed one"
            )
        if state["complete"] and self._node in state["joined"]:  # this node asks for another round
            newcomers = state["waiting"][: self.parameters.max_nodes - 1]
            state |= _empty() | {"round": state["round"] + 1, "joined": [self._node, *newcomers], "since": time.time()}
        elif state["complete"]:
            if self._node not in state["waiting"]:
                state["waiting"].append(self._node)
        elif self._node not in state["joined"]:
            state["joined"].append(self._node)
            state["since"] = time.time()
        count, late = len(state["joined"]), time.time() - state["since"] > self._timeout.last_call.total_seconds()
        if not state["complete"] and (
            count >= self.parameters.max_nodes or (count >= self.parameters.min_nodes and late)
        ):
            state["complete"], state["waiting"] = True, []
        return json.dumps(state) != before

    def next_rendezvous(self) -> RendezvousInfo:
        """Joins a round and returns when it is complete."""
        until, entered = time.monotonic() + self._timeout.join.total_seconds(), -1
        while time.monotonic() < until:
            state = self._read()[0] if entered >= 0 else None
            if state is None or not (state["complete"] and state["round"] >= entered and self._node in state["joined"]):
                state = self._change(self._join)
                entered = max(entered, state["round"] + (self._node not in state["joined"]))
            if state["complete"] and self._node in state["joined"] and state["round"] >= entered:
                return self._info(state)
            time.sleep(_POLL)
        self._change(self._leave)
        raise RendezvousTimeoutError(
            f"[rendezvous] expected {self.parameters.min_nodes} nodes within {self._timeout.join.total_seconds():.0f} s, got fewer"
        )

    def _info(self, state: dict[str, Any]) -> RendezvousInfo:
        rank, nodes = state["joined"].index(self._node), len(state["joined"])
        store = PrefixStore(f"torch.rendezvous.{self.get_run_id()}.{state['round']}", self._at()[1])
        place = RendezvousStoreInfo.build(rank, store, self.parameters.local_addr)
        return RendezvousInfo(store, rank, nodes, place)

    def _leave(self, state: dict[str, Any]) -> bool:
        inside = self._node in state["waiting"] or (self._node in state["joined"] and not state["complete"])
        for listed in (state["waiting"], *([] if state["complete"] else [state["joined"]])):
            if self._node in listed:
                listed.remove(self._node)
        return inside

    # ------------------------------------------------------------------------------------ questions and the end

    def get_backend(self) -> str:
        return self._backend_name

    def get_run_id(self) -> str:
        return self.parameters.run_id

    def is_closed(self) -> bool:
        return bool(self._read()[0]["closed"])

    def num_nodes_waiting(self) -> int:
        return len(self._read()[0]["waiting"])

    def set_closed(self) -> None:
        def close(state: dict[str, Any]) -> bool:
            changes, state["closed"] = not state["closed"], True
            return changes

        self._change(close)

    def shutdown(self) -> bool:
        try:
            self.set_closed()
        except (RendezvousConnectionError, RuntimeError):
            return False
        return True


def timeout_of(parameters: RendezvousParameters) -> RendezvousTimeout:
    def seconds(name: str) -> datetime.timedelta | None:
        number = parameters.get_as_int(f"{name}_timeout")
        return None if number is None else datetime.timedelta(seconds=number)

    return RendezvousTimeout(*(seconds(name) for name in ("join", "last_call", "close", "heartbeat")))


def create_handler(store: Store, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """A handler of the parameters `join_timeout`, `last_call_timeout`, `close_timeout` and `heartbeat`, in seconds."""
    return DynamicRendezvousHandler(lambda: (backend, store), backend.name, params, timeout_of(params))
