"""How processes find each other: `env://`, `tcp://host:port`, `file:///path`, or a handler of the program's own.

A handler yields (store, rank, world size). Servers live as long as the process, and the keys of each meeting carry its number
(and the number of the restart under a launcher), so that a second group at the same address does not read what the first left.
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse

from flambeau.distributed._stores import FileStore, PrefixStore, Store, TCPStore
from flambeau.distributed.constants import default_pg_timeout

__all__ = ["register_rendezvous_handler", "rendezvous"]

Meeting = tuple[Store, int, int]
_handlers: dict[str, Callable[..., Iterator[Meeting]]] = {}
# By address, process id and rank: threads of one process may be several ranks.
_Place = tuple[str, int, int, int]
_stores: dict[_Place, TCPStore] = {}
_meetings: dict[_Place, int] = {}
_of_thread = threading.local()  # by address: the latest meeting of this thread, and the latest of those that have ended


def _count_meeting(place: _Place) -> int:
    """The number of a meeting at an address, which is that of the others: a process may come again under another rank."""
    address = place[:3]
    ended = _of_thread.__dict__.get("ended", {})
    number = 1 + max(_meetings.get(place, 0), ended.get(address, 0))
    _meetings[place] = _of_thread.__dict__.setdefault("latest", {})[address] = number
    return number


def end_meetings() -> None:
    """The world that this thread met in is gone: whatever its rank is next, that is another meeting."""
    _of_thread.__dict__.setdefault("ended", {}).update(_of_thread.__dict__.get("latest", {}))


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[Meeting]]) -> None:
    if scheme in _handlers:
        raise RuntimeError(f"[register_rendezvous_handler] expected a new scheme, got {scheme!r} again")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Meeting]:
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"[rendezvous] expected a URL as str, got {type(url).__name__}")
    parts = urlparse(str(url))
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    rank = int(query.get("rank", rank)) if rank < 0 else rank
    world_size = int(query.get("world_size", world_size)) if world_size < 0 else world_size
    if parts.scheme not in _handlers:
        raise RuntimeError(
            f"[rendezvous] expected one of the schemes {sorted(_handlers)}, No rendezvous handler for {url!r}"
        )
    return _handlers[parts.scheme](url, rank=rank, world_size=world_size, **options)


def _meet(host: str, port: int, rank: int, world_size: int, timeout: datetime.timedelta) -> Store:
    """The store at an address, held by rank 0 unless a launcher holds it."""
    agent = (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
    held = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and agent == (host, str(port))
    key = (host, port, os.getpid(), rank)
    if key not in _stores:
        _stores[key] = TCPStore(
            host, port, world_size, rank == 0 and not held, timeout, wait_for_workers=False, multi_tenant=True
        )
    store = _stores[key]
    store.set_timeout(timeout)
    number = _count_meeting(key)
    # A launcher counts the rounds in which it started workers.
    attempt = os.environ.get("FLAMBEAU_ROUND", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return PrefixStore(f"attempt{attempt}/meeting{number}", store)


def _tcp(
    url: str, rank: int, world_size: int, timeout: datetime.timedelta = default_pg_timeout, **_: Any
) -> Iterator[Meeting]:
    parts = urlparse(url)
    if parts.port is None:
        raise ValueError(f"[rendezvous] expected a port in the address, got {url!r}")
    if rank < 0:
        raise ValueError(
            "[rendezvous] Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing"
        )
    if world_size < 0:
        raise ValueError(
            "[rendezvous] Error initializing torch.distributed using tcp:// rendezvous: world size parameter missing"
        )
    yield _meet(parts.hostname or "localhost", parts.port, rank, world_size, timeout), rank, world_size


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(
            "[rendezvous] Error initializing torch.distributed using env:// rendezvous: environment variable "
            f"{name} expected, but not set"
        )
    return value


def _env(
    url: str, rank: int, world_size: int, timeout: datetime.timedelta = default_pg_timeout, **_: Any
) -> Iterator[Meeting]:
    adopt_launcher_environment()
    rank = int(_variable("RANK")) if rank < 0 else rank
    world_size = int(_variable("WORLD_SIZE")) if world_size < 0 else world_size
    host, port = _variable("MASTER_ADDR"), int(_variable("MASTER_PORT"))
    yield _meet(host, port, rank, world_size, timeout), rank, world_size


def _file(
    url: str, rank: int, world_size: int, timeout: datetime.timedelta = default_pg_timeout, **_: Any
) -> Iterator[Meeting]:
    parts = urlparse(url)
    path = parts.netloc + parts.path
    if not path:
        raise ValueError(f"[rendezvous] expected a path in the URL, got {url!r}: path missing")
    if rank < 0:
        raise ValueError(
            "[rendezvous] Error initializing torch.distributed using file:// rendezvous: rank parameter missing"
        )
    if world_size < 0:
        raise ValueError(
            "[rendezvous] Error initializing torch.distributed using file:// rendezvous: world size parameter missing"
        )
    store = FileStore(path, world_size)
    store.set_timeout(timeout)
    key = (path, 0, os.getpid(), rank)
    number = _count_meeting(key)
    yield PrefixStore(f"meeting{number}", store), rank, world_size


def adopt_launcher_environment() -> None:
    """Under mpirun and srun, RANK and its like are taken from what those set."""
    if "RANK" in os.environ:
        return
    for rank, size, local in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ):
        if rank in os.environ and size in os.environ:
            os.environ["RANK"] = os.environ[rank]
            os.environ.setdefault("WORLD_SIZE", os.environ[size])
            os.environ.setdefault("LOCAL_RANK", os.environ.get(local, os.environ[rank]))
            if rank == "SLURM_PROCID":
                os.environ.setdefault("MASTER_ADDR", _first_host(os.environ.get("SLURM_JOB_NODELIST", "localhost")))
                job = int(os.environ.get("SLURM_JOB_ID", "0"))
                os.environ.setdefault("MASTER_PORT", str(20000 + job % 20000))
            return


def _first_host(hosts: str) -> str:
    """The first of a Slurm list of hosts such as "node[003-007,9],other"."""
    head, bracket, rest = hosts.partition("[")
    if not bracket or "," in head:
        return head.partition(",")[0]
    first = rest.partition("]")[0].partition(",")[0].partition("-")[0]
    return head + first


for _scheme, _handler in (("tcp", _tcp), ("env", _env), ("file", _file)):
    register_rendezvous_handler(_scheme, _handler)
