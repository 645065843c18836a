"""Batching rules: how an operator is computed on tensors with a hidden batch dimension, for `func.vmap`.

A rule gets the mode, the operator and its arguments, in which every batched tensor is a `Held`: the tensor with the batch
as first dimension. It returns tensors with the batch first, or the `Held` that it wrote to. Pointwise and reduction records share a rule each; the others
are in `batching.py` of their family, found by the operator's name, and are often one of the common ones here. An operator
without a rule is computed element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.ops import record
from flambeau.ops.rules import named_arguments


class Held:
    """A batched argument: `value` has the batch as first dimension, `rank` counts the others."""

    __slots__ = ("rank", "value")

    def __init__(self, value: Tensor) -> None:
        self.value, self.rank = value, value.dim() - 1

    def padded(self, rank: int) -> Tensor:
        """With dimensions of size one after the batch, as broadcasting would add."""
        if self.rank >= rank:
            return self.value
        shape = self.value.shape
        return self.value.reshape([shape[0], *[1] * (rank - self.rank), *shape[1:]])


def rank_of(x: Any) -> int:
    """The dimensions of an argument without the batch; a number has none."""
    return x.rank if isinstance(x, Held) else x.dim() if isinstance(x, Tensor) else 0


def shifted(d: int, rank: int) -> int:
    """A dimension counted behind the batch dimension."""
    if not -max(rank, 1) <= d < max(rank, 1):
        raise IndexError(f"[vmap] expected a dimension in [{-max(rank, 1)}, {max(rank, 1) - 1}], got {d}")
    return d % max(rank, 1) + 1


def reach(size: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements of memory a tensor of these strides lies over."""
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride))


def with_batch(mode: Any, x: Any) -> Tensor:
    """With the batch, repeated if need be."""
    return x.value if isinstance(x, Held) else x.unsqueeze(0).expand([mode.size, *x.shape])


def written(func: Any, target: Any) -> Held:
    """The argument that an operator writes to, which has to have the batch."""
    if not isinstance(target, Held):
        raise RuntimeError(
            f"[vmap] expected a batched tensor to write to in {func._full_name}, got one without the batch: vmap: "
            "inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args "
            "that has more elements than `self`"
        )
    return target


def _call(func: Any, values: dict[str, Any]) -> Any:
    positional = [values[a.name] for a in func._schema.arguments if not a.kwarg_only]
    return func(*positional, **{a.name: values[a.name] for a in func._schema.arguments if a.kwarg_only})


