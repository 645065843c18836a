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

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self.split_dim})"

    def __str__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        return pytree.tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        return pytree.tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """The mark of a value that every microbatch gets whole."""


def _parts(value: Any, count: int, dim: int = 0) -> list[Any]:
    if isinstance(value, flambeau.Tensor) and value.dim() > dim:
        return list(value.tensor_split(count, dim))
    return [value] * count


def _dimension(spec: Any) -> int | None:
    """The dimension along which values with this spec are divided; None: each microbatch gets them whole."""
    if spec is None:
        return 0
    return spec.split_dim if isinstance(spec, TensorChunkSpec) else None


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: Any = None,
    kwargs_chunk_spec: Any = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """Arguments of each microbatch: tensors are divided along their first dimension or the one of their spec. Smaller batches
    than `chunks` make fewer microbatches."""
    dims = [_dimension(None if args_chunk_spec is None else args_chunk_spec[i]) for i in range(len(args))]
    named_dims = {name: _dimension((kwargs_chunk_spec or {}).get(name)) for name in kwargs or {}}
    divided = [*zip(args, dims), *((value, named_dims[name]) for name, value in (kwargs or {}).items())]
    for value, dim in divided:
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, flambeau.Tensor) and dim is not None and leaf.dim() > dim:
                chunks = max(1, min(chunks, leaf.shape[dim]))

    def divide(value: Any, dim: int | None) -> list[Any]:
        if dim is None:
            return [value] * chunks
        flat, structure = pytree.tree_flatten(value)
        columns = [_parts(leaf, chunks, dim) for leaf in flat]
        return [pytree.tree_unflatten([column[i] for column in columns], structure) for i in range(chunks)]

    positional = [divide(value, dim) for value, dim in zip(args, dims)]
    named = {name: divide(value, named_dims[name]) for name, value in (kwargs or {}).items()}
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
