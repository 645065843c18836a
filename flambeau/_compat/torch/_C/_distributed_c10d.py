"""What PyTorch has in the native part of `distributed`: the classes of groups, and the flight recorder."""

from __future__ import annotations

from typing import Any

from flambeau import distributed
from flambeau.distributed import distributed_c10d
from flambeau.distributed._flight_recorder import dump_json as _dump_fr_trace_json
from flambeau.distributed._flight_recorder import dump_pickle as _dump_fr_trace

__all__ = ["_dump_fr_trace", "_dump_fr_trace_json", "_dump_nccl_trace", "_dump_nccl_trace_json"]

_dump_nccl_trace, _dump_nccl_trace_json = _dump_fr_trace, _dump_fr_trace_json


def __getattr__(name: str) -> Any:
    home = distributed if hasattr(distributed, name) else distributed_c10d
    try:
        return getattr(home, name)
    except AttributeError:
        raise AttributeError(f"module 'torch._C._distributed_c10d' has no attribute {name!r}") from None
