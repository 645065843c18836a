"""The kinds of agents by name."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.rpc.options import BackendType, TensorPipeRpcBackendOptions

__all__ = ["BackendType", "backend_registered", "construct_rpc_backend_options"]


def backend_registered(backend_name: str) -> bool:
    return backend_name in BackendType.__members__


def construct_rpc_backend_options(
    backend: Any, rpc_timeout: float = 60.0, init_method: str = "env://", **kwargs: Any
) -> TensorPipeRpcBackendOptions:
    return TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **kwargs)
