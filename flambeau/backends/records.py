"""What kernels of registered devices use: results shaped by the operator's own kernel for the meta device, which also
makes the operator's checks.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import flambeau


@functools.cache
def _all() -> dict[str, Any]:
    """Every record by full name, with the derivatives of the pointwise ones, which are pointwise records too."""
    table = dict(importlib.import_module("flambeau.ops.record").load())
    gradients = importlib.import_module("flambeau.ops.gradients").gradients
    for record in [r for r in table.values() if r.kind == "pointwise"]:
        if not record.alias_of:
            table.update(
                (g.record.name, g.record) for g in gradients(record) or () if g is not None and g.record is not None
            )
    return table


def find(op: Any) -> Any:
    """The record of an operator, or None."""
    return importlib.import_module("flambeau.ops.record").find(op._full_name)


def on_meta(value: Any) -> Any:
    """A tensor without data in place of each tensor, for the meta kernel."""
    if isinstance(value, flambeau.Tensor):
        if value._is_wrapped_number():
            return value
        return flambeau.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return [on_meta(v) for v in value] if isinstance(value, (list, tuple)) else value


def shape_of(op: Any, args: Any, kwargs: Any) -> Any:
    """What the operator would return, as meta tensors."""
    devices = {k: flambeau.device("meta") if isinstance(v, flambeau.device) else v for k, v in kwargs.items()}
    return op(*map(on_meta, args), **{k: on_meta(v) for k, v in devices.items()})


def empty_as(meta: Any, device: Any) -> Any:
    """Memory on a device for what a meta tensor describes; for tuples of them too."""
    if isinstance(meta, (tuple, list)):
        return tuple(empty_as(m, device) for m in meta)
    return flambeau.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype, device=device)


def laid_out(result: Any, meta: Any) -> Any:
    """Results with the strides that the meta device says, copied where they differ."""
    if isinstance(result, (tuple, list)):
        return type(result)(laid_out(r, m) for r, m in zip(result, meta))
    if not isinstance(result, flambeau.Tensor) or result.shape != meta.shape:
        return result
    if all(n == 1 or a == b for n, a, b in zip(meta.shape, result.stride(), meta.stride())) or not result.numel():
        return result
    return empty_as(meta, result.device).copy_(result)


def bind(op: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name, defaults filled in."""
    values = {a.name: a.default_value for a in op._schema.arguments}
    values.update(zip(values, args))
    values.update(kwargs)
    return values


def dtype_class(dtype: Any) -> str:
    """b bool, i integer, f floating, c complex."""
    if dtype is flambeau.bool:
        return "b"
    return "c" if dtype.is_complex else "f" if dtype.is_floating_point else "i"


def pick(table: dict[str, Any], kind: str) -> Any:
    """The expression for a dtype class: bool is computed as an integer unless it has its own."""
    return table.get(kind) or (table.get("i") if kind == "b" else None) or table.get("")
