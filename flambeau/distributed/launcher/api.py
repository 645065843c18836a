"""`elastic_launch(config, function)(*args)`: a function in several watched processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.elastic._agent import Agent, Job, fresh_run_id
from flambeau.distributed.elastic.multiprocessing import LogsSpecs

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclass
class LaunchConfig:
    """How many nodes and workers, where the nodes meet, and how often workers are restarted."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    shutdown_timeout: int = 30
    duplicate_stdout_filters: Any = None
    duplicate_stderr_filters: Any = None
    virtual_local_rank: bool = False


def _meeting_file(run_id: str) -> str:
    """Where agents of this host meet that were given no file."""
    return os.path.join(tempfile.gettempdir(), f"flambeau-rendezvous-{os.getuid()}-{run_id}")


def launch_agent(config: LaunchConfig, entrypoint: Callable[..., Any] | str | None, args: list[Any]) -> dict[int, Any]:
    """Runs an agent; returns what the workers of this node returned, by rank."""
    program: Any = entrypoint if callable(entrypoint) else [entrypoint or sys.executable, *map(str, args)]
    options = config.rdzv_configs
    by_file = config.rdzv_backend == "file" or options.get("store_type") == "file"
    job = Job(
        program=program,
        arguments=tuple(args) if callable(entrypoint) else (),
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        workers=config.nproc_per_node,
        run_id=config.run_id or fresh_run_id(),
        role=config.role,
        endpoint=config.rdzv_endpoint or "127.0.0.1:0",
        meeting_file=(config.rdzv_endpoint or _meeting_file(config.run_id)) if by_file else "",
        local_address=config.local_addr,
        serves=options.get("is_host"),
        node_rank=options.get("rank"),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        join_timeout=float(options.get("join_timeout", options.get("timeout", 600))),
        last_call=float(options.get("last_call_timeout", 1)),
        shutdown_timeout=config.shutdown_timeout,
        start_method=config.start_method,
        logs=config.logs_specs or LogsSpecs(),
        signals=tuple(config.signals_to_handle.split(",")),
    )
    return Agent(job).run()


class elastic_launch:
    """Calls a function, or starts a program, in the workers of this node."""

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any] | str | None) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args))
