"""NVIDIA's collectives: which version there is. `flambeau.distributed` runs them."""

from __future__ import annotations

from typing import Any


def version() -> tuple[int, ...]:
    from flambeau.distributed import _nccl

    return _nccl.version()


def is_available(tensors: Any) -> bool:
    """Whether NCCL can reduce these tensors: dense CUDA tensors."""
    from flambeau.distributed import _nccl

    return _nccl.is_available() and all(tensor.is_cuda and not tensor.is_sparse for tensor in tensors)
