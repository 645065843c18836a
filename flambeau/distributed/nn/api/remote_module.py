"""`RemoteModule`: a module that another worker owns and runs."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import rpc

__all__ = ["RemoteModule"]


def _make(module_cls: Any, args: Any, kwargs: Any, device: str) -> Any:
    return module_cls(*args, **kwargs).to(device)


def _parameters(reference: Any, recurse: bool) -> list[Any]:
    return [rpc.RRef(parameter) for parameter in reference.local_value().parameters(recurse)]


def _forward(reference: Any, args: Any, kwargs: Any) -> Any:
    return reference.local_value()(*args, **kwargs)


class RemoteModule(flambeau.nn.Module):
    """A module made on `remote_device` ("worker1/cpu", "rank:1/cpu"); `forward` runs there."""

    def __init__(
        self,
        remote_device: str,
        module_cls: Any,
        args: Any = None,
        kwargs: Any = None,
        _module_interface_cls: Any = None,
    ) -> None:
        super().__init__()
        if not (isinstance(module_cls, type) and issubclass(module_cls, flambeau.nn.Module)):
            raise ValueError(
                f"[RemoteModule] Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, got {module_cls}"
            )
        worker, _, self.device = str(remote_device).partition("/")
        self.device = self.device or "cpu"
        self.on: Any = int(worker[5:]) if worker.startswith("rank:") else worker
        arguments = (module_cls, tuple(args or ()), dict(kwargs or {}), self.device)
        self.module_rref = rpc.remote(self.on, _make, args=arguments)
        self.module_rref._get_future().wait()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return rpc.rpc_sync(self.module_rref.owner(), _forward, args=(self.module_rref, args, kwargs))

    def forward_async(self, *args: Any, **kwargs: Any) -> Any:
        return rpc.rpc_async(self.module_rref.owner(), _forward, args=(self.module_rref, args, kwargs))

    def get_module_rref(self) -> Any:
        return self.module_rref

    def remote_parameters(self, recurse: bool = True) -> list[Any]:
        """References to the parameters, for `DistributedOptimizer`."""
        return rpc.rpc_sync(self.module_rref.owner(), _parameters, args=(self.module_rref, recurse))
