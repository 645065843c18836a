"""`LocalElasticAgent(spec, …).run()`: workers as `WorkerSpec` describes them, under the launcher's agent (`elastic/_agent.py`)."""

from __future__ import annotations

import abc
import enum
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.elastic._agent import Agent, Job, SignalException, fresh_run_id
from flambeau.distributed.elastic.multiprocessing import LogsSpecs
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

__all__ = [
    "ElasticAgent", "LocalElasticAgent", "RunResult", "SignalException", "SimpleElasticAgent", "Worker", "WorkerGroup",
    "WorkerSpec", "WorkerState",
]  # fmt: skip


@dataclass
class WorkerSpec:
    """What the workers of a node run, how many there are, and how agents of several nodes meet."""

    role: str
    local_world_size: int
    rdzv_handler: Any
    fn: Callable[..., Any] | None = None
    entrypoint: Callable[..., Any] | str | None = None
    args: tuple[Any, ...] = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    duplicate_stdout_filters: Any = None
    duplicate_stderr_filters: Any = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if self.local_world_size <= 0 or self.monitor_interval <= 0:
            raise AssertionError("[WorkerSpec] expected local_world_size and monitor_interval above zero")
        self.entrypoint = self.entrypoint or self.fn
        if self.entrypoint is None:
            raise AssertionError("[WorkerSpec] expected an entrypoint, got none")

    def get_entrypoint_name(self) -> str:
        return self.entrypoint if isinstance(self.entrypoint, str) else self.entrypoint.__qualname__  # type: ignore[union-attr]


class WorkerState(str, enum.Enum):  # noqa: UP042
    """What workers of a group do."""

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        return state in {WorkerState.HEALTHY, WorkerState.UNHEALTHY}


@dataclass
class Worker:
    """One process of a group."""

    local_rank: int
    global_rank: int = -1
    role_rank: int = -1
    world_size: int = -1
    role_world_size: int = -1
    id: Any = None


@dataclass
class WorkerGroup:
    """The workers of a node."""

    spec: WorkerSpec
    workers: list[Worker] = field(default_factory=list)
    store: Any = None
    group_rank: int | None = None
    group_world_size: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    state: WorkerState = WorkerState.INIT

    def __post_init__(self) -> None:
        self.workers = self.workers or [Worker(i) for i in range(self.spec.local_world_size)]


@dataclass
class RunResult:
    """How a run ended: what workers returned, or how they failed, by rank."""

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        return self.state == WorkerState.FAILED


class ElasticAgent(abc.ABC):
    """Manages the workers of a node."""

    @abc.abstractmethod
    def run(self, role: str = "default") -> RunResult: ...

    @abc.abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup: ...


class SimpleElasticAgent(ElasticAgent):
    """An agent of one group."""

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300) -> None:
        self._worker_group, self._exit_barrier_timeout = WorkerGroup(spec), exit_barrier_timeout

    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        return self._worker_group


class LocalElasticAgent(SimpleElasticAgent):
    """Workers are processes of this host."""

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs | None = None,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout)
        self._logs_specs, self._start_method = logs_specs or LogsSpecs(), start_method

    def _job(self) -> Job:
        spec = self._worker_group.spec
        parameters = getattr(spec.rdzv_handler, "parameters", None)
        if parameters is None and spec.rdzv_handler is not None:
            raise NotImplementedError(
                "[LocalElasticAgent] expected a handler of the registry, or none for one node, got "
                f"{type(spec.rdzv_handler).__name__}: its meetings are not used"
            )
        program: Any = spec.entrypoint if callable(spec.entrypoint) else [spec.entrypoint, *map(str, spec.args)]
        return Job(
            program=program,
            arguments=spec.args if callable(spec.entrypoint) else (),
            min_nodes=getattr(parameters, "min_nodes", 1),
            max_nodes=getattr(parameters, "max_nodes", 1),
            workers=spec.local_world_size,
            run_id=getattr(parameters, "run_id", "") or fresh_run_id(),
            role=spec.role,
            endpoint=getattr(parameters, "endpoint", "") or "127.0.0.1:0",
            serves=None if parameters is None else parameters.get_as_bool("is_host"),
            node_rank=None if parameters is None else parameters.get_as_int("rank"),
            max_restarts=spec.max_restarts,
            monitor_interval=spec.monitor_interval,
            start_method=self._start_method,
            logs=self._logs_specs,
        )

    def run(self, role: str = "default") -> RunResult:
        """Runs the group until it succeeds, or fails more often than restarts are allowed."""
        group = self._worker_group
        agent = Agent(self._job())
        group.store, group.master_addr, group.master_port = agent.store, agent.host, agent.port
        group.state = WorkerState.HEALTHY
        try:
            values = agent.run()
        except ChildFailedError as error:
            group.state = WorkerState.FAILED
            return RunResult(WorkerState.FAILED, failures=error.failures)
        group.state = WorkerState.SUCCEEDED
        for worker, process in zip(group.workers, agent.workers):
            worker.global_rank = worker.role_rank = process.rank
            worker.world_size = worker.role_world_size = agent.world_size
            worker.id = process.pid
        group.group_rank, group.group_world_size = agent.node, agent.nodes
        return RunResult(WorkerState.SUCCEEDED, return_values=values)


def _get_fq_hostname() -> str:
    return socket.getfqdn(socket.gethostname())
