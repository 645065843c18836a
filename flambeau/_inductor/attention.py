"""Attention as Triton kernels: blocks of queries against blocks of keys, without the matrix of scores in memory.

Forward keeps the largest score and the sum of weights of each query while it walks over the keys, and leaves the logsumexp
for backward. Backward is three kernels: the products of outputs and their gradients, then gradients of keys and values
(each program has some keys and walks over queries), then those of queries. Query heads may share key heads.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.tiles import Target, power
from flambeau._inductor.triton import Kernel

__all__ = ["attention", "attention_backward"]

_LOG2E = 1.4426950408889634


class _Operand:
    """A tensor of four dimensions (batch, head, row, column), as a kernel sees it."""

    def __init__(self, buffer: Buffer, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
        self.buffer = buffer
        self.size = size
        self.stride = stride
        self.offset = offset


class _Writer:
    """Collects the parameters of a kernel while its text is written."""

    def __init__(self) -> None:
        self.pointers: list[tuple[Buffer, int]] = []
        self.numbers: list[int] = []
        self.names: dict[tuple[str, int], str] = {}

    def pointer(self, buffer: Buffer, offset: int = 0) -> str:
        if (buffer, offset) not in self.pointers:
            self.pointers.append((buffer, offset))
        return f"p{self.pointers.index((buffer, offset))}"

    def number(self, what: str, value: int) -> str:
        if (what, value) not in self.names:
            self.names[what, value] = f"n{len(self.numbers)}"
            self.numbers.append(value)
        return self.names[what, value]

    def term(self, what: str, index: str, stride: int) -> str:
        return index if stride == 1 else f"{index} * {self.number(what, stride)}"

    def base(self, name: str, operand: _Operand, head: str) -> str:
        """The line that makes a pointer to the first element of a head."""
        pointer = self.pointer(operand.buffer, operand.offset)
        batch = self.number(f"{name} batch", operand.stride[0])
        return f"{name} = {pointer} + b.to(tl.int64) * {batch} + {head}.to(tl.int64) * {self.number(f'{name} head', operand.stride[1])}"

    def tile(self, name: str, operand: _Operand, rows: str, columns: str, turned: bool = False) -> str:
        """Addresses of rows by columns, or of columns by rows."""
        down, across = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        row = self.term(f"{name} row", f"{rows}{down}", operand.stride[2])
        column = self.term(f"{name} column", f"{columns}{across}", operand.stride[3])
        return f"{name} + {row} + {column}"

    def kernel(
        self, lines: list[str], constants: dict[str, Any], warps: int, stages: int, grid: tuple[int, int, int]
    ) -> Kernel:
        names = [f"p{i}" for i in range(len(self.pointers))] + [f"n{i}" for i in range(len(self.numbers))]
        names += [f"{name}: tl.constexpr" for name in constants]
        body = "\n".join(f"    {line}" for line in lines)
        source = f"@triton.jit\ndef @NAME@({', '.join(names)}):\n{body}\n"
        wide = max(self.numbers, default=0) >= 1 << 31
        return Kernel(source, self.pointers, self.numbers, wide, constants, warps, grid, stages)


class _Geometry:
    """What the kernels of one call share."""

    def __init__(self, query: _Operand, key: _Operand, value: _Operand, causal: bool, scale: float | None) -> None:
        self.query, self.key, self.value = query, key, value
        self.batch, self.heads, self.queries, self.depth = query.size
        self.keys, self.value_depth = key.size[2], value.size[3]
        self.group = self.heads // key.size[1]
        self.causal = causal
        self.scale = scale if scale is not None else 1 / math.sqrt(self.depth)
        self.dtype = {fl.float32: "float32", fl.bfloat16: "bfloat16", fl.float16: "float16"}[query.buffer.dtype]
        self.precision = ', input_precision="tf32x3"' if self.dtype == "float32" else ""

    def constants(self, m: int, n: int) -> dict[str, Any]:
        return {"M": m, "N": n, "D": max(power(self.depth), 16), "V": max(power(self.value_depth), 16)}

    def masks(self, m: int, n: int) -> dict[str, str]:
        """Conditions under which rows and columns exist; empty where they always do."""
        return {
            "m": "" if self.queries % m == 0 else "m < queries",
            "n": "" if self.keys % n == 0 else "n < keys",
            "d": "" if self.depth == max(power(self.depth), 16) else "d < depth",
            "e": "" if self.value_depth == max(power(self.value_depth), 16) else "e < width",
        }

    def sizes(self, writer: _Writer) -> list[str]:
        return [
            f"heads = {writer.number('heads', self.heads)}",
            f"queries = {writer.number('queries', self.queries)}",
            f"keys = {writer.number('keys', self.keys)}",
            f"depth = {writer.number('depth', self.depth)}",
            f"width = {writer.number('width', self.value_depth)}",
            f"group = {writer.number('group', self.group)}",
        ]

    def seen(self, masks: dict[str, str], diagonal: bool, turned: bool = False) -> str:
        """The condition under which a query sees a key, queries by keys or turned; empty where all do."""
        down, across = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        parts = [f"({masks['m']}){down}"] if masks["m"] else []
        parts += [f"({masks['n']}){across}"] if masks["n"] else []
        parts += [f"(m{down} >= n{across})"] if diagonal else []
        return " & ".join(parts)


def _load(address: str, masks: list[str]) -> str:
    """A load of a tile, with zeros where nothing is."""
    text = " & ".join(masks)
    return f"tl.load({address}, {text}, other=0.0)" if text else f"tl.load({address})"


def _where(masks: dict[str, str], row: str, column: str, turned: bool = False) -> list[str]:
    down, across = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
    return [f"({masks[k]}){side}" for k, side in ((row, down), (column, across)) if masks[k]]


def _operands(item: OperatorCall) -> list[_Operand]:
    return [_Operand(b, v.size, v.stride, v.offset) for b, v in item.reads]


def _result(buffer: Buffer) -> _Operand:
    return _Operand(buffer, buffer.size, buffer.stride, 0)


def _fits(call: Any) -> bool:
    """Whether the kernels take a call: no mask, heads of a usual depth, something to do."""
    query, key, value, mask = call.args[:4]
    return (
        mask is None
        and all(0 not in v.size for v in (query, key, value))
        and max(query.size[3], value.size[3]) <= 256
        and query.dtype in (fl.float32, fl.bfloat16, fl.float16)
    )


def _forward_tile(geometry: _Geometry, target: Target) -> tuple[int, int, int, int]:
    """Queries and keys of a block, warps, stages."""
    deep = max(geometry.depth, geometry.value_depth)
    if geometry.dtype == "float32":
        return 64, 32, 4, 2
    m, n, warps, stages = (64, 64, 4, 3) if deep <= 64 else (128, 64, 8, 2)
    if -(-geometry.queries // m) * geometry.batch * geometry.heads < target.processors:
        m = 64
        warps = 4
    return (m if geometry.queries > 16 else 16), n, warps, stages if target.capability >= 90 else 2


def attention(item: OperatorCall, target: Target) -> list[Kernel] | None:
    """The kernel of a forward call, (query, key, value, no mask, causal, scale)."""
    call = item.call
    output, sums = item.results
    if not _fits(call) or output is None or sums is None:
        return None
    query, key, value = _operands(item)
    g = _Geometry(query, key, value, call.args[4], call.args[5])
    m, n, warps, stages = _forward_tile(g, target)
    w = _Writer()
    masks = g.masks(m, n)
    lines = [
        *g.sizes(w),
        "b = tl.program_id(1) // heads",
        "h = tl.program_id(1) % heads",
        w.base("q", query, "h"),
        w.base("k", key, "(h // group)"),
        w.base("v", value, "(h // group)"),
        "first = tl.program_id(0) * M",
        "m = first + tl.arange(0, M)",
        "d = tl.arange(0, D)",
        "e = tl.arange(0, V)",
        f"x = {_load(w.tile('q', query, 'm', 'd'), _where(masks, 'm', 'd'))}",
        'best = tl.full([M], float("-inf"), tl.float32)',
        "total = tl.zeros([M], tl.float32)",
        "made = tl.zeros([M, V], tl.float32)",
    ]

    def walk(start: str, stop: str, diagonal: bool) -> list[str]:
        seen = g.seen({**masks, "m": ""}, diagonal)
        body = [
            "n = start + tl.arange(0, N)",
            f"y = {_load(w.tile('k', key, 'n', 'd', turned=True), _where(masks, 'n', 'd', turned=True))}",
            f"s = tl.dot(x, y{g.precision}) * {g.scale * _LOG2E!r}",
            *([f's = tl.where({seen}, s, float("-inf"))'] if seen else []),
            "top = tl.maximum(best, tl.max(s, 1))",
            "weight = tl.exp2(s - top[:, None])",
            "shrink = tl.exp2(best - top)",
            "total = total * shrink + tl.sum(weight, 1)",
            "made = made * shrink[:, None]",
            f"z = {_load(w.tile('v', value, 'n', 'e'), _where(masks, 'n', 'e'))}",
            f"made = tl.dot(weight.to(tl.{g.dtype}), z, made{g.precision})",
            "best = top",
        ]
        return [f"for start in range({start}, {stop}, N):", *(f"    {line}" for line in body)]

    if g.causal:
        lines += ["middle = tl.minimum(first // N * N, keys // N * N)", "last = tl.minimum(keys, first + M)"]
        whole = {**masks}
        masks["n"] = ""
        lines += walk("0", "middle", False)
        masks = whole
        lines += walk("middle", "last", True)
    else:
        lines += walk("0", "keys", False)
    out = _result(output)
    at = w.pointer(sums)
    inside = " & ".join(_where(masks, "m", "e"))
    lines += [
        f"tl.store({at} + tl.program_id(1).to(tl.int64) * queries + m, "
        f"(best + tl.log2(total)) * {1 / _LOG2E!r}{', ' + masks['m'] if masks['m'] else ''})",
        w.base("o", out, "h"),
        f"tl.store({w.tile('o', out, 'm', 'e')}, (made / total[:, None]).to(tl.{g.dtype}){', ' + inside if inside else ''})",
    ]
    grid = (-(-g.queries // m), g.batch * g.heads, 1)
    return [w.kernel(lines, g.constants(m, n), warps, stages, grid)]


# ---------------------------------------------------------------- backward


def attention_backward(item: OperatorCall, target: Target) -> list[Kernel] | None:
    """The kernels of (gradient, query, key, value, no mask, output, logsumexp, causal, scale)."""
    call = item.call
    if not _fits(type(call)(call.op, call.args[1:], {}, [], [])) or len(item.results) != 3 or None in item.results:
        return None
    grad, query, key, value, output, sums = _operands(item)
    g = _Geometry(query, key, value, call.args[7], call.args[8])
    plain = (g.heads * g.queries, g.queries, 1)
    if tuple(s for s, n in zip(sums.stride, sums.size) if n != 1) != tuple(
        s for s, n in zip(plain, sums.size) if n != 1
    ):
        return None
    deltas = Buffer(-1, fl.float32, sums.size, plain, "loop")
    to_query, to_key, to_value = (_result(b) for b in item.results if b is not None)
    first = _deltas(g, grad, output, deltas)
    first.scratch = (deltas,)
    sums_at = (sums.buffer, sums.offset)
    return [
        first,
        _keys_and_values(g, target, grad, sums_at, deltas, to_key, to_value),
        _queries(g, target, grad, sums_at, deltas, to_query),
    ]


def _deltas(g: _Geometry, grad: _Operand, output: _Operand, deltas: Buffer) -> Kernel:
    """For each query the product of its output and the gradient of that."""
    w = _Writer()
    m = 64
    masks = g.masks(m, 1)
    lines = [
        *g.sizes(w),
        "b = tl.program_id(1) // heads",
        "h = tl.program_id(1) % heads",
        "m = tl.program_id(0) * M + tl.arange(0, M)",
        "e = tl.arange(0, V)",
        w.base("g", grad, "h"),
        w.base("o", output, "h"),
        f"x = {_load(w.tile('g', grad, 'm', 'e'), _where(masks, 'm', 'e'))}.to(tl.float32)",
        f"y = {_load(w.tile('o', output, 'm', 'e'), _where(masks, 'm', 'e'))}.to(tl.float32)",
        f"tl.store({w.pointer(deltas)} + tl.program_id(1).to(tl.int64) * queries + m, "
        f"tl.sum(x * y, 1){', ' + masks['m'] if masks['m'] else ''})",
    ]
    constants = g.constants(m, 1)
    return w.kernel(lines, {k: constants[k] for k in "MV"}, 4, 1, (-(-g.queries // m), g.batch * g.heads, 1))


def _backward_tile(g: _Geometry, target: Target) -> tuple[int, int, int, int]:
    """Rows that a program has, rows of the other side in a step, warps, stages."""
    deep = max(g.depth, g.value_depth)
    if g.dtype == "float32":
        return (32, 32, 4, 1) if deep > 64 else (64, 32, 4, 1)
    if deep <= 64:
        return 64, 64, 4, 3 if target.capability >= 90 else 2
    return 64, 64, 8, 2 if target.capability >= 90 else 1


def _scores(g: _Geometry, masks: dict[str, str], diagonal: bool, turned: bool) -> list[str]:
    """Weights (queries by keys, or turned: keys by queries) and the gradients of the scores. Tiles are x, dy and, each
    turned unless the result is, y and z."""
    seen = g.seen(masks, diagonal, turned)
    row = "[None, :]" if turned else "[:, None]"
    factors = ("y, tl.trans(x)", "z, tl.trans(dy)") if turned else ("x, y", "dy, z")
    return [
        f"s = tl.dot({factors[0]}{g.precision}) * {g.scale * _LOG2E!r}",
        f"weight = tl.exp2(s - total{row} * {_LOG2E!r})",
        *([f"weight = tl.where({seen}, weight, 0.0)"] if seen else []),
        f"dw = tl.dot({factors[1]}{g.precision})",
        f"ds = weight * (dw - delta{row})",
    ]


def _row_lines(masks: dict[str, str], sums: str, deltas: str) -> list[str]:
    inside = f", {masks['m']}, other=0.0" if masks["m"] else ""
    return [
        f"total = tl.load({sums} + head.to(tl.int64) * queries + m{inside})",
        f"delta = tl.load({deltas} + head.to(tl.int64) * queries + m{inside})",
    ]


def _keys_and_values(
    g: _Geometry, target: Target, grad: _Operand, sums: tuple[Buffer, int], deltas: Buffer, dk: _Operand, dv: _Operand
) -> Kernel:
    n, m, warps, stages = _backward_tile(g, target)
    w = _Writer()
    masks = g.masks(m, n)
    sums_at, deltas_at = w.pointer(*sums), w.pointer(deltas)
    lines = [
        *g.sizes(w),
        f"shared = {w.number('key heads', g.heads // g.group)}",
        "b = tl.program_id(1) // shared",
        "kh = tl.program_id(1) % shared",
        "first = tl.program_id(0) * N",
        "n = first + tl.arange(0, N)",
        "d = tl.arange(0, D)",
        "e = tl.arange(0, V)",
        w.base("k", g.key, "kh"),
        w.base("v", g.value, "kh"),
        f"y = {_load(w.tile('k', g.key, 'n', 'd'), _where(masks, 'n', 'd'))}",
        f"z = {_load(w.tile('v', g.value, 'n', 'e'), _where(masks, 'n', 'e'))}",
        "dk = tl.zeros([N, D], tl.float32)",
        "dv = tl.zeros([N, V], tl.float32)",
    ]

    def walk(start: str, stop: str, diagonal: bool) -> list[str]:
        body = [
            "m = start + tl.arange(0, M)",
            f"x = {_load(w.tile('q', g.query, 'm', 'd'), _where(masks, 'm', 'd'))}",
            f"dy = {_load(w.tile('g', grad, 'm', 'e'), _where(masks, 'm', 'e'))}",
            *_row_lines(masks, sums_at, deltas_at),
            *_scores(g, masks, diagonal, turned=True),
            f"dv = tl.dot(weight.to(tl.{g.dtype}), dy, dv{g.precision})",
            f"dk = tl.dot(ds.to(tl.{g.dtype}), x, dk{g.precision})",
        ]
        return [f"for start in range({start}, {stop}, M):", *(f"    {line}" for line in body)]

    inner = ["h = kh * group + i", "head = b * heads + h", w.base("q", g.query, "h"), w.base("g", grad, "h")]
    if g.causal:
        # The blocks that the diagonal crosses, then those in which every query sees every key.
        inner += [
            "begin = first // M * M",
            "middle = tl.minimum((first + N + M - 1) // M * M, (queries + M - 1) // M * M)",
        ]
        inner += walk("begin", "tl.minimum(middle, queries)", True)
        inner += walk("middle", "queries", False)
    else:
        inner += walk("0", "queries", False)
    lines += ["for i in range(0, group):", *(f"    {line}" for line in inner)]
    for name, made, index, factor in (("dk", dk, "d", f" * {g.scale!r}"), ("dv", dv, "e", "")):
        inside = " & ".join(_where(masks, "n", index))
        lines += [
            w.base(f"{name}_at", made, "kh"),
            f"tl.store({w.tile(f'{name}_at', made, 'n', index)}, ({name}{factor}).to(tl.{g.dtype}){', ' + inside if inside else ''})",
        ]
    grid = (-(-g.keys // n), g.batch * (g.heads // g.group), 1)
    return w.kernel(lines, g.constants(m, n), warps, stages, grid)


def _queries(
    g: _Geometry, target: Target, grad: _Operand, sums: tuple[Buffer, int], deltas: Buffer, dq: _Operand
) -> Kernel:
    m, n, warps, stages = _backward_tile(g, target)
    w = _Writer()
    masks = g.masks(m, n)
    lines = [
        *g.sizes(w),
        "head = tl.program_id(1)",
        "b = head // heads",
        "h = head % heads",
        "first = tl.program_id(0) * M",
        "m = first + tl.arange(0, M)",
        "d = tl.arange(0, D)",
        "e = tl.arange(0, V)",
        w.base("q", g.query, "h"),
        w.base("g", grad, "h"),
        w.base("k", g.key, "(h // group)"),
        w.base("v", g.value, "(h // group)"),
        f"x = {_load(w.tile('q', g.query, 'm', 'd'), _where(masks, 'm', 'd'))}",
        f"dy = {_load(w.tile('g', grad, 'm', 'e'), _where(masks, 'm', 'e'))}",
        *_row_lines(masks, w.pointer(*sums), w.pointer(deltas)),
        "dq = tl.zeros([M, D], tl.float32)",
    ]

    def walk(start: str, stop: str, diagonal: bool) -> list[str]:
        body = [
            "n = start + tl.arange(0, N)",
            f"y = {_load(w.tile('k', g.key, 'n', 'd', turned=True), _where(masks, 'n', 'd', turned=True))}",
            f"z = {_load(w.tile('v', g.value, 'n', 'e', turned=True), _where(masks, 'n', 'e', turned=True))}",
            *_scores(g, masks, diagonal, turned=False),
            f"dq = tl.dot(ds.to(tl.{g.dtype}), tl.trans(y), dq{g.precision})",
        ]
        return [f"for start in range({start}, {stop}, N):", *(f"    {line}" for line in body)]

    if g.causal:
        lines += ["middle = tl.minimum(first // N * N, keys // N * N)", "last = tl.minimum(keys, first + M)"]
        lines += [*walk("0", "middle", False), *walk("middle", "last", True)]
    else:
        lines += walk("0", "keys", False)
    inside = " & ".join(_where(masks, "m", "d"))
    lines += [
        w.base("dq_at", dq, "h"),
        f"tl.store({w.tile('dq_at', dq, 'm', 'd')}, (dq * {g.scale!r}).to(tl.{g.dtype}){', ' + inside if inside else ''})",
    ]
    return w.kernel(lines, g.constants(m, n), warps, stages, (-(-g.queries // m), g.batch * g.heads, 1))
