"""What all processes know of a sharded tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import flambeau

__all__ = ["ShardedTensorMetadata", "TensorProperties"]


@dataclass
class TensorProperties:
    dtype: Any = None
    layout: Any = flambeau.strided
    requires_grad: bool = False
    memory_format: Any = flambeau.contiguous_format
    pin_memory: bool = False

    def __post_init__(self) -> None:
        if self.dtype is None:
            self.dtype = flambeau.get_default_dtype()

    @staticmethod
    def create_from_tensor(tensor: Any) -> TensorProperties:
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad, flambeau.contiguous_format, False)


@dataclass
class ShardedTensorMetadata:
    shards_metadata: list[Any] = field(default_factory=list)
    size: Any = field(default_factory=lambda: flambeau.Size([]))
    tensor_properties: TensorProperties = field(default_factory=TensorProperties)
