"""Optimizer steps as kernels of a C-like language: one launch for up to sixteen tensors.

A work item computes all new values of a block of elements of one tensor. Numbers that are the same for all tensors are
parameters once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as fl
from flambeau.backends import c99

__all__ = ["run"]

_TENSORS = 16  # of one launch
_STEPS = 64  # that are remembered


class Launch(NamedTuple):
    """A kernel with everything but its real numbers."""

    kernel: Any
    places: list[int]  # of its tensors in the lists
    pointers: list[int]
    integers: list[int]
    items: int


def run(printer: Any, plan: Any, lists: dict[str, list[Any]], numbers: list[dict[str, float]]) -> None:
    """Updates all tensors of the lists; raises NotImplementedError before it changes any."""
    tensors = [t for of_name in lists.values() for t in of_name]
    same = all(n == numbers[0] for n in numbers[1:])
    key = (plan.key, same, *[(t.data_ptr(), t.dtype, t.shape, t.stride()) for t in tensors])
    launches = printer.steps.get(key)  # the next step of an optimizer is on the same memory, as a rule
    if launches is None:
        if len(printer.steps) >= _STEPS:
            printer.steps.clear()
        launches = printer.steps[key] = _launches(printer, plan, lists, numbers, same)
    for kernel, places, pointers, integers, items in launches:
        chosen = numbers[:1] if same else [numbers[at] for at in places]
        printer.launch(kernel, pointers, integers, [x for values in chosen for x in values.values()], items)


def _launches(
    printer: Any, plan: Any, lists: dict[str, list[Any]], numbers: list[dict[str, float]], same: bool
) -> list[Launch]:
    names = list(lists)
    rows = [[lists[n][at] for n in names] for at in range(len(numbers))]
    if not all(t.is_contiguous() for tensors in rows for t in tensors):
        raise NotImplementedError("tensors that are not contiguous")
    parts: dict[Any, list[int]] = {}
    for at, tensors in enumerate(rows):
        parts.setdefault(tuple(t.dtype for t in tensors), []).append(at)
    block = printer.elements_per_item
    launches = []
    for dtypes, places in parts.items():
        for first in range(0, len(places), _TENSORS):
            chosen = places[first : first + _TENSORS]
            kernel = printer.kernel(
                ("update", plan.key, dtypes, len(chosen), same),
                lambda s, d=dtypes, c=chosen: _print(s, plan, names, d, len(c), list(numbers[0]), same, block),
            )
            integers: list[int] = []
            items = 0
            for at in chosen:
                count = rows[at][0].numel()
                items += -(-count // block)
                integers += [items, count]
            launches.append(Launch(kernel, chosen, [t.data_ptr() for at in chosen for t in rows[at]], integers, items))
    return launches


def _print(
    source: Any,
    plan: Any,
    names: list[str],
    dtypes: tuple[Any, ...],
    count: int,
    numbers: list[str],
    same: bool,
    block: int,
) -> None:
    ctype = "double" if fl.float64 in dtypes else "float"
    shared = {n: f"(({ctype}){source.real()})" for n in numbers} if same else {}
    begin, lines = "0", source.lines
    for _ in range(count):
        end, size = source.integer(), source.integer()
        values = shared or {n: f"(({ctype}){source.real()})" for n in numbers}
        pointers = {n: source.pointer(dtype) for n, dtype in zip(names, dtypes)}
        lines.append(f"if (i >= {begin} && i < {end}) {{ long first = (i - {begin}) * {block}, last = first + {block};")
        lines.append(f"if (last > {size}) last = {size};")
        lines.append("for (long e = first; e < last; ++e) {")
        _element(source, plan, dict(zip(names, dtypes)), pointers, values, ctype)
        lines.append("} }")
        begin = end


def _element(
    source: Any, plan: Any, dtypes: dict[str, Any], pointers: dict[str, str], numbers: dict[str, str], ctype: str
) -> None:
    values = dict(numbers)
    for n, pointer in pointers.items():
        source.lines.append(f"{ctype} v_{n} = ({ctype}){c99.load(dtypes[n], f'{pointer}[e]')};")
        values[n] = f"v_{n}"
    results = {n: source.expression.visit(x, lambda node: values[node.args[0]], ctype) for n, x in plan.outputs.items()}
    for n, result in results.items():
        source.lines.append(f"{pointers[n]}[e] = {c99.stored(dtypes[n], result)};")
