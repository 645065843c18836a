"""`fully_shard` and `replicate` under their older module name."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.fsdp import fully_shard

__all__ = ["fully_shard", "replicate"]


def replicate(module: Any, ignored_modules: Any = None, **options: Any) -> Any:
    """Averages the gradients of a module over a group, without wrapping it."""
    from flambeau.distributed import _groups, _reducer

    group = options.get("process_group") or _groups._get_default_group()
    parameters = [p for p in module.parameters() if p.requires_grad]
    state = [t.detach() for t in (*module.parameters(), *module.buffers())]
    _reducer._broadcast_coalesced(group, state, 0, 0)
    module._replicate_reducer = _reducer.Reducer(parameters, group)
    return module
