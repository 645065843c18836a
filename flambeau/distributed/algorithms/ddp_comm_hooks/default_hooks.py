"""Hooks that average gradients, in their own precision or a lower one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._groups import _get_default_group
from flambeau.distributed._types import ReduceOp

__all__ = [
    "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper",
]  # fmt: skip

Hook = Callable[[Any, Any], Any]


def _averaged(group: Any, tensor: Any) -> Any:
    """The future of the mean of a tensor over a group."""
    group = group if group is not None else _get_default_group()
    tensor.div_(group.size())
    work = collectives.all_reduce(tensor, ReduceOp.SUM, group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])  # type: ignore[union-attr]


def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    return _averaged(process_group, bucket.buffer())


def _compressed(dtype: Any, process_group: Any, bucket: Any) -> Any:
    buffer = bucket.buffer()
    future = _averaged(process_group, buffer.to(dtype))

    def expand(done: Any) -> Any:
        return buffer.copy_(done.value())

    return future.then(expand)


def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Halves what is sent; gradients are rounded to half precision."""
    return _compressed(flambeau.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Halves what is sent; gradients are rounded to bfloat16."""
    return _compressed(flambeau.bfloat16, process_group, bucket)


def _wrapper(dtype: Any, hook: Hook) -> Hook:
    def wrapped(state: Any, bucket: Any) -> Any:
        original = bucket.buffer()
        bucket.set_buffer(original.to(dtype))
        future = hook(state, bucket)

        def expand(done: Any) -> Any:
            value = done.value()
            return original.copy_(value[0] if isinstance(value, (list, tuple)) else value)

        return future.then(expand)

    return wrapped


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook on gradients in half precision."""
    return _wrapper(flambeau.float16, hook)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook on gradients in bfloat16."""
    return _wrapper(flambeau.bfloat16, hook)
