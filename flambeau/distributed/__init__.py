"""Training on many processes: groups, collectives, and what is built on them.

    init_process_group("gloo")      # rank and size from the environment, as a launcher sets it
    all_reduce(tensor)              # the sum over all processes, in place

Processes of one host exchange tensors through shared memory (`csrc/distributed`). See docs/distributed.md.
"""
# ruff: noqa: F401, F403

from __future__ import annotations

from typing import Any

from flambeau.distributed import _functional_collectives, distributed_c10d
from flambeau.distributed.distributed_c10d import *
from flambeau.distributed.distributed_c10d import (
    _all_gather_base,
    _Backend,
    _coalescing_manager,
    _CoalescingManager,
    _find_pg_by_ranks_and_tag,
    _get_default_group,
    _get_pg_default_device,
    _get_process_group_name,
    _make_nccl_premul_sum,
    _rank_not_in_group,
    _reduce_scatter_base,
    _resolve_process_group,
)

__all__ = distributed_c10d.__all__

# Names that are loaded when they are asked for, and where they are.
_LATER = {
    "DeviceMesh": "device_mesh", "init_device_mesh": "device_mesh", "GradBucket": "_reducer", "Reducer": "_reducer",
    "BuiltinCommHookType": "_reducer", "_register_builtin_comm_hook": "_reducer", "_register_comm_hook": "_reducer",
    "_broadcast_coalesced": "_reducer", "_compute_bucket_assignment_by_size": "_reducer",
    "_verify_params_across_processes": "_reducer", "_DEFAULT_FIRST_BUCKET_BYTES": "_reducer", "Logger": "_reducer",
    "breakpoint": "_debugging", "reform": "_reform",
}  # fmt: skip
_MODULES = (
    "algorithms", "checkpoint", "device_mesh", "elastic", "fsdp", "launcher", "nn", "optim", "pipelining", "run",
    "tensor", "utils", "constants", "rpc", "autograd", "_functional_collectives", "_composable", "_tensor", "_shard",
    "launch",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    if name in _MODULES:
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
