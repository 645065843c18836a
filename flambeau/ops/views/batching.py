"""Batching rules of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops.batching import Held, on_value, one_by_one, reach, shifted
from flambeau.ops.rules import batching

batching("alias", "view_as_real", "view_as_complex")(on_value)


@batching("detach")
def detach(mode: Any, func: Any, held: Held) -> Any:
    return held.value.detach()


@batching("select")
def select(mode: Any, func: Any, held: Held, dim: int, index: Any) -> Any:
    return func(held.value, shifted(dim, held.rank), index)


@batching("slice")
def slice_(mode: Any, func: Any, held: Held, dim: int = 0, *args: Any, **kwargs: Any) -> Any:
    return func(held.value, shifted(dim, held.rank), *args, **kwargs)


@batching("unfold")
def unfold(mode: Any, func: Any, held: Held, dim: int, size: int, step: int) -> Any:
    if held.rank == 0:
        return one_by_one(mode, func, held, dim, size, step)
    return func(held.value, shifted(dim, held.rank), size, step)


@batching("unsqueeze")
def unsqueeze(mode: Any, func: Any, held: Held, dim: int) -> Any:
    return func(held.value, shifted(dim, held.rank + 1))


@batching("squeeze")
def squeeze(mode: Any, func: Any, held: Held) -> Any:
    return held.value.squeeze([d for d in range(1, held.rank + 1) if held.value.shape[d] == 1])


@batching("squeeze.dim", "squeeze.dims")
def squeeze_dim(mode: Any, func: Any, held: Held, dim: Any) -> Any:
    if held.rank == 0:
        return held.value
    return func(held.value, shifted(dim, held.rank) if isinstance(dim, int) else [shifted(d, held.rank) for d in dim])


@batching("transpose")
def transpose(mode: Any, func: Any, held: Held, dim0: int, dim1: int) -> Any:
    if held.rank == 0:
        return held.value
    return func(held.value, shifted(dim0, held.rank), shifted(dim1, held.rank))


@batching("permute")
def permute(mode: Any, func: Any, held: Held, dims: Sequence[int]) -> Any:
    return func(held.value, [0, *(shifted(d, held.rank) for d in dims)])


@batching("diagonal")
def diagonal(mode: Any, func: Any, held: Held, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return func(held.value, offset, shifted(dim1, held.rank), shifted(dim2, held.rank))


@batching("view", "reshape")
def view(mode: Any, func: Any, held: Held, size: Sequence[int]) -> Any:
    size = list(size)
    if -1 in size:
        known = 1
        for n in size:
            known *= n if n != -1 else 1
        count = 1
        for n in held.value.shape[1:]:
            count *= n
        size[size.index(-1)] = count // known if known else 0
    return held.value.reshape([mode.size, *size])


@batching("expand")
def expand(mode: Any, func: Any, held: Held, size: Sequence[int], *, implicit: bool = False) -> Any:
    value = held.padded(len(size))
    return value.expand([mode.size, *(n if n != -1 else m for n, m in zip(size, value.shape[1:]))])


@batching("split.Tensor", "split.sizes", "split_with_sizes")
def split(mode: Any, func: Any, held: Held, how: Any, dim: int = 0) -> Any:
    return tuple(func(held.value, how, shifted(dim, held.rank)))


@batching("unbind.int")
def unbind(mode: Any, func: Any, held: Held, dim: int = 0) -> Any:
    return tuple(func(held.value, shifted(dim, held.rank)))


@batching("_select_backward", "_slice_backward")
def window_backward(mode: Any, func: Any, held: Held, sizes: Sequence[int], dim: int, *args: Any) -> Any:
    return func(held.value, [mode.size, *sizes], shifted(dim, len(sizes)), *args)


@batching("_diagonal_backward")
def diagonal_backward(mode: Any, func: Any, held: Held, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    return func(held.value, [mode.size, *sizes], offset, shifted(dim1, len(sizes)), shifted(dim2, len(sizes)))


@batching("as_strided")
def as_strided(
    mode: Any, func: Any, held: Held, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Strides and offset are those of an element alone. Where elements do not lie apart, it is laid out contiguously."""
    value = held.value
    if value.stride(0) < reach(value.shape[1:], value.stride()[1:]):
        value = value.contiguous()
    return func(value, [mode.size, *size], [value.stride(0), *stride], value.storage_offset() + (storage_offset or 0))
