"""Ports and stores for the processes of a job."""

from __future__ import annotations

import datetime
import socket

from flambeau.distributed._stores import TCPStore

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]


def get_socket_with_port() -> socket.socket:
    """A bound socket on a port that is free on this host."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.bind(("localhost", 0))
    bound.listen(0)
    return bound


def get_free_port() -> int:
    with get_socket_with_port() as bound:
        return int(bound.getsockname()[1])


def create_c10d_store(
    is_server: bool,
    server_addr: str,
    server_port: int = -1,
    world_size: int = 1,
    timeout: float = 60 * 10,
    wait_for_workers: bool = True,
    retries: int = 3,
    use_libuv: bool | None = None,
) -> TCPStore:
    """A store at an address; with port -1 the server takes one that is free."""
    port = 0 if server_port == -1 and is_server else server_port
    if port == -1:
        raise ValueError("[create_c10d_store] server_port must be specified when world_size > 1, got -1")
    limit = datetime.timedelta(seconds=timeout)
    return TCPStore(server_addr, port, world_size, is_server, limit, wait_for_workers=wait_for_workers)
