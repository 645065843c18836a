"""`replicate`: gradients of a module averaged over a group, without a wrapper around the module."""

from __future__ import annotations

from typing import Any

from flambeau.distributed import _groups, _reducer

__all__ = ["replicate"]


def replicate(module: Any, ignored_modules: Any = None, **options: Any) -> Any:
    """Averages the gradients of a module over a group; parameters start as those of the first process."""
    mesh = options.get("device_mesh")
    group = options.get("process_group") or (mesh.get_group() if mesh is not None else _groups._get_default_group())
    ignored = {id(p) for one in ignored_modules or () for p in one.parameters()}
    parameters = [p for p in module.parameters() if p.requires_grad and id(p) not in ignored]
    state = [t.detach() for t in (*module.parameters(), *module.buffers()) if id(t) not in ignored]
    _reducer._broadcast_coalesced(group, state, 0, 0)
    module._replicate_reducer = _reducer.Reducer(parameters, group)
    return module
