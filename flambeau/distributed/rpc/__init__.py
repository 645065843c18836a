"""Calls of functions on other workers, and references to what they own, over sockets.

rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
rpc.rpc_sync("worker1", torch.add, args=(x, y))
rpc.shutdown()
"""

from flambeau.distributed.rpc import api, backend_registry, functions
from flambeau.distributed.rpc._agent import WorkerInfo
from flambeau.distributed.rpc._rref import PyRRef, RRef
from flambeau.distributed.rpc.api import (
    _all_gather,
    _barrier,
    _is_current_rpc_agent_set,
    _wait_all,
    get_worker_info,
    init_rpc,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from flambeau.distributed.rpc.backend_registry import backend_registered, construct_rpc_backend_options
from flambeau.distributed.rpc.options import BackendType, RpcBackendOptions, TensorPipeRpcBackendOptions

__all__ = [
    "BackendType", "PyRRef", "RRef", "RpcBackendOptions", "TensorPipeRpcBackendOptions", "WorkerInfo", "_all_gather",
    "_barrier", "_is_current_rpc_agent_set", "_wait_all", "api", "backend_registered", "backend_registry",
    "construct_rpc_backend_options", "functions", "get_worker_info", "init_rpc", "is_available", "remote", "rpc_async",
    "rpc_sync", "shutdown",
]  # fmt: skip


def is_available() -> bool:
    return True
