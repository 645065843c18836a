"""`parallelize_module`: applies styles to the submodules that a plan names."""

from __future__ import annotations

import warnings
from fnmatch import fnmatch
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh, _mesh_resources
from flambeau.distributed.tensor.parallel.style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """Divides a module by a style, or submodules by a dict of names (`layers.*.w1`) and styles."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if mesh.ndim != 1:
        raise ValueError(f"[parallelize_module] expected a mesh of one dimension, got {mesh}; slice it by name")
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported at the moment.", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    for path, style in parallelize_plan.items():
        if path == "":
            parallelize_module(module, mesh, style, src_data_rank=src_data_rank)
            continue
        head, _, rest = path.partition(".")
        matching = [child for name, child in module.named_children() if fnmatch(name, head)]
        if not matching:
            warnings.warn(
                f"Parallelize plan key '{path}' could not be resolved: no submodule matching {head!r}", stacklevel=2
            )
        for child in matching:
            parallelize_module(child, mesh, {rest: style} if rest else style, src_data_rank=src_data_rank)
    return module
