"""Collectives with derivatives, and modules on other workers."""

from typing import Any

from flambeau.distributed.nn import functional
from flambeau.distributed.nn.functional import *  # noqa: F403

__all__ = functional.__all__


def __getattr__(name: str) -> Any:
    if name == "RemoteModule":  # loads rpc
        from flambeau.distributed.nn.api.remote_module import RemoteModule

        return RemoteModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
