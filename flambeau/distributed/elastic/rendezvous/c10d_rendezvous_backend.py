"""The state of a meeting under one key of a store."""

from __future__ import annotations

import base64
import datetime
import os
import tempfile
from typing import Any

from flambeau.distributed._stores import FileStore, Store, TCPStore
from flambeau.distributed.elastic._agent import _is_local
from flambeau.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousParameters,
    RendezvousStateError,
)
from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

__all__ = ["C10dRendezvousBackend", "create_backend"]

DEFAULT_PORT = 29400
_NOTHING = "Y2FuaW1hZGFt"  # what the key holds before there is a state


class C10dRendezvousBackend(RendezvousBackend):
    """Compares and sets a key; the token is the value that was read."""

    def __init__(self, store: Store, run_id: str) -> None:
        if not run_id:
            raise ValueError("[C10dRendezvousBackend] The run id must be a non-empty string.")
        self._store, self._key = store, f"torch.rendezvous.{run_id}"
        self._swap(_NOTHING, "")

    @property
    def name(self) -> str:
        return "c10d"

    def _swap(self, desired: str, expected: str) -> bytes:
        try:
            return self._store.compare_set(self._key, expected, desired)
        except RuntimeError as error:
            raise RendezvousConnectionError(
                "[C10dRendezvousBackend] The connection to the C10d store has failed. See inner exception for details."
            ) from error

    def _decoded(self, value: bytes) -> tuple[bytes, Any] | None:
        if value == _NOTHING.encode():
            return None
        try:
            return base64.b64decode(value), value
        except ValueError as error:
            raise RendezvousStateError("[C10dRendezvousBackend] The state object is corrupt.") from error

    def get_state(self) -> tuple[bytes, Any] | None:
        return self._decoded(self._swap(_NOTHING, ""))

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        encoded = base64.b64encode(state).decode()
        if token is not None and not isinstance(token, bytes):  # not one of ours
            current = self.get_state()
            return None if current is None else (*current, False)
        value = self._swap(encoded, _NOTHING if token is None else token.decode())
        current = self._decoded(value)
        return None if current is None else (*current, value == encoded.encode())


def _tcp_store(params: RendezvousParameters) -> Store:
    host, _, port = params.endpoint.strip().rpartition(":")
    if not host:
        host, port = params.endpoint.strip() or "localhost", str(DEFAULT_PORT)
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(f"[rendezvous] expected an endpoint as host:port, got {params.endpoint!r}")
    timeout = params.get_as_int("read_timeout", 60) or 0
    if timeout <= 0:
        raise ValueError("[rendezvous] The read timeout must be a positive integer.")
    limit = datetime.timedelta(seconds=timeout)
    chosen = params.get_as_bool("is_host")
    tries = [chosen] if chosen is not None else [True, False] if _is_local(host) else [False]
    for serves in tries:
        try:
            return TCPStore(host, int(port), None, serves, limit, wait_for_workers=False, multi_tenant=True)
        except RuntimeError as error:
            failure = error
    raise RendezvousConnectionError(
        "[rendezvous] The connection to the C10d store has failed. See inner exception for details."
    ) from failure


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """A backend and its store, in a file or behind a socket as `store_type` says."""
    kind = str(params.get("store_type", "tcp")).strip().lower()
    if kind == "file":
        path = params.endpoint or os.path.join(tempfile.gettempdir(), f"flambeau-rendezvous-{params.run_id}")
        store: Store = FileStore(path)
    elif kind == "tcp":
        store = _tcp_store(params)
    else:
        raise ValueError(f"[rendezvous] Invalid store type given, expected file or tcp, got {kind!r}")
    return C10dRendezvousBackend(store, params.run_id), store
