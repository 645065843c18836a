"""Where a shard lies in the whole, and on which process."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.remote_device import _remote_device

__all__ = ["ShardMetadata"]


class ShardMetadata:
    def __init__(
        self, shard_offsets: list[int], shard_sizes: list[int], placement: str | _remote_device | None = None
    ) -> None:
        self.shard_offsets, self.shard_sizes = list(shard_offsets), list(shard_sizes)
        self.placement: Any = _remote_device(placement) if isinstance(placement, str) else placement
        if len(self.shard_offsets) != len(self.shard_sizes):
            raise ValueError(
                "[ShardMetadata] shard_offsets and shard_sizes should have the same number of elements, found "
                f"{len(self.shard_offsets)} and {len(self.shard_sizes)} respectively"
            )
        if any(offset < 0 for offset in self.shard_offsets):
            raise ValueError(f"[ShardMetadata] shard_offsets should be >=0, got {self.shard_offsets}")
        if any(size < 0 for size in self.shard_sizes):
            raise ValueError(f"[ShardMetadata] shard_sizes should be >= 0, got {self.shard_sizes}")

    def __repr__(self) -> str:
        return f"ShardMetadata(shard_offsets={self.shard_offsets}, shard_sizes={self.shard_sizes}, placement={self.placement})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardMetadata) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))
