"""Options of the agent."""

from __future__ import annotations

import enum
from typing import Any

import flambeau
from flambeau.distributed.rpc.constants import DEFAULT_NUM_WORKER_THREADS, DEFAULT_RPC_TIMEOUT_SEC

__all__ = ["BackendType", "RpcBackendOptions", "TensorPipeRpcBackendOptions"]


class BackendType(enum.Enum):
    """The kinds of agents: there is one."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


class RpcBackendOptions:
    """Where workers meet, and how long a call may take; 0 means without end."""

    def __init__(self, rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC, init_method: str = "env://") -> None:
        self.rpc_timeout, self.init_method = float(rpc_timeout), init_method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Options under PyTorch's name. Every request has a thread of its own; device maps say where received tensors go."""

    def __init__(
        self,
        *,
        num_worker_threads: int = DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = "env://",
        device_maps: dict[str, dict[Any, Any]] | None = None,
        devices: list[Any] | None = None,
        _transports: Any = None,
        _channels: Any = None,
    ) -> None:
        if num_worker_threads <= 0:
            raise RuntimeError(f"[rpc] num_worker_threads must be positive, got {num_worker_threads}")
        super().__init__(rpc_timeout, init_method)
        self.num_worker_threads = num_worker_threads
        self.device_maps: dict[str, dict[Any, Any]] = {}
        self.devices = [flambeau.device(one) for one in devices or []]
        for worker, device_map in (device_maps or {}).items():
            self.set_device_map(worker, device_map)

    def set_device_map(self, to: str, device_map: dict[Any, Any]) -> None:
        pairs = {flambeau.device(source): flambeau.device(target) for source, target in device_map.items()}
        if any(source.type != "cpu" or target.type != "cpu" for source, target in pairs.items()):
            raise NotImplementedError(
                f"[rpc] expected device maps between CPUs, got {device_map}: move tensors with .cpu()"
            )
        self.device_maps.setdefault(to, {}).update(pairs)

    def set_devices(self, devices: list[Any]) -> None:
        self.devices = [flambeau.device(one) for one in devices]
