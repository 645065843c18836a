"""Batches as microbatches, and results as batches again."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.utils import _pytree as pytree

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


class TensorChunkSpec:
    """The dimension along which a tensor is divided."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        return pytree.tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """The mark of a value that every microbatch gets whole."""


def _parts(value: Any, count: int, dim: int = 0) -> list[Any]:
    if isinstance(value, flambeau.Tensor) and value.dim() > dim:
        parts = list(value.tensor_split(count, dim))
        if len(parts) != count or any(part.shape[dim] == 0 for part in parts):
            raise RuntimeError(f"[pipelining] expected a batch of at least {count} rows, got {tuple(value.shape)}")
        return parts
    return [value] * count


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: Any = None,
    kwargs_chunk_spec: Any = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """Arguments of each microbatch: tensors are divided along their first dimension or the one of their spec."""

    def divide(value: Any, spec: Any = None) -> list[Any]:
        if spec is not None and not isinstance(spec, TensorChunkSpec):
            return [value] * chunks
        dim = 0 if spec is None else spec.split_dim
        flat, structure = pytree.tree_flatten(value)
        columns = [_parts(leaf, chunks, dim) for leaf in flat]
        return [pytree.tree_unflatten([column[i] for column in columns], structure) for i in range(chunks)]

    positional = [divide(v, None if args_chunk_spec is None else args_chunk_spec[i]) for i, v in enumerate(args)]
    named = {k: divide(v, (kwargs_chunk_spec or {}).get(k)) for k, v in (kwargs or {}).items()}
    return (
        [tuple(column[i] for column in positional) for i in range(chunks)],
        [{key: column[i] for key, column in named.items()} for i in range(chunks)],
    )


def merge_chunks(chunks: list[Any], chunk_spec: Any = None) -> Any:
    """Results of the microbatches side by side; losses and other values without dimensions are stacked."""
    if not chunks:
        return None
    columns = [pytree.tree_flatten(chunk)[0] for chunk in chunks]
    structure = pytree.tree_flatten(chunks[0])[1]
    dim = chunk_spec.split_dim if isinstance(chunk_spec, TensorChunkSpec) else 0
    merged = []
    for leaves in zip(*columns):
        if isinstance(leaves[0], flambeau.Tensor):
            merged.append(flambeau.cat(list(leaves), dim) if leaves[0].dim() else flambeau.stack(list(leaves)))
        else:
            merged.append(leaves[0])
    return pytree.tree_unflatten(merged, structure)
