"""vmap as a loop over the batch: every function works, at the speed of one call for each element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.utils import _pytree as pytree


def _matched(dims: Any, tree: Any, op: str) -> list[int | None]:
    """For each leaf of the tree the dimension it is batched along."""
    leaves, _spec = pytree.tree_flatten(tree)
    if dims is None or isinstance(dims, int):
        return [dims] * len(leaves)
    if isinstance(dims, (tuple, list)) and isinstance(tree, (tuple, list)):
        if len(dims) != len(tree):
            raise ValueError(f"[vmap] expected {op} for {len(tree)} values, got {len(dims)}")
        return [d for part, sub in zip(dims, tree) for d in _matched(part, sub, op)]
    if isinstance(dims, dict) and isinstance(tree, dict):
        return [d for key in tree for d in _matched(dims[key], tree[key], op)]
    raise ValueError(f"[vmap] expected {op} of the structure of the values, got {dims!r}")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that calls func on each element of a batch and stacks what it returns."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        dims = _matched(in_dims if not isinstance(in_dims, list) else tuple(in_dims), args, "in_dims")
        leaves, spec = pytree.tree_flatten(args)
        sizes = set()
        for x, d in zip(leaves, dims):
            if d is None:
                continue
            if not isinstance(x, Tensor):
                raise ValueError(f"[vmap] expected a Tensor for an input batched along {d}, got {type(x).__name__}")
            if not -x.dim() <= d < x.dim():
                raise ValueError(
                    f"[vmap] expected in_dims below the dimensions of the input, got {d} for {x.dim()}-d tensor"
                )
            sizes.add(x.shape[d])
        if not sizes:
            raise ValueError("[vmap] expected at least one input to be batched, got in_dims=None for all")
        if len(sizes) > 1:
            raise ValueError(f"[vmap] expected one batch size, got {sorted(sizes)}")
        batched_names = {k: isinstance(v, Tensor) and v.dim() > 0 for k, v in kwargs.items()}
        rows, out_spec = [], None
        for k in range(sizes.pop()):
            picked = [x if d is None else x.select(d, k) for x, d in zip(leaves, dims)]
            named = {key: v.select(0, k) if batched_names[key] else v for key, v in kwargs.items()}
            flat, out_spec = pytree.tree_flatten(func(*pytree.tree_unflatten(picked, spec), **named))
            for x in flat:
                if not isinstance(x, Tensor):
                    raise ValueError(f"[vmap] expected func to return Tensors, got {type(x).__name__}")
            rows.append(flat)
        if not rows:
            raise ValueError("[vmap] expected a batch that is not empty, got size 0")
        shape = pytree.tree_unflatten(list(rows[0]), out_spec)
        outs = _matched(out_dims, shape, "out_dims")
        stacked = [column[0] if d is None else fl.stack(column, d) for column, d in zip(zip(*rows), outs)]
        return pytree.tree_unflatten(stacked, out_spec)

    return wrapper
