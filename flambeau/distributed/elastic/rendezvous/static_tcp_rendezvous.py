"""A meeting of nodes whose number and ranks are known before."""

from __future__ import annotations

import datetime
from typing import Any

from flambeau.distributed._stores import PrefixStore, TCPStore
from flambeau.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

__all__ = ["StaticTCPRendezvous", "create_rdzv_handler"]


class StaticTCPRendezvous(RendezvousHandler):
    """The node of rank 0 holds the store at the endpoint."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        host, _, port = parameters.endpoint.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"[StaticTCPRendezvous] expected an endpoint as host:port, got {parameters.endpoint!r}")
        rank = parameters.get_as_int("rank")
        if rank is None:
            raise ValueError(
                "[StaticTCPRendezvous] rank is absent in RendezvousParameters. Try add --node-rank to the cmd"
            )
        self.parameters, self._host, self._port, self._rank = parameters, host.strip("[]"), int(port), rank
        self._store: Any = None

    def get_backend(self) -> str:
        return "static"

    def next_rendezvous(self) -> RendezvousInfo:
        limit = datetime.timedelta(seconds=self.parameters.get_as_int("timeout", 600) or 600)
        if self._store is None:
            count = self.parameters.min_nodes
            self._store = TCPStore(
                self._host, self._port, count, self._rank == 0, limit, wait_for_workers=False, multi_tenant=True
            )
        store = PrefixStore(self.parameters.run_id, self._store)
        return RendezvousInfo(store, self._rank, self.parameters.min_nodes, RendezvousStoreInfo(self._host, self._port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None: ...

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.parameters.run_id

    def shutdown(self) -> bool:
        return True


def create_rdzv_handler(params: RendezvousParameters) -> StaticTCPRendezvous:
    return StaticTCPRendezvous(params)
