"""Parameters divided over a mesh by annotations: over one device they are whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.xla.distributed.fsdp import XlaFullyShardedDataParallel

__all__ = ["SpmdFullyShardedDataParallel"]


class SpmdFullyShardedDataParallel(XlaFullyShardedDataParallel):
    """A module whose parameters and results are annotated; `shard_output(output, mesh)` is called with what it returns."""

    def __init__(
        self,
        module: Any,
        *,
        mesh: Any = None,
        shard_output: Callable[[Any, Any], None] | None = None,
        auto_wrap_policy: Any = None,
        auto_wrapper_callable: Callable[..., Any] | None = None,
        extra_data_axis: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(module, auto_wrap_policy=auto_wrap_policy, auto_wrapper_callable=auto_wrapper_callable)
        if mesh is None:
            from flambeau.xla.distributed.spmd import get_global_mesh

            mesh = get_global_mesh()
        if mesh is None:
            raise ValueError("[SpmdFullyShardedDataParallel] expected a mesh, or one of set_global_mesh, got None")
        self._mesh, self._shard_output = mesh, shard_output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        if self._shard_output is not None:
            self._shard_output(output, self._mesh)
        return output
