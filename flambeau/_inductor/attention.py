"""Attention as Triton kernels: blocks of queries against blocks of keys, without the matrix of scores in memory.

Forward keeps the largest score and the sum of weights of each query while it walks over the keys, and leaves the logsumexp
for backward. Backward is three kernels: the products of outputs and their gradients, then gradients of keys and values
(each program has some keys and walks over queries), then those of queries. Query heads may share key heads.

A bias is added to the scores, or a mask hides some; its gradient is one more kernel, whose programs have a block of queries
by keys and walk over the batches and heads that share the bias. Dropout multiplies the weights by a tensor that says which
are kept: what it costs to read is little beside what it costs to draw the numbers three times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau._inductor.attention_decoding import decoding, suits_decoding
from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.tiles import Target, power
from flambeau._inductor.triton import Kernel

__all__ = ["attention", "attention_backward", "biased_attention", "biased_attention_backward"]

Printing = Callable[[OperatorCall, Target], "list[Kernel] | None"]
PRINTERS: dict[str, Printing] = {}  # by the full name of the operator


def _prints(name: str) -> Callable[[Printing], Printing]:
    """Decorator: the function prints the kernels of an operator."""
    return lambda function: PRINTERS.setdefault(name, function)


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
    """What the kernels of one call share. A `bias` is added to scores or, as booleans, hides some; `keep` says which weights
    dropout keeps."""

    def __init__(
        self,
        query: _Operand,
        key: _Operand,
        value: _Operand,
        causal: bool,
        scale: float | None,
        bias: _Operand | None = None,
        keep: _Operand | None = None,
        dropout: float = 0.0,
    ) -> None:
        self.query, self.key, self.value = query, key, value
        self.bias, self.keep = bias, keep
        self.kept_factor = 1 / (1 - dropout) if dropout < 1 else 0.0
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

    def bases(self, writer: _Writer) -> list[str]:
        """Where the bias of a head begins, and which of its weights are kept."""
        parts = (("bias", self.bias), ("keep", self.keep))
        return [writer.base(name, operand, "h") for name, operand in parts if operand is not None]

    def biased(self, writer: _Writer, masks: dict[str, str], turned: bool = False) -> list[str]:
        """The lines that add the bias to scores, which are exponents of two."""
        if self.bias is None:
            return []
        address, where = writer.tile("bias", self.bias, "m", "n", turned), _where(masks, "m", "n", turned)
        if self.bias.buffer.dtype is fl.bool:
            return [f's = tl.where({_load(address, where, "0")} != 0, s, float("-inf"))']
        return [f"s += {_load(address, where)}.to(tl.float32) * {_LOG2E!r}"]

    def dropped(self, writer: _Writer, masks: dict[str, str], names: dict[str, str], turned: bool = False) -> list[str]:
        """The lines that set new names to values where their weights are kept, times a factor, and to zero elsewhere."""
        if self.keep is None:
            return [f"{new} = {old}" for new, old in names.items() if new != old]
        address, where = writer.tile("keep", self.keep, "m", "n", turned), _where(masks, "m", "n", turned)
        lines = [f"kept = {_load(address, where, '0')} != 0"]
        return lines + [f"{new} = tl.where(kept, {old} * {self.kept_factor!r}, 0.0)" for new, old in names.items()]

    def seen(self, masks: dict[str, str], diagonal: bool, turned: bool = False) -> str:
        """The condition under which a query sees a key, queries by keys or turned; empty where all do."""
        down, across = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        parts = [f"({masks['m']}){down}"] if masks["m"] else []
        parts += [f"({masks['n']}){across}"] if masks["n"] else []
        parts += [f"(m{down} >= n{across})"] if diagonal else []
        return " & ".join(parts)


def _load(address: str, masks: list[str], other: str = "0.0") -> str:
    """A load of a tile, with zeros where nothing is."""
    text = " & ".join(masks)
    return f"tl.load({address}, {text}, other={other})" if text else f"tl.load({address})"


def _where(masks: dict[str, str], row: str, column: str, turned: bool = False) -> list[str]:
    down, across = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
    return [f"({masks[k]}){side}" for k, side in ((row, down), (column, across)) if masks[k]]


def _operands(item: OperatorCall) -> list[_Operand]:
    return [_Operand(b, v.size, v.stride, v.offset) for b, v in item.reads]


def _result(buffer: Buffer) -> _Operand:
    return _Operand(buffer, buffer.size, buffer.stride, 0)


def _broadcast(operand: _Operand, full: tuple[int, ...]) -> _Operand:
    """A bias or mask with strides of zero where it is the same for all, with four dimensions."""
    lead = 4 - len(operand.size)
    sizes, strides = (1,) * lead + operand.size, (0,) * lead + operand.stride
    strides = tuple(0 if n == 1 else s for n, s in zip(sizes, strides))
    return _Operand(operand.buffer, full, strides, operand.offset)


def _geometry(operands: list[_Operand], bias: Any, keep: Any, causal: bool, scale: Any, dropout: float) -> _Geometry:
    """Takes query, key and value, and bias and keep where there are some, from the front of the operands."""
    query, key, value = (operands.pop(0) for _ in range(3))
    full = (*query.size[:3], key.size[2])
    parts = [None if value is None else _broadcast(operands.pop(0), full) for value in (bias, keep)]
    return _Geometry(query, key, value, causal, scale, parts[0], parts[1], dropout)


def _fits(query: Any, key: Any, value: Any, bias: Any = None) -> bool:
    """Whether the kernels take a call: heads of a usual depth, something to do."""
    return (
        all(0 not in v.size for v in (query, key, value))
        and max(query.size[3], value.size[3]) <= 256
        and query.dtype in (fl.float32, fl.bfloat16, fl.float16)
        and (bias is None or bias.dtype in (fl.bool, fl.float32, fl.bfloat16, fl.float16))
    )


def _is_better_called(query: Any, value: Any, bias: Any, target: Target) -> bool:
    """Whether the library's kernel is quicker: that of Hopper for wide heads (140 us instead of 260 for a forward pass of
    4 x 16 x 2048 x 128, causal)."""
    depth = query.size[3]
    wide = 64 < depth <= 128 and depth % 8 == 0 and value.size[3] == depth
    return target.capability == 90 and wide and bias is None and query.dtype in (fl.bfloat16, fl.float16)


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


@_prints("_flash_attention")
def attention(item: OperatorCall, target: Target) -> list[Kernel] | None:
    """The kernel of a forward call, (query, key, value, mask, causal, scale)."""
    query, key, value, mask, causal, scale = item.call.args
    if not _fits(query, key, value, mask) or _is_better_called(query, value, mask, target) or None in item.results:
        return None
    return _forward(item, target, _geometry(_operands(item), mask, None, causal, scale, 0.0))


@_prints("_biased_attention")
def biased_attention(item: OperatorCall, target: Target) -> list[Kernel] | None:
    """The kernel of a forward call, (query, key, value, bias, keep, causal, scale, dropout)."""
    query, key, value, bias, keep, causal, scale, dropout = item.call.args
    if not _fits(query, key, value, bias) or None in item.results:
        return None
    return _forward(item, target, _geometry(_operands(item), bias, keep, causal, scale, dropout))


def _forward(item: OperatorCall, target: Target, g: _Geometry) -> list[Kernel]:
    if suits_decoding(g, target):
        return decoding(item, target, g)
    output, sums = item.results
    assert output is not None and sums is not None
    query, key, value = g.query, g.key, g.value
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
        *g.bases(w),
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
            *g.biased(w, masks),
            *([f's = tl.where({seen}, s, float("-inf"))'] if seen else []),
            "top = tl.maximum(best, tl.max(s, 1))",
            # A query that has seen no key yet has no largest score.
            "base = top" if g.bias is None else 'base = tl.where(top == float("-inf"), 0.0, top)',
            "weight = tl.exp2(s - base[:, None])",
            "shrink = tl.exp2(best - base)",
            "total = total * shrink + tl.sum(weight, 1)",
            "made = made * shrink[:, None]",
            *g.dropped(w, masks, {"weight": "weight"}),
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
        *([] if g.bias is None else ["total = tl.where(total > 0, total, 1.0)"]),
        f"tl.store({w.tile('o', out, 'm', 'e')}, (made / total[:, None]).to(tl.{g.dtype}){', ' + inside if inside else ''})",
    ]
    grid = (-(-g.queries // m), g.batch * g.heads, 1)
    return [w.kernel(lines, g.constants(m, n), warps, stages, grid)]


# ---------------------------------------------------------------- backward


@_prints("_flash_attention_backward")
def attention_backward(item: OperatorCall, target: Target) -> list[Kernel] | None:
    """The kernels of (gradient, query, key, value, mask, output, logsumexp, causal, scale)."""
    _, query, key, value, mask, _, _, causal, scale = item.call.args
    if not _fits(query, key, value, mask) or _is_better_called(query, value, mask, target) or None in item.results:
        return None
    grad, *rest = _operands(item)
    g = _geometry(rest, mask, None, causal, scale, 0.0)
    output, sums = rest
    return _backward(item, target, g, grad, output, sums, None)


@_prints("_biased_attention_backward")
def biased_attention_backward(item: OperatorCall, target: Target) -> list[Kernel] | None:
    """The kernels of (gradient, query, key, value, bias, keep, output, logsumexp, causal, scale, dropout, bias gradient)."""
    _, query, key, value, bias, keep, _, _, causal, scale, dropout, bias_gradient = item.call.args
    if not _fits(query, key, value, bias) or None in item.results[:3]:
        return None
    grad, *rest = _operands(item)
    g = _geometry(rest, bias, keep, causal, scale, dropout)
    of_bias = item.results[3] if bias_gradient else None
    if of_bias is not None and not _takes_bias_gradient(g, of_bias):
        return None
    output, sums = rest
    return _backward(item, target, g, grad, output, sums, of_bias)


def _backward(
    item: OperatorCall,
    target: Target,
    g: _Geometry,
    grad: _Operand,
    output: _Operand,
    sums: _Operand,
    of_bias: Buffer | None,
) -> list[Kernel] | None:
    plain = (g.heads * g.queries, g.queries, 1)
    if tuple(s for s, n in zip(sums.stride, sums.size) if n != 1) != tuple(
        s for s, n in zip(plain, sums.size) if n != 1
    ):
        return None
    deltas = Buffer(-1, fl.float32, sums.size, plain, "loop")
    to_query, to_key, to_value = (_result(b) for b in item.results[:3] if b is not None)
    first = _deltas(g, grad, output, deltas)
    first.scratch = (deltas,)
    sums_at = (sums.buffer, sums.offset)
    return [
        first,
        _keys_and_values(g, target, grad, sums_at, deltas, to_key, to_value),
        _queries(g, target, grad, sums_at, deltas, to_query),
        *([] if of_bias is None else _of_bias(g, target, grad, sums_at, deltas, of_bias)),
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


def _scores(w: _Writer, g: _Geometry, masks: dict[str, str], diagonal: bool, turned: bool) -> list[str]:
    """Weights (queries by keys, or turned: keys by queries), those that dropout keeps, and the gradients of the scores.
    Tiles are x, dy and, each turned unless the result is, y and z."""
    seen = g.seen(masks, diagonal, turned)
    row = "[None, :]" if turned else "[:, None]"
    factors = ("y, tl.trans(x)", "z, tl.trans(dy)") if turned else ("x, y", "dy, z")
    return [
        f"s = tl.dot({factors[0]}{g.precision}) * {g.scale * _LOG2E!r}",
        *g.biased(w, masks, turned),
        f"weight = tl.exp2(s - total{row} * {_LOG2E!r})",
        *([f"weight = tl.where({seen}, weight, 0.0)"] if seen else []),
        f"dw = tl.dot({factors[1]}{g.precision})",
        *g.dropped(w, masks, {"used": "weight", "dw": "dw"}, turned),
        f"ds = weight * (dw - delta{row})",
    ]


def _row_lines(g: _Geometry, masks: dict[str, str], sums: str, deltas: str) -> list[str]:
    inside = f", {masks['m']}, other=0.0" if masks["m"] else ""
    # The weights of a query that sees no key are zero.
    guard = [] if g.bias is None else ['total = tl.where(total == float("-inf"), float("inf"), total)']
    return [
        f"total = tl.load({sums} + head.to(tl.int64) * queries + m{inside})",
        *guard,
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
            *_row_lines(g, masks, sums_at, deltas_at),
            *_scores(w, g, masks, diagonal, turned=True),
            f"dv = tl.dot(used.to(tl.{g.dtype}), dy, dv{g.precision})",
            f"dk = tl.dot(ds.to(tl.{g.dtype}), x, dk{g.precision})",
        ]
        return [f"for start in range({start}, {stop}, M):", *(f"    {line}" for line in body)]

    inner = [
        "h = kh * group + i",
        "head = b * heads + h",
        w.base("q", g.query, "h"),
        w.base("g", grad, "h"),
        *g.bases(w),
    ]
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
    for name, gradient, index, factor in (("dk", dk, "d", f" * {g.scale!r}"), ("dv", dv, "e", "")):
        inside = " & ".join(_where(masks, "n", index))
        lines += [
            w.base(f"{name}_at", gradient, "kh"),
            f"tl.store({w.tile(f'{name}_at', gradient, 'n', index)}, ({name}{factor}).to(tl.{g.dtype}){', ' + inside if inside else ''})",
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
        *g.bases(w),
        *_row_lines(g, masks, w.pointer(*sums), w.pointer(deltas)),
        "dq = tl.zeros([M, D], tl.float32)",
    ]

    def walk(start: str, stop: str, diagonal: bool) -> list[str]:
        body = [
            "n = start + tl.arange(0, N)",
            f"y = {_load(w.tile('k', g.key, 'n', 'd', turned=True), _where(masks, 'n', 'd', turned=True))}",
            f"z = {_load(w.tile('v', g.value, 'n', 'e', turned=True), _where(masks, 'n', 'e', turned=True))}",
            *_scores(w, g, masks, diagonal, turned=False),
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


# ---------------------------------------------------------------- the gradient of a bias


def _takes_bias_gradient(g: _Geometry, of_bias: Buffer) -> bool:
    """Whether there is a kernel: the bias has rows and columns of its own, and its gradient lies in order."""
    strides = tuple(math.prod(of_bias.size[i + 1 :]) for i in range(4))
    in_order = all(n == 1 or s == t for n, s, t in zip(of_bias.size, of_bias.stride, strides))
    return in_order and of_bias.size[2:] == (g.queries, g.keys)


def _of_bias(
    g: _Geometry, target: Target, grad: _Operand, sums: tuple[Buffer, int], deltas: Buffer, of_bias: Buffer
) -> list[Kernel]:
    """Programs have a block of queries by keys and add up what the batches and heads that share it give. Where few programs
    would have many of those, each has a part of them, and a second kernel adds the parts."""
    m, n, warps, stages = _backward_tile(g, target)
    own_batches, own_heads = of_bias.size[:2]
    batches, heads = g.batch // own_batches, g.heads // own_heads
    blocks = -(-g.queries // m) * -(-g.keys // n) * own_batches * own_heads
    parts = max(min(-(-4 * target.processors // blocks), batches * heads // 4), 1)
    part = -(-batches * heads // parts)
    result = of_bias
    if parts > 1:
        size = (parts, math.prod(of_bias.size))
        result = Buffer(-1, fl.float32, size, (size[1], 1), "loop")
    w = _Writer()
    masks = g.masks(m, n)
    body = [
        f"b = own // {own_heads} + i // {heads}" if own_batches == 1 else f"b = own // {own_heads}",
        f"h = own * 0 + i % {heads}" if own_heads == 1 else f"h = own % {own_heads}",
        "head = b * heads + h",
        w.base("q", g.query, "h"),
        w.base("g", grad, "h"),
        w.base("k", g.key, "(h // group)"),
        w.base("v", g.value, "(h // group)"),
        *g.bases(w),
        f"x = {_load(w.tile('q', g.query, 'm', 'd'), _where(masks, 'm', 'd'))}",
        f"dy = {_load(w.tile('g', grad, 'm', 'e'), _where(masks, 'm', 'e'))}",
        f"y = {_load(w.tile('k', g.key, 'n', 'd', turned=True), _where(masks, 'n', 'd', turned=True))}",
        f"z = {_load(w.tile('v', g.value, 'n', 'e', turned=True), _where(masks, 'n', 'e', turned=True))}",
        *_row_lines(g, masks, w.pointer(*sums), w.pointer(deltas)),
        *_scores(w, g, masks, g.causal, turned=False),
        "db += ds",
    ]
    address = f"{w.pointer(result)} + (tl.program_id(2) * tl.num_programs(1) + own).to(tl.int64) * queries * keys"
    inside = " & ".join(_where(masks, "m", "n"))
    dtype = {fl.float32: "float32", fl.bfloat16: "bfloat16", fl.float16: "float16"}[result.dtype]
    lines = [
        *g.sizes(w),
        "own = tl.program_id(1)",
        "columns = (keys + N - 1) // N",
        "m = tl.program_id(0) // columns * M + tl.arange(0, M)",
        "n = tl.program_id(0) % columns * N + tl.arange(0, N)",
        "d = tl.arange(0, D)",
        "e = tl.arange(0, V)",
        "db = tl.zeros([M, N], tl.float32)",
        f"begin = tl.program_id(2) * {part}",
        f"for i in range(begin, tl.minimum(begin + {part}, {batches * heads})):",
        *(f"    {line}" for line in body),
        f"tl.store({address} + m[:, None] * keys + n[None, :], db.to(tl.{dtype}){', ' + inside if inside else ''})",
    ]
    grid = (-(-g.queries // m) * -(-g.keys // n), own_batches * own_heads, parts)
    kernel = w.kernel(lines, g.constants(m, n), warps, min(stages, 2), grid)
    if parts == 1:
        return [kernel]
    kernel.scratch = (result,)
    return [kernel, _sum_of_parts(result, of_bias)]


def _sum_of_parts(parts: Buffer, result: Buffer) -> Kernel:
    """Adds the rows of one buffer into another."""
    w = _Writer()
    dtype = {fl.float32: "float32", fl.bfloat16: "bfloat16", fl.float16: "float16"}[result.dtype]
    count, length = parts.size
    lines = [
        f"length = {w.number('length', length)}",
        f"count = {w.number('count', count)}",
        "at = tl.program_id(0) * X + tl.arange(0, X)",
        "total = tl.zeros([X], tl.float32)",
        "place = at.to(tl.int64)",
        "for _ in range(0, count):",
        f"    total += tl.load({w.pointer(parts)} + place, at < length, other=0.0)",
        "    place += length",
        f"tl.store({w.pointer(result)} + at, total.to(tl.{dtype}), at < length)",
    ]
    return w.kernel(lines, {"X": 512}, 4, 1, (-(-length // 512), 1, 1))
