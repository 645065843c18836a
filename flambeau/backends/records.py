"""What a registered device does with op records: shapes and dtypes are settled here, so that the device only evaluates
expressions. Results are shaped by the operator's own kernel for the meta device, which also makes its checks.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau import _C


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


def run_pointwise(device: Any, op: Any, record: Any, args: Any, kwargs: Any) -> Any:
    """Promote, broadcast and allocate; then device.pointwise(expr, operands, out, dtype)."""
    from flambeau.ops import expr

    details = record.details
    bound = bind(op, args, kwargs)
    device.check(op._opname, bound.values(), zero_dim=True)
    out = empty_as(shape_of(op, args, kwargs), _place(device, bound.values()))
    names = [a.name for a in record.schema.args if a.name != details["select"]]
    elements = [a.name for a in record.schema.args if a.is_tensor]
    dtype = _C._promote_operands([bound[n] for n in elements if n not in details["mask"]])
    if details["promote"] == "float" and dtype_class(dtype) in "bi":
        dtype = flambeau.get_default_dtype()
    elif details["promote"] in ("first", "self"):
        dtype = bound[elements[0]].dtype
    table = details["table"]
    function = table[bound[details["select"]]] if details["select"] else pick(table, dtype_class(dtype))
    if out.numel():
        operands = {n: _operand(bound[n], out.shape) for n in names}
        device.pointwise(expr.lift(function(*map(expr.arg, names))), operands, out, dtype)
    return out


def _operand(value: Any, shape: Any) -> Any:
    """A tensor broadcast to the result, or a number."""
    if not isinstance(value, flambeau.Tensor):
        return value
    return value.item() if value.is_cpu else value.expand(shape)


def _place(device: Any, values: Any) -> Any:
    from flambeau.backends import tensors_in

    return next((t.device for t in tensors_in(values) if t.device.type == device.name), flambeau.device(device.name))


@dataclass
class ReductionPlan:
    """A reduction: finish(combine(... combine(init, load(x)) ...), n), over `dims` of the source."""

    init: Any  # a number, or "lowest" / "highest" for the ends of the dtype's range
    load: Any  # expression of arg("x")
    combine: Any  # of arg("a") and arg("b")
    finish: Any  # of arg("a") and arg("n")
    dims: list[int]
    dtype: Any  # in which elements are read
    accumulate: str  # what is combined: "same" as read, "int", "bool" or "real"
    parameters: dict[str, Any]  # scalars that load and finish may refer to


def run_reduction(device: Any, op: Any, record: Any, args: Any, kwargs: Any) -> Any:
    """Settle dimensions and dtypes; then device.reduction(plan, source, out), out keeping reduced dimensions as 1."""
    from flambeau.ops import expr

    details = record.details
    bound = bind(op, args, kwargs)
    device.check(op._opname, bound.values())
    source = bound["self"]
    meta = shape_of(op, args, kwargs)
    dims = bound.get("dim")
    dims = [dims] if isinstance(dims, int) else list(dims or range(source.dim()))
    dims = sorted(d % source.dim() for d in dims) if source.dim() else []
    kept_sizes = [1 if d in dims else n for d, n in enumerate(source.shape)]
    out = flambeau.empty(kept_sizes, dtype=meta.dtype, device=source.device)
    dtype = bound.get("dtype") or source.dtype
    if details["result"] == "sum" and dtype_class(dtype) in "bi":
        dtype = flambeau.int64
    names = [a.name for a in record.schema.args if a.name not in ("self", "dim", "keepdim", "dtype")]
    leaves = [expr.arg(n) for n in names]
    load = pick(details["load"], dtype_class(dtype))
    x, a, b, n = map(expr.arg, "xabn")
    plan = ReductionPlan(
        details["init"],
        expr.lift(load(x, *leaves)),
        expr.lift(details["combine"](a, b)),
        expr.lift(details["finish"](a, n, *leaves)),
        dims,
        dtype,
        details["accumulate"],
        {name: bound[name] for name in names},
    )
    if out.numel():
        device.reduction(plan, source, out)
    return out.reshape(meta.shape)
