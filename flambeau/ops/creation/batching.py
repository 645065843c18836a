"""Batching rules of creation, copies and conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._C import Tensor
from flambeau.ops.batching import Held, on_value, one_by_one, reach, written
from flambeau.ops.rules import batching

batching("clone", "_lazy_clone", "_to_copy", "zeros_like", "ones_like", "empty_like", "full_like")(on_value)


@batching("_local_scalar_dense")
def item(mode: Any, func: Any, held: Held) -> Any:
    raise RuntimeError(
        "[vmap] expected a tensor that is the same for all elements, got a batched one: vmap: It looks like you're calling "
        ".item() on a Tensor, or using it as a number or a condition (data-dependent control flow); a function under vmap cannot "
        "depend on values"
    )


@batching("new_zeros", "new_ones", "new_empty")
def new(mode: Any, func: Any, held: Held, size: Sequence[int], **kwargs: Any) -> Any:
    return func(held.value, [mode.size, *size], **kwargs)


@batching("new_empty_strided")
def new_empty_strided(
    mode: Any, func: Any, held: Held, size: Sequence[int], stride: Sequence[int], **kwargs: Any
) -> Any:
    """One element's memory behind that of the other, so that windows on an element are windows on all."""
    return func(held.value, [mode.size, *size], [reach(size, stride), *stride], **kwargs)


@batching("new_full")
def new_full(mode: Any, func: Any, held: Held, size: Sequence[int], fill_value: Any, **kwargs: Any) -> Any:
    if isinstance(fill_value, Held) or not isinstance(held, Held):
        return one_by_one(mode, func, held, size, fill_value, **kwargs)
    return func(held.value, [mode.size, *size], fill_value, **kwargs)


@batching("copy_", "fill_", "zero_")
def write(mode: Any, func: Any, target: Any, source: Any = 0, non_blocking: bool = False) -> Held:
    value = written(func, target).value
    if isinstance(source, Held):
        value.copy_(source.padded(target.rank))
    elif isinstance(source, Tensor):
        value.copy_(source)
    else:
        value.fill_(source)
    return target
