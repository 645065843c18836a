"""The agent of one node: meets the agents of other nodes at a store, starts its workers, watches them, restarts them.

Agents meet in rounds. A round is closed when all nodes that may come have come, or when enough have and no other came for a
while; then every agent knows how many workers there are and which ranks are its own. A failed worker, or a node that comes
later, ends the round for all, and they meet in the next one. Keys carry the number of the round, so that nothing of an
earlier one is found.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed._stores import FileStore, PrefixStore, TCPStore
from flambeau.distributed._types import DistNetworkError, DistStoreError
from flambeau.distributed.elastic.multiprocessing._workers import (
    FunctionWorker,
    Logs,
    ProgramWorker,
    Worker,
    fresh_error_file,
)
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

__all__ = ["Agent", "Job"]


@dataclass
class Job:
    """What to run, on how many nodes, and how often to try again."""

    program: list[str] | Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    min_nodes: int = 1
    max_nodes: int = 1
    workers: int = 1
    run_id: str = ""
    role: str = "default"
    endpoint: str = ""
    meeting_file: str = ""  # on a file system that all nodes share, instead of an endpoint
    local_address: str | None = None
    serves: bool | None = None  # None: whoever can
    node_rank: int | None = None
    max_restarts: int = 0
    monitor_interval: float = 0.1
    join_timeout: float = 600.0
    last_call: float = 1.0
    shutdown_timeout: float = 30.0
    start_method: str = "spawn"
    logs: Logs = field(default_factory=Logs)
    signals: tuple[str, ...] = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class _Round:
    """What a closed round decided."""

    number: int
    node: int
    nodes: int
    first_rank: int
    world_size: int


class SignalException(Exception):
    """The agent was asked to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Process {os.getpid()} got signal: {number}")
        self.sigval = signal.Signals(number)


def _is_local(host: str) -> bool:
    if host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
        return any(info[4][0] in own for info in socket.getaddrinfo(host, None))
    except OSError:
        return False


def _own_address() -> str:
    """A name of this host that it can be reached by."""
    try:
        socket.getaddrinfo(socket.gethostname(), None)
        return socket.gethostname()
    except OSError:
        return "127.0.0.1"


