"""What PyTorch has in the native part of `func`: batched tensors of `vmap` are made, asked about and opened."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.func.batching import Batched


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether a tensor stands for the elements of a batch, inside a vmap."""
    return isinstance(tensor, Batched)


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The batch behind a batched tensor."""
    if not isinstance(tensor, Batched):
        raise RuntimeError("[get_unwrapped] expected a batched tensor, got one that is not")
    return tensor.value


def maybe_get_bdim(tensor: Tensor) -> int:
    """Where the hidden dimension of a batched tensor is; -1 for other tensors."""
    return tensor.axis if isinstance(tensor, Batched) else -1


def maybe_get_level(tensor: Tensor) -> int:
    """The level of the vmap of a batched tensor; -1 for other tensors."""
    return tensor.level if isinstance(tensor, Batched) else -1


def _add_batch_dim(tensor: Tensor, dim: int, level: int) -> Tensor:
    """A tensor as each of its elements along a dimension, for the vmap of a level."""
    return Batched(tensor, dim % tensor.dim(), level)


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """The batch behind a batched tensor of a level, its dimension moved; other tensors are the same for all elements."""
    if isinstance(tensor, Batched) and tensor.level == level:
        return tensor.value.movedim(tensor.axis, out_dim)
    out_dim %= tensor.dim() + 1
    return tensor.unsqueeze(out_dim).expand(*tensor.shape[:out_dim], batch_size, *tensor.shape[out_dim:])
