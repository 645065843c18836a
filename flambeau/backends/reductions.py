"""Reductions as kernels of a C-like language: a work item for each result, and two stages where results are few."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.backends import c99

__all__ = ["run"]

_FEW = 256  # results, below which a long reduction is divided
_LONG = 2048  # elements for each result


def _ends(init: Any, ctype: str) -> str:
    if init in ("lowest", "highest"):
        if ctype == "long":
            return "(-0x7fffffffffffffffl - 1)" if init == "lowest" else "0x7fffffffffffffffl"
        return c99.literal(-math.inf if init == "lowest" else math.inf, ctype)
    return c99.literal(init, ctype)


def run(printer: Any, plan: Any, source: Any, out: Any) -> None:
    """Reduces `source` along plan.dims into `out`, which has size 1 there."""
    kept_dims = [d for d in range(source.dim()) if d not in plan.dims]
    rows, length = math.prod(source.shape[d] for d in kept_dims), math.prod(source.shape[d] for d in plan.dims)
    load_type = c99.compute_type(plan.dtype)
    wide = {"int": "long", "bool": "long"}.get(plan.accumulate)
    ctype = wide or load_type
    parts = 1
    if rows < _FEW and length >= _LONG:
        parts = min(_FEW // max(rows, 1), length // 512, 256)
    sizes = [source.shape[d] for d in (*kept_dims, *plan.dims)]
    strides = [source.stride(d) for d in (*kept_dims, *plan.dims)]
    integers = [len(kept_dims), length, parts, *sizes, *strides]
    parameters = [float(v) for v in plan.parameters.values()]
    partial = out
    if parts > 1:
        accumulator = {"long": fl.int64, "float": fl.float32, "double": fl.float64}[ctype]
        partial = fl.empty((rows, parts), dtype=accumulator, device=out.device)
    key = ("reduce", plan.key, load_type, source.dtype, partial.dtype, len(sizes), len(kept_dims), parts > 1)
    first = printer.kernel(
        key, lambda s: _print(s, plan, source.dtype, partial.dtype, load_type, ctype, sizes, len(kept_dims), parts > 1)
    )
    printer.launch(first, [partial.data_ptr(), source.data_ptr()], integers, parameters, rows * parts)
    if parts > 1:
        key = ("reduce parts", plan.key, ctype, partial.dtype, out.dtype)  # type: ignore[assignment]
        last = printer.kernel(key, lambda s: _print_parts(s, plan, partial.dtype, out.dtype, ctype))
        printer.launch(last, [out.data_ptr(), partial.data_ptr()], [parts, length], parameters, rows)


def _values(source: Any, plan: Any, ctype: str) -> dict[str, str]:
    return {name: f"(({ctype}){source.real()})" for name in plan.parameters}


def _print(
    source: Any,
    plan: Any,
    element: Any,
    result: Any,
    load_type: str,
    ctype: str,
    sizes: list[int],
    kept_count: int,
    partial: bool,
) -> None:
    target, pointer = source.pointer(result), source.pointer(element)
    _, length, parts = source.integer(), source.integer(), source.integer()
    size_names = [source.integer() for _ in sizes]
    stride_names = [source.integer() for _ in sizes]
    values = _values(source, plan, load_type)
    lines, visit = source.lines, source.expression.visit
    lines.append(f"long row = i / {parts}, part = i % {parts}, base = 0, rest = row;")
    for d in range(kept_count - 1, -1, -1):
        lines.append(f"base += rest % {size_names[d]} * {stride_names[d]}; rest /= {size_names[d]};")
    lines.append(f"long begin = {length} * part / {parts}, end = {length} * (part + 1) / {parts};")
    lines.append(f"{ctype} sum = {_ends(plan.init, ctype)};")
    lines.append("for (long k = begin; k < end; ++k) {")
    lines.append("long at = base, left = k;")
    for d in range(len(sizes) - 1, kept_count - 1, -1):
        if d == kept_count:
            lines.append(f"at += left * {stride_names[d]};")
        else:
            lines.append(f"at += left % {size_names[d]} * {stride_names[d]}; left /= {size_names[d]};")
    lines.append(f"{load_type} x = ({load_type}){c99.load(element, f'{pointer}[at]')};")
    loaded = visit(plan.load, lambda n: "x" if n.args[0] == "x" else values[n.args[0]], load_type)
    lines.append(f"{ctype} b = ({ctype})({loaded});")
    combined = visit(plan.combine, lambda n: {"a": "sum", "b": "b"}[n.args[0]], ctype)
    lines += [f"sum = {combined};", "}"]
    if partial:
        lines.append(f"{target}[i] = sum;")
    else:
        _finish(source, plan, target, result, ctype, "(end - begin)", values)


def _finish(source: Any, plan: Any, target: str, result: Any, ctype: str, count: str, values: dict[str, str]) -> None:
    leaves = {"a": "sum", "n": f"(({ctype}){count})", **values}
    finished = source.expression.visit(plan.finish, lambda n: leaves[n.args[0]], ctype)
    source.lines.append(f"{target}[i] = {c99.stored(result, finished)};")


def _print_parts(source: Any, plan: Any, element: Any, result: Any, ctype: str) -> None:
    target, pointer = source.pointer(result), source.pointer(element)
    parts, length = source.integer(), source.integer()
    values = _values(source, plan, ctype)
    lines = source.lines
    lines.append(f"{ctype} sum = {_ends(plan.init, ctype)};")
    lines.append(f"for (long k = 0; k < {parts}; ++k) {{ {ctype} b = {pointer}[i * {parts} + k];")
    combined = source.expression.visit(plan.combine, lambda n: {"a": "sum", "b": "b"}[n.args[0]], ctype)
    lines += [f"sum = {combined};", "}"]
    _finish(source, plan, target, result, ctype, length, values)