def one_by_one(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator on each element, and the results stacked."""

    def pick(x: Any, k: int) -> Any:
        if isinstance(x, Held):
            return x.value.select(0, k)
        return [pick(v, k) for v in x] if isinstance(x, list) else x

    if mode.size == 0:
        raise RuntimeError(f"[vmap] expected a batch that is not empty for {func._full_name}, got size 0")
    rows = [func(*(pick(a, k) for a in args), **{n: pick(a, k) for n, a in kwargs.items()}) for k in range(mode.size)]
    return _stacked(func, rows)


def _stacked(func: Any, rows: list[Any]) -> Any:
    first = rows[0]
    if isinstance(first, Tensor):
        if any(r.shape != first.shape for r in rows):
            raise RuntimeError(
                f"[vmap] expected results of one shape from {func._full_name}, got several: its result depends on values"
            )
        return fl.stack(rows)
    if isinstance(first, (tuple, list)):
        return tuple(_stacked(func, list(column)) for column in zip(*rows))
    if first is None or all(r == first for r in rows):
        return first
    raise RuntimeError(
        f"[vmap] expected {func._full_name} to return the same for all elements, got different values: it is not "
        "possible to read a number or a boolean of a batched tensor"
    )


def pointwise(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Broadcasting does it, once all have as many dimensions."""
    everything = (*args, *kwargs.values())
    rank = max(rank_of(x) for x in everything)
    masks = _masks(func._full_name)
    promoted = [x for name, x in (*zip(_names(func), args), *kwargs.items()) if name not in masks]
    # A tensor without dimensions does not raise the dtype of others; with the batch it would.
    scalars = [x for x in promoted if isinstance(x, Held) and x.rank == 0]
    others = [
        x.value.dtype if isinstance(x, Held) else x.dtype
        for x in promoted
        if isinstance(x, (Held, Tensor)) and rank_of(x) > 0
    ]
    dtype = None
    if scalars and others and any(s.value.dtype != others[0] for s in scalars):
        dtype = others[0]

    def one(name: str, x: Any) -> Any:
        if not isinstance(x, Held):
            return x
        value = x.padded(rank)
        converted = dtype is not None and x.rank == 0 and name not in masks
        return value.to(dtype) if converted and _category(x.value.dtype) <= _category(dtype) else value

    return func(*map(one, _names(func), args), **{k: one(k, v) for k, v in kwargs.items()})


def _names(func: Any) -> list[str]:
    return [a.name for a in func._schema.arguments]


@functools.cache
def _masks(name: str) -> tuple[str, ...]:
    """The operands of a pointwise operator that take no part in promotion."""
    pointwise_record = record.find(name)
    return tuple(pointwise_record.details.get("mask", ())) if pointwise_record is not None else ()


def _category(dtype: Any) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == fl.bool else 1


def reduction(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule of all reduction records: the dimensions are counted behind the batch."""
    values = named_arguments(func, args, kwargs)
    first = next(iter(values))
    held = values[first]
    if not isinstance(held, Held):
        return one_by_one(mode, func, *args, **kwargs)
    single = held.rank == 0  # reduced as one element
    rank = max(held.rank, 1)
    if "dim" not in values:
        flat = held.value.reshape(held.value.shape[0], -1)
        along_rows = _along_rows(func._full_name, flat)
        return one_by_one(mode, func, *args, **kwargs) if along_rows is None else along_rows
    values[first] = held.value.unsqueeze(1) if single else held.value
    dim = values["dim"]
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        if func._schema.arguments[1].type in ("int", "int?", "Optional[int]") or func._full_name == "prod":
            values[first], values["dim"] = held.value.reshape(held.value.shape[0], -1), 1
        else:
            values["dim"] = list(range(1, rank + 1))
    elif isinstance(dim, int):
        values["dim"] = shifted(dim, held.rank)
    else:
        values["dim"] = [shifted(d, held.rank) for d in dim]
    out = _call(func, values)
    return out.squeeze(1) if single and values.get("keepdim") else out


def _along_rows(name: str, flat: Tensor) -> Tensor | None:
    """Reductions of everything that have a form along a dimension."""
    along = {"max": "amax", "min": "amin", "all": "all", "any": "any"}.get(name)
    return None if along is None else getattr(fl, along)(flat, 1)


def on_value(mode: Any, func: Any, held: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule of operators that treat a leading dimension as a batch already."""
    if not isinstance(held, Held) or any(isinstance(x, Held) for x in (*args, *kwargs.values())):
        return one_by_one(mode, func, held, *args, **kwargs)
    return func(held.value, *args, **kwargs)


def on_matrices(mode: Any, func: Any, held: Any, *args: Any, **kwargs: Any) -> Any:
    """The same for operators on matrices, which would take a batch of vectors for one."""
    check_matrix(func, held)
    return on_value(mode, func, held, *args, **kwargs)


def check_matrix(func: Any, x: Any) -> None:
    if rank_of(x) < 2:
        shape = tuple(x.value.shape[1:]) if isinstance(x, Held) else tuple(x.shape)
        raise RuntimeError(f"[{func._full_name.strip('_')}] expected a tensor of at least two dimensions, got {shape}")


def along(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator with its dimensions counted after the batch."""
    values = named_arguments(func, args, kwargs)
    first = next(iter(values))
    held = values[first]
    rest = [v for k, v in values.items() if k != first]
    name = "dim" if "dim" in values else "dims"
    if not isinstance(held, Held) or any(isinstance(x, Held) for x in rest) or values[name] in (None, []):
        return one_by_one(mode, func, *args, **kwargs)
    single = held.rank == 0
    values[first] = held.value.unsqueeze(1) if single else held.value
    dim = values[name]
    values[name] = shifted(dim, held.rank) if isinstance(dim, int) else [shifted(d, held.rank) for d in dim]
    out = _call(func, values)
    if not single or values.get("keepdim", True) is False:
        return out
    return tuple(x.squeeze(1) for x in out) if isinstance(out, (tuple, list)) else out.squeeze(1)


def joined_with_first(space: int) -> Callable[..., Any]:
    """The batch joins the first dimension of (N, C, *space); what is the same for all stays."""

    def apply(mode: Any, func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Held) or any(isinstance(x, Held) for x in (*args, *kwargs.values())):
            return one_by_one(mode, func, input, *args, **kwargs)
        value = input.value
        if input.rank == space + 1:
            return func(value, *args, **kwargs)
        out = func(value.flatten(0, 1), *args, **kwargs)
        shape = tuple(value.shape[:2])
        return tuple(x.unflatten(0, shape) for x in out) if isinstance(out, (tuple, list)) else out.unflatten(0, shape)

    return apply
