"""The agent of a node as an object of programs that launch workers themselves."""

from flambeau.distributed.elastic.agent.server.api import (
    ElasticAgent,
    LocalElasticAgent,
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)

__all__ = [
    "ElasticAgent", "LocalElasticAgent", "RunResult", "SimpleElasticAgent", "Worker", "WorkerGroup", "WorkerSpec", "WorkerState",
]  # fmt: skip