def _answers(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return True
    except OSError:
        return False


class Agent:
    """Runs a job's workers on this node until they succeed or fail for good."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.host, self.port, self.tcp = self._open_store()
        self.store = PrefixStore(f"agents/{job.run_id}", self.tcp)
        self.restarts = 0
        self.workers: list[Worker] = []
        self.folder = job.logs.folder(job.run_id) or tempfile.mkdtemp(prefix="flambeau-launch-")

    def _open_store(self) -> tuple[str, int, TCPStore]:
        if self.job.meeting_file:
            return self._open_store_of_file()
        host, _, port = self.job.endpoint.rpartition(":") if ":" in self.job.endpoint else (self.job.endpoint, "", "0")
        host, number = host.strip("[]") or "127.0.0.1", int(port or 0)
        limit = datetime.timedelta(seconds=self.job.join_timeout)
        serves = self.job.serves
        if serves is not False and (serves or _is_local(host)):
            try:
                store = TCPStore(host, number, None, True, limit, wait_for_workers=False)
                return host, store.port, store
            except DistNetworkError:
                if serves:
                    raise
        return host, number, TCPStore(host, number, None, False, limit, wait_for_workers=False)

    def _open_store_of_file(self) -> tuple[str, int, TCPStore]:
        """The first agent that comes writes down where its store is; one of an earlier job that is over is replaced."""
        limit = datetime.timedelta(seconds=self.job.join_timeout)
        meeting = FileStore(self.job.meeting_file)
        key, known = f"{self.job.run_id}/endpoint", ""
        own: TCPStore | None = None
        address = self.job.local_address or _own_address()
        for _ in range(100):
            known = meeting.compare_set(key, known, known).decode()
            if not known or not _answers(known):
                own = own or TCPStore(address, 0, None, True, limit, wait_for_workers=False)
                chosen = meeting.compare_set(key, known, f"{address}:{own.port}").decode()
                if chosen == f"{address}:{own.port}":
                    return address, own.port, own
                continue
            host, _, port = known.rpartition(":")
            return host, int(port), TCPStore(host, int(port), None, False, limit, wait_for_workers=False)
        raise DistStoreError(
            f"[launch] expected an agent to be found in {self.job.meeting_file}, got none that answers"
        )

    # ------------------------------------------------------------------------------------ rounds

    def _current_round(self) -> int:
        return self.store.add("round", 0)

    def _meet(self) -> _Round:
        """Joins the open round, or the next one when it is closed already."""
        until = time.monotonic() + self.job.join_timeout
        while time.monotonic() < until:
            number = self._current_round()
            place = self.store.add(f"{number}/joined", 1)
            host = json.dumps({"workers": self.job.workers, "node": self.job.node_rank, "place": place})
            self.store.set(f"{number}/node{place}", host)
            if place == 1:
                self._close(number, until)
            # The round may be closed at any time after this node joined: what counts is whether it was counted.
            self.store.wait([f"{number}/closed"], datetime.timedelta(seconds=self.job.join_timeout))
            if place <= int(self.store.get(f"{number}/closed")):
                return self._read(number, place)
            # Too late for this round: ask for another, which the others see.
            self._end_round(number, "a node joined")
            time.sleep(0.05)
        raise DistStoreError(
            f"[launch] expected {self.job.min_nodes} nodes, got a timeout after {self.job.join_timeout} s"
        )

    def _close(self, number: int, until: float) -> None:
        """The first of a round waits for the others and closes it."""
        seen, since = 1, time.monotonic()
        while time.monotonic() < until:
            joined = self.store.add(f"{number}/joined", 0)
            if joined != seen:
                seen, since = joined, time.monotonic()
            if joined >= self.job.max_nodes:
                break
            if joined >= self.job.min_nodes and time.monotonic() - since > self.job.last_call:
                break
            time.sleep(0.02)
        else:
            raise DistStoreError(
                f"[launch] expected {self.job.min_nodes} nodes, got {seen} within {self.job.join_timeout} s"
            )
        self.store.set(f"{number}/closed", str(min(seen, self.job.max_nodes)))

    def _read(self, number: int, place: int) -> _Round:
        count = int(self.store.get(f"{number}/closed"))
        keys = [f"{number}/node{i}" for i in range(1, count + 1)]
        nodes = [json.loads(value) for value in self.store.multi_get(keys)]
        nodes.sort(key=lambda node: (node["node"] if node["node"] is not None else node["place"], node["place"]))
        own = next(i for i, node in enumerate(nodes) if node["place"] == place)
        sizes = [node["workers"] for node in nodes]
        return _Round(number, own, count, sum(sizes[:own]), sum(sizes))

    def _end_round(self, number: int, why: str) -> None:
        self.store.set(f"{number}/ended", why)
        self.store.compare_set("round", str(number), str(number + 1))

    # ------------------------------------------------------------------------------------ workers

    def _environment(self, round_: _Round, local: int) -> dict[str, str]:
        job, rank = self.job, round_.first_rank + local
        variables = {
            "LOCAL_RANK": local, "RANK": rank, "GROUP_RANK": round_.node, "ROLE_RANK": rank, "ROLE_NAME": job.role,
            "LOCAL_WORLD_SIZE": job.workers, "WORLD_SIZE": round_.world_size, "GROUP_WORLD_SIZE": round_.nodes,
            "ROLE_WORLD_SIZE": round_.world_size, "MASTER_ADDR": self.host, "MASTER_PORT": self.port,
            "TORCHELASTIC_RESTART_COUNT": self.restarts, "TORCHELASTIC_MAX_RESTARTS": job.max_restarts,
            "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(job.signals),
            "TORCHELASTIC_RUN_ID": job.run_id, "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            "FLAMBEAU_ROUND": round_.number,
            "TORCHELASTIC_ERROR_FILE": fresh_error_file(self.folder, self.restarts, local),
        }  # fmt: skip
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}, **job.environment}
        if job.workers > 1:
            environment.setdefault("OMP_NUM_THREADS", "1")
        return environment

    def _start(self, round_: _Round) -> None:
        self.workers = []
        for local in range(self.job.workers):
            environment = self._environment(round_, local)
            rank = round_.first_rank + local
            if callable(self.job.program):
                worker: Worker = FunctionWorker(
                    rank, local, environment, self.job.program, self.job.arguments, self.folder, self.job.start_method
                )
            else:
                worker = ProgramWorker(rank, local, environment, self.job.program, self.job.logs, self.folder)
            self.workers.append(worker)

    def _stop(self, number: int = signal.SIGTERM) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.signal(number)
        until = time.monotonic() + self.job.shutdown_timeout
        while any(worker.poll() is None for worker in self.workers) and time.monotonic() < until:
            time.sleep(0.01)
        for worker in self.workers:
            if worker.poll() is None:
                worker.signal(signal.SIGKILL)
            worker.close()

    def _failures(self) -> dict[int, ProcessFailure]:
        return {
            worker.rank: ProcessFailure(worker.local, worker.pid, worker.poll(), worker.error_file)
            for worker in self.workers
            if worker.poll() not in (None, 0)
        }

    def _failures_with_cause(self) -> dict[int, ProcessFailure]:
        """Failed workers; where all of them say that another one failed, that one is waited for a moment."""
        until = time.monotonic() + 1.0
        while all(failure.follows for failure in self._failures().values()) and time.monotonic() < until:
            time.sleep(0.02)
        return self._failures()

    def _watch(self, round_: _Round) -> str:
        """How the round ended: "succeeded", "failed" or "again"."""
        next_look = 0.0
        while True:
            codes = [worker.poll() for worker in self.workers]
            if any(code not in (None, 0) for code in codes):
                return "failed"
            if all(code == 0 for code in codes):
                return "succeeded"
            if time.monotonic() >= next_look and (self.job.max_nodes > 1):
                next_look = time.monotonic() + 0.2
                if self.store.check([f"{round_.number}/ended"]):
                    return "again"
            time.sleep(min(self.job.monitor_interval, 0.1))

    # ------------------------------------------------------------------------------------ the whole

    def run(self) -> dict[int, Any]:
        """Returns what the workers returned, by rank; raises ChildFailedError."""
        previous = {}
        for name in self.job.signals:
            try:
                previous[name] = signal.signal(getattr(signal, name), self._on_signal)
            except (ValueError, AttributeError):  # not the main thread, or no such signal here
                continue
        try:
            return self._run()
        except SignalException as error:
            self._stop(int(error.sigval))
            raise
        finally:
            self._stop(signal.SIGTERM)
            for name, handler in previous.items():
                signal.signal(getattr(signal, name), handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        raise SignalException(number)

    def _run(self) -> dict[int, Any]:
        while True:
            round_ = self._meet()
            self.node, self.nodes, self.world_size = round_.node, round_.nodes, round_.world_size
            self._start(round_)
            outcome = self._watch(round_)
            if outcome == "succeeded":
                self._leave(round_)
                return {worker.rank: worker.result() for worker in self.workers}
            failures = self._failures_with_cause() if outcome == "failed" else {}
            self._stop()
            if outcome == "failed":
                self._report(round_, failures)
                if self.restarts >= self.job.max_restarts:
                    self._end_round(round_.number, "failed for good")
                    self.store.set("failed", "1")
                    raise ChildFailedError(self._name(), failures)
            elif self.store.check(["failed"]):
                raise ChildFailedError(self._name(), {})
            self.restarts += 1 if outcome == "failed" or self._failed_elsewhere(round_) else 0
            self._end_round(round_.number, "a worker failed" if outcome == "failed" else "again")

    def _failed_elsewhere(self, round_: _Round) -> bool:
        return self.store.get(f"{round_.number}/ended") == b"a worker failed"

    def _name(self) -> str:
        program = self.job.program
        if callable(program):
            return program.__qualname__
        named = [part for part in program[1:] if not part.startswith("-")]
        return named[0] if named and os.path.basename(program[0]).startswith("python") else program[0]

    def _report(self, round_: _Round, failures: dict[int, ProcessFailure]) -> None:
        for rank, failure in failures.items():
            left = self.job.max_restarts - self.restarts
            print(
                f"[launch] worker of rank {rank} (process {failure.pid}) failed with exit code {failure.exitcode}; "
                f"{left} restarts left",
                file=sys.stderr,
                flush=True,
            )

    def _leave(self, round_: _Round) -> None:
        """The store has to live until all nodes are through."""
        self.store.add(f"{round_.number}/done", 1)
        until = time.monotonic() + self.job.join_timeout
        while self.tcp.is_master and round_.nodes > 1 and time.monotonic() < until:
            if self.store.add(f"{round_.number}/done", 0) >= round_.nodes:
                break
            time.sleep(0.02)


def fresh_run_id() -> str:
    return str(uuid.uuid4())
