"""How the agents of several nodes find each other: parameters, errors, and a registry of handlers that programs write.

The launcher's own meeting of agents is in `elastic/_agent.py`.
"""

from __future__ import annotations

import abc
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "RendezvousClosedError", "RendezvousConnectionError", "RendezvousError", "RendezvousGracefulExitError",
    "RendezvousHandler", "RendezvousHandlerCreator", "RendezvousHandlerRegistry", "RendezvousInfo",
    "RendezvousParameters", "RendezvousStateError", "RendezvousStoreInfo", "RendezvousTimeoutError",
    "get_rendezvous_handler", "rendezvous_handler_registry",
]  # fmt: skip


class RendezvousError(Exception):
    """Agents could not meet."""


class RendezvousClosedError(RendezvousError):
    """The meeting is over for good."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough agents came in time."""


class RendezvousConnectionError(RendezvousError):
    """The meeting point was not reached."""


class RendezvousStateError(RendezvousError):
    """The state at the meeting point is damaged."""


class RendezvousGracefulExitError(RendezvousError):
    """This node is not needed, and ends without an error."""


class RendezvousParameters:
    """What a handler is made from: backend, endpoint, the number of nodes, and other settings by name."""

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError("[RendezvousParameters] The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(
                f"[RendezvousParameters] The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero."
            )
        if max_nodes < min_nodes:
            raise ValueError(
                f"[RendezvousParameters] The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal "
                f"to the minimum number of rendezvous nodes ({min_nodes})."
            )
        self.backend, self.endpoint, self.run_id = backend, endpoint, run_id
        self.min_nodes, self.max_nodes, self.local_addr, self.config = min_nodes, max_nodes, local_addr, kwargs

    def get(self, key: str, default: Any = None) -> Any:
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in ("1", "true", "t", "yes", "y"):
            return True
        if text in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(f"[RendezvousParameters] expected a boolean for {key!r}, got {value!r}")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        value = self.get(key, default)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError as error:
            raise ValueError(f"[RendezvousParameters] expected an integer for {key!r}, got {value!r}") from error


@dataclass
class RendezvousStoreInfo:
    """Where the workers of a round meet."""

    master_addr: str
    master_port: int

    MASTER_ADDR_KEY = "MASTER_ADDR"
    MASTER_PORT_KEY = "MASTER_PORT"

    @staticmethod
    def build(
        rank: int, store: Any, local_addr: str | None = None, server_port: int | None = None
    ) -> RendezvousStoreInfo:
        """Rank 0 chooses a port of its host and tells the others through the store."""
        if rank == 0:
            from flambeau.distributed.elastic.utils.distributed import get_free_port

            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, local_addr or socket.getfqdn())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port or get_free_port()))
        host = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode()
        return RendezvousStoreInfo(host, int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY)))


class RendezvousInfo:
    """What an agent knows after a meeting."""

    def __init__(
        self, store: Any, rank: int, world_size: int, bootstrap_store_info: RendezvousStoreInfo | None = None
    ) -> None:
        self.store, self.rank, self.world_size = store, rank, world_size
        self.bootstrap_store_info = bootstrap_store_info


class RendezvousHandler(abc.ABC):
    """A way in which agents meet."""

    @abc.abstractmethod
    def get_backend(self) -> str: ...

    @abc.abstractmethod
    def next_rendezvous(self) -> RendezvousInfo: ...

    @abc.abstractmethod
    def is_closed(self) -> bool: ...

    @abc.abstractmethod
    def set_closed(self) -> None: ...

    @abc.abstractmethod
    def num_nodes_waiting(self) -> int: ...

    @abc.abstractmethod
    def get_run_id(self) -> str: ...

    @abc.abstractmethod
    def shutdown(self) -> bool: ...

    @property
    def use_agent_store(self) -> bool:
        """Whether workers meet at the store that the agents met at."""
        return False


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Functions that make handlers, by backend."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        if not backend:
            raise ValueError("[RendezvousHandlerRegistry] The rendezvous backend name must be a non-empty string.")
        known = self._registry.get(backend)
        if known is not None and known is not creator:
            raise ValueError(f"[RendezvousHandlerRegistry] expected a new backend, got {backend!r} again")
        self._registry[backend] = creator

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        creator = self._registry.get(params.backend)
        if creator is None:
            raise ValueError(
                f"[RendezvousHandlerRegistry] expected one of the backends {sorted(self._registry)}, got {params.backend!r}"
            )
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"[RendezvousHandlerRegistry] expected a handler of {params.backend!r}, got one of {handler.get_backend()!r}"
            )
        return handler


def _c10d_handler(params: RendezvousParameters) -> RendezvousHandler:
    from flambeau.distributed.elastic.rendezvous import c10d_rendezvous_backend as c10d
    from flambeau.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic

    def connect() -> Any:
        return c10d.create_backend(params)

    return dynamic.DynamicRendezvousHandler(connect, "c10d", params, dynamic.timeout_of(params))


def _static_handler(params: RendezvousParameters) -> RendezvousHandler:
    from flambeau.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

    return create_rdzv_handler(params)


rendezvous_handler_registry = RendezvousHandlerRegistry()
rendezvous_handler_registry.register("static", _static_handler)
rendezvous_handler_registry.register("c10d", _c10d_handler)


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler that the registry has for the backend of the parameters."""
    return rendezvous_handler_registry.create_handler(params)
