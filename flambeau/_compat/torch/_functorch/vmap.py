"""The parts of `vmap` under the module that libraries import them from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import Tensor
from flambeau._compat.torch._C._functorch import _add_batch_dim, _remove_batch_dim  # noqa: F401
from flambeau.func.batching import vmap  # noqa: F401
from flambeau.utils._pytree import (  # noqa: F401
    _broadcast_to_and_flatten,
    tree_flatten,
    tree_map_,
    tree_unflatten,
)


def _get_name(func: Callable[..., Any]) -> str:
    """How messages call a function."""
    return getattr(func, "__name__", repr(func))


def _maybe_remove_batch_dim(name: str, output: Any, level: int, batch_size: int, out_dim: int | None) -> Any:
    """A result of a function under vmap, for outside: batches, or with `out_dim` None what is the same for all elements."""
    if out_dim is None:
        if maybe_batched(output, level):
            raise ValueError(f"[vmap] expected a result of {name} that is the same for all elements, got a batched one")
        return output
    if not isinstance(output, Tensor):
        raise ValueError(f"[vmap] expected {name} to return tensors, got {type(output).__name__}")
    return _remove_batch_dim(output, level, batch_size, out_dim)


def maybe_batched(value: Any, level: int) -> bool:
    from flambeau._compat.torch._C._functorch import maybe_get_level

    return isinstance(value, Tensor) and maybe_get_level(value) == level
