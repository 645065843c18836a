"""Attention of one or a few queries to many keys, as when a model decodes word by word.

There are too few queries to keep a GPU busy, so the keys are divided: each program has the queries of all heads that share
some keys, and a part of those. It leaves the weighted sum of its values, the largest score and the sum of weights; a second
kernel puts the parts together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import flambeau as fl
from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.tiles import Target, power
from flambeau._inductor.triton import Kernel

if TYPE_CHECKING:
    from flambeau._inductor.attention import _Geometry, _Operand, _Writer

__all__ = ["decoding", "suits_decoding"]

_ROWS = 16  # the least that products of matrices take
_KEYS = 64  # of one step
_LOG2E = 1.4426950408889634


def suits_decoding(g: _Geometry, target: Target) -> bool:
    """Whether dividing the keys gives idle processors work."""
    programs = g.batch * (g.heads // g.group)
    few = g.queries * g.group <= _ROWS and 2 * programs <= target.processors
    return few and g.keys >= 4 * _KEYS and g.keep is None and not g.causal


def decoding(item: OperatorCall, target: Target, g: _Geometry) -> list[Kernel]:
    """The two kernels of a call that suits."""
    from flambeau._inductor.attention import _result, _Writer

    output, sums = item.results
    assert output is not None and sums is not None
    programs = g.batch * (g.heads // g.group)
    steps = -(-g.keys // _KEYS)
    each = -(-steps // min(max(2 * target.processors // programs, 1), steps))
    splits = -(-steps // each)
    rows = g.batch * g.heads * g.queries
    scratch = [
        Buffer(-1, fl.float32, size, tuple(math.prod(size[i + 1 :]) for i in range(len(size))), "loop")
        for size in ((rows, splits), (rows, splits), (rows, splits, g.value_depth))
    ]
    first = _parts(_Writer(), g, each * _KEYS, splits, scratch)
    first.scratch = tuple(scratch)
    return [first, _together(_Writer(), g, splits, scratch, _result(output), sums)]


def _at(w: _Writer, name: str, operand: _Operand, head: str, row: str) -> str:
    """The address of the first column for each row of the tile, rows being of several heads."""
    base = w.pointer(operand.buffer, operand.offset)
    batch, by_head, by_row = (w.number(f"{name} {k}", operand.stride[k]) for k in range(3))
    return f"{base} + b.to(tl.int64) * {batch} + {head} * {by_head} + {row} * {by_row}"


def _along(w: _Writer, name: str, operand: _Operand) -> str:
    """What the number of a column is multiplied by: nothing where columns are neighbours, so that loads are wide."""
    return "" if operand.stride[3] == 1 else f" * {w.number(f'{name} 3', operand.stride[3])}"


def _parts(w: _Writer, g: _Geometry, chunk: int, splits: int, scratch: list[Buffer]) -> Kernel:
    best, total, weighted = (w.pointer(b) for b in scratch)
    column = {name: _along(w, name, o) for name, o in (("q", g.query), ("k", g.key), ("v", g.value))}
    deep, wide = "d < depth", "e < width"
    body = [
        "n = start + tl.arange(0, N)",
        "inside = n < keys",
        f"y = tl.load(k[:, None] + n[None, :] * {w.number('k 2', g.key.stride[2])}, "
        f"({deep})[:, None] & inside[None, :], other=0.0)",
        f"s = tl.dot(x, y{g.precision}) * {g.scale * _LOG2E!r}",
    ]
    if g.bias is not None:
        address = f"(bias[:, None] + n[None, :]{_along(w, 'bias', g.bias)})"
        hidden = g.bias.buffer.dtype is fl.bool
        load = f"tl.load({address}, exists[:, None] & inside[None, :], other={'0' if hidden else '0.0'})"
        body.append(
            f's = tl.where({load} != 0, s, float("-inf"))' if hidden else f"s += {load}.to(tl.float32) * {_LOG2E!r}"
        )
    body += [
        's = tl.where(inside[None, :], s, float("-inf"))',
        "top = tl.maximum(best, tl.max(s, 1))",
        # A query that has seen no key yet has no largest score.
        'base = tl.where(top == float("-inf"), 0.0, top)',
        "weight = tl.exp2(s - base[:, None])",
        "shrink = tl.exp2(best - base)",
        "total = total * shrink + tl.sum(weight, 1)",
        f"z = tl.load(v[None, :] + n[:, None] * {w.number('v 2', g.value.stride[2])}, "
        f"inside[:, None] & ({wide})[None, :], other=0.0)",
        f"made = tl.dot(weight.to(tl.{g.dtype}), z, made * shrink[:, None]{g.precision})",
        "best = top",
    ]
    shared = w.number("key heads", g.heads // g.group)
    lines = [
        *g.sizes(w),
        f"b = tl.program_id(1) // {shared}",
        f"kh = tl.program_id(1) % {shared}",
        "row = tl.arange(0, M)",
        "exists = row < group * queries",
        "h = kh * group + row // queries",
        "m = row % queries",
        "d = tl.arange(0, D)",
        "e = tl.arange(0, V)",
        f"q = {_at(w, 'q', g.query, 'h', 'm')}",
        f"x = tl.load(q[:, None] + d[None, :]{column['q']}, exists[:, None] & ({deep})[None, :], other=0.0)",
        f"k = {_at(w, 'k', g.key, 'kh', '0')} + d{column['k']}",
        f"v = {_at(w, 'v', g.value, 'kh', '0')} + e{column['v']}",
        *([] if g.bias is None else [f"bias = {_at(w, 'bias', g.bias, 'h', 'm')}"]),
        'best = tl.full([M], float("-inf"), tl.float32)',
        "total = tl.zeros([M], tl.float32)",
        "made = tl.zeros([M, V], tl.float32)",
        f"begin = tl.program_id(0) * {chunk}",
        f"for start in range(begin, tl.minimum(begin + {chunk}, keys), N):",
        *(f"    {line}" for line in body),
        f"place = ((b * heads + h) * queries + m) * {splits} + tl.program_id(0)",
        f"tl.store({best} + place, best, exists)",
        f"tl.store({total} + place, total, exists)",
        f"tl.store({weighted} + place[:, None] * width + e[None, :], made, exists[:, None] & ({wide})[None, :])",
    ]
    grid = (splits, g.batch * (g.heads // g.group), 1)
    return w.kernel(lines, g.constants(_ROWS, _KEYS), 4, 2, grid)


def _together(w: _Writer, g: _Geometry, splits: int, scratch: list[Buffer], out: _Operand, sums: Buffer) -> Kernel:
    best, total, weighted = (w.pointer(b) for b in scratch)
    lines = [
        *g.sizes(w),
        "row = tl.program_id(0)",
        "b = row // (heads * queries)",
        "h = row // queries % heads",
        "m = row % queries",
        "i = tl.arange(0, S)",
        "e = tl.arange(0, V)",
        f"there = i < {splits}",
        f'best = tl.load({best} + row * {splits} + i, there, other=float("-inf"))',
        f"total = tl.load({total} + row * {splits} + i, there, other=0.0)",
        f"made = tl.load({weighted} + (row * {splits} + i[:, None]) * width + e[None, :], "
        "there[:, None] & (e < width)[None, :], other=0.0)",
        "top = tl.max(best, 0)",
        'base = tl.where(top == float("-inf"), 0.0, top)',
        "weight = tl.exp2(best - base)",
        "all = tl.sum(weight * total, 0)",
        f"tl.store({w.pointer(sums)} + row, (base + tl.log2(all)) * {1 / _LOG2E!r})",
        "all = tl.where(all > 0, all, 1.0)",
        f"tl.store({_at(w, 'o', out, 'h', 'm')} + e{_along(w, 'o', out)}, "
        f"(tl.sum(made * weight[:, None], 0) / all).to(tl.{g.dtype}), e < width)",
    ]
    constants = {"S": power(splits), "V": g.constants(1, 1)["V"]}
    return w.kernel(lines, constants, 2, 1, (g.batch * g.heads * g.queries, 1, 1))
