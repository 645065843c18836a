"""Process groups and their operations under the module name that programs import from."""
# ruff: noqa: F401, F403

from __future__ import annotations

from flambeau.distributed import _collectives, _groups, _objects, _types
from flambeau.distributed._collectives import *
from flambeau.distributed._collectives import (
    _all_gather_base,
    _coalescing_manager,
    _CoalescingManager,
    _reduce_scatter_base,
)
from flambeau.distributed._groups import *
from flambeau.distributed._groups import (
    _find_pg_by_ranks_and_tag,
    _get_all_pg_configs,
    _get_default_group,
    _get_default_store,
    _get_group_tag,
    _get_pg_default_device,
    _get_process_group_name,
    _rank_not_in_group,
    _resolve_process_group,
    _warn_not_in_group,
    _world,
)
from flambeau.distributed._objects import *
from flambeau.distributed._process_group import ProcessGroup, ProcessGroupGloo
from flambeau.distributed._stores import FileStore, HashStore, PrefixStore, Store, TCPStore
from flambeau.distributed._types import *
from flambeau.distributed._types import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
    _make_nccl_premul_sum,
    reduce_op,
)
from flambeau.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
from flambeau.distributed.rendezvous import register_rendezvous_handler, rendezvous

_Backend = ProcessGroup
GroupName = str
_pg_map = _world.pg_map

__all__ = [
    *_types.__all__, *_collectives.__all__, *_objects.__all__, *_groups.__all__, "DistBackendError", "DistError",
    "DistNetworkError", "DistStoreError", "FileStore", "GroupName", "HashStore", "PrefixStore", "ProcessGroup",
    "ProcessGroupGloo", "QueueEmptyError", "Store", "TCPStore", "default_pg_nccl_timeout", "default_pg_timeout",
    "reduce_op", "register_rendezvous_handler", "rendezvous",
]  # fmt: skip
