"""What a data-parallel process without inputs does while others still have some."""

from __future__ import annotations

from typing import Any

from flambeau.distributed import _reducer
from flambeau.distributed.algorithms.join import JoinHook

__all__ = ["DDPJoinHook"]


class DDPJoinHook(JoinHook):
    """Shadows the collectives of a `DistributedDataParallel` iteration."""

    def __init__(self, ddp: Any) -> None:
        self.ddp = ddp

    def main_hook(self) -> None:
        ddp = self.ddp
        syncs = ddp._check_global_sync(True)
        if ddp._will_sync_buffers():
            root = ddp._common_rank(active=False)
            _reducer._broadcast_coalesced(ddp.process_group, ddp._module_buffers(), 0, root)
        if syncs:
            ddp.reducer.shadow()
        ddp.require_forward_param_sync = syncs

    def post_hook(self, is_last_joiner: bool) -> None:
        """The parameters of the last process with inputs become everybody's."""
        ddp = self.ddp
        root = ddp._common_rank(active=is_last_joiner)
        state = [tensor.detach() for tensor in (*ddp.module.parameters(), *ddp.module.buffers())]
        _reducer._broadcast_coalesced(ddp.process_group, state, 0, root)
        ddp.reducer.divisor = None
