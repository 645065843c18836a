"""Matrix products as kernels of a C-like language, by how their operands lie in memory.

    rows    rows of b are contiguous: a work item computes a few rows by one vector of columns
    dots    rows of a and columns of b are contiguous: a work item computes a small tile of dot products along them
    lanes   any strides, and few columns: as `rows`, but vectors are loaded element by element
    plain   languages without vector types: tiles of scalars, over a contiguous b

The first three are for printers with `vector_type`. Tiles at an edge overlap their neighbours or repeat the last row, and
write the same values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as fl
from flambeau.backends import c99

__all__ = ["Product", "plan"]

_WIDTH = 16  # elements of a vector
_TILES = {
    "rows": (8, _WIDTH),
    "lanes": (8, _WIDTH),
    "dots": (4, 4),
    "plain": (4, _WIDTH),
}  # rows and columns of a work item
_VECTORS = (fl.float32, fl.float64)

Strides = tuple[int, ...]


class Product(NamedTuple):
    """A launch but for its addresses, which are those of out, a and b."""

    kernel: Any
    integers: list[int]
    items: int


def kind_of(printer: Any, dtype: Any, columns: int, inner: int, a: Strides, b: Strides) -> str:
    """Which kernel suits operands with these strides."""
    if printer.vector_type is None or dtype not in _VECTORS:
        return "plain"
    if b[2] == 1 and columns >= _WIDTH:
        return "rows"
    return "dots" if a[2] == 1 and b[1] == 1 and inner >= _WIDTH else "lanes"


def plan(printer: Any, dtype: Any, sizes: Strides, a: Strides, b: Strides, out: Strides) -> Product | None:
    """The launch of a product of (batch, rows, inner) and (batch, inner, columns); None where b has to be contiguous first.
    `sizes` are (batch, rows, columns, inner), and strides are in elements."""
    batch, rows, columns, inner = sizes
    kind = kind_of(printer, dtype, columns, inner, a, b)
    if kind == "plain" and b[2] != 1 and columns > 1:
        return None
    high, wide = _TILES[kind]
    tiles = (-(-rows // high), -(-columns // wide))
    kernel = printer.kernel(("product", kind, dtype), lambda s: _print(s, kind, dtype))
    return Product(kernel, [rows, columns, inner, *tiles, *a, *b, *out], batch * tiles[0] * tiles[1])


def _print(source: Any, kind: str, dtype: Any) -> None:
    out, a, b = (source.pointer(dtype) for _ in range(3))
    names = "rows columns inner row_tiles column_tiles a0 a1 a2 b0 b1 b2 o0 o1 o2".split()
    n = {name: source.integer() for name in names}
    high, wide = _TILES[kind]
    source.lines += [
        f"long tile = i, ct = tile % {n['column_tiles']}; tile /= {n['column_tiles']};",
        f"long rt = tile % {n['row_tiles']}, batch = tile / {n['row_tiles']};",
        f"long r0 = rt * {high}, c0 = ct * {wide};",
    ]
    write = {"rows": _rows, "lanes": _lanes, "dots": _dots, "plain": _plain}[kind]
    write(source, dtype, out, a, b, n, high, wide)


def _row_addresses(source: Any, n: dict[str, str], high: int) -> None:
    """Where the rows of a begin; those below the last are the last."""
    for r in range(high):
        row = f"(r0 + {r} < {n['rows']} ? r0 + {r} : {n['rows']} - 1)"
        source.lines.append(f"long a_{r} = batch * {n['a0']} + {row} * {n['a1']};")


def _store_row(source: Any, dtype: Any, out: str, n: dict[str, str], r: int, wide: int, aligned: bool) -> None:
    at = f"batch * {n['o0']} + (r0 + {r}) * {n['o1']} + c0 * {n['o2']}"
    source.lines.append(f"if (r0 + {r} < {n['rows']}) {{ long at = {at};")
    if aligned:
        source.lines.append(f"if ({n['o2']} == 1) vstore{wide}(s_{r}, 0, {out} + at); else")
    element = c99.storage_type(dtype)
    source.lines.append(f"{{ {element} row[{wide}]; vstore{wide}(s_{r}, 0, row);")
    count = str(wide) if aligned else f"({n['columns']} - c0 < {wide} ? {n['columns']} - c0 : {wide})"
    source.lines.append(f"for (long c = 0; c < {count}; ++c) {out}[at + c * {n['o2']}] = row[c]; }} }}")


def _rows(source: Any, dtype: Any, out: str, a: str, b: str, n: dict[str, str], high: int, wide: int) -> None:
    vector = source.printer.vector_type.format(c99.storage_type(dtype), wide)
    lines = source.lines
    lines.append(f"if (c0 > {n['columns']} - {wide}) c0 = {n['columns']} - {wide};")
    _row_addresses(source, n, high)
    lines.append(f"long pb = batch * {n['b0']} + c0;")
    lines.append(f"{vector} " + ", ".join(f"s_{r} = 0" for r in range(high)) + ";")
    lines.append(f"for (long k = 0; k < {n['inner']}; ++k) {{")
    lines.append(f"{vector} v = vload{wide}(0, {b} + pb + k * {n['b1']}); long ka = k * {n['a2']};")
    lines += [f"s_{r} += {a}[a_{r} + ka] * v;" for r in range(high)]
    lines.append("}")
    for r in range(high):
        _store_row(source, dtype, out, n, r, wide, True)


def _lanes(source: Any, dtype: Any, out: str, a: str, b: str, n: dict[str, str], high: int, wide: int) -> None:
    vector = source.printer.vector_type.format(c99.storage_type(dtype), wide)
    lines = source.lines
    _row_addresses(source, n, high)
    for c in range(wide):
        column = f"(c0 + {c} < {n['columns']} ? c0 + {c} : {n['columns']} - 1)"
        lines.append(f"long b_{c} = batch * {n['b0']} + {column} * {n['b2']};")
    lines.append(f"{vector} " + ", ".join(f"s_{r} = 0" for r in range(high)) + ";")
    lines.append(f"for (long k = 0; k < {n['inner']}; ++k) {{ long ka = k * {n['a2']}, kb = k * {n['b1']};")
    lines.append(f"{vector} v = ({vector})({', '.join(f'{b}[b_{c} + kb]' for c in range(wide))});")
    lines += [f"s_{r} += {a}[a_{r} + ka] * v;" for r in range(high)]
    lines.append("}")
    for r in range(high):
        _store_row(source, dtype, out, n, r, wide, False)


def _dots(source: Any, dtype: Any, out: str, a: str, b: str, n: dict[str, str], high: int, wide: int) -> None:
    element = c99.storage_type(dtype)
    vector = source.printer.vector_type.format(element, _WIDTH)
    lines = source.lines
    _row_addresses(source, n, high)
    for c in range(wide):
        column = f"(c0 + {c} < {n['columns']} ? c0 + {c} : {n['columns']} - 1)"
        lines.append(f"long b_{c} = batch * {n['b0']} + {column} * {n['b2']};")
    tile = [(r, c) for r in range(high) for c in range(wide)]
    lines.append(f"{vector} " + ", ".join(f"v_{r}{c} = 0" for r, c in tile) + ";")
    lines.append(f"long k = 0; for (; k + {_WIDTH} <= {n['inner']}; k += {_WIDTH}) {{")
    lines += [f"{vector} x_{r} = vload{_WIDTH}(0, {a} + a_{r} + k);" for r in range(high)]
    lines += [f"{vector} y_{c} = vload{_WIDTH}(0, {b} + b_{c} + k);" for c in range(wide)]
    lines += [f"v_{r}{c} += x_{r} * y_{c};" for r, c in tile]
    lines.append("}")
    for r, c in tile:
        halves = [f"v_{r}{c}.s{d:x}" for d in range(_WIDTH)]
        while len(halves) > 1:  # in pairs, which rounds less
            halves = [f"({x} + {y})" for x, y in zip(halves[::2], halves[1::2])]
        lines.append(f"{element} s_{r}{c} = {halves[0]};")
    lines.append(f"for (; k < {n['inner']}; ++k) {{")
    lines += [f"{element} p_{r} = {a}[a_{r} + k];" for r in range(high)]
    lines += [f"{element} q_{c} = {b}[b_{c} + k];" for c in range(wide)]
    lines += [f"s_{r}{c} += p_{r} * q_{c};" for r, c in tile]
    lines.append("}")
    for r, c in tile:
        at = f"batch * {n['o0']} + (r0 + {r}) * {n['o1']} + (c0 + {c}) * {n['o2']}"
        lines.append(f"if (r0 + {r} < {n['rows']} && c0 + {c} < {n['columns']}) {out}[{at}] = s_{r}{c};")


def _plain(source: Any, dtype: Any, out: str, a: str, b: str, n: dict[str, str], high: int, wide: int) -> None:
    total = c99.compute_type(dtype)
    x = c99.load(dtype, f"{a}[pa + r * {n['a1']} + k * {n['a2']}]")
    y = c99.load(dtype, f"{b}[pb + k * {n['b1']} + c]")
    source.lines += [
        f"long rn = {n['rows']} - r0 < {high} ? {n['rows']} - r0 : {high};",
        f"long cn = {n['columns']} - c0 < {wide} ? {n['columns']} - c0 : {wide};",
        f"{total} sums[{high}][{wide}];",
        f"for (int r = 0; r < {high}; ++r) for (int c = 0; c < {wide}; ++c) sums[r][c] = 0;",
        f"long pa = batch * {n['a0']} + r0 * {n['a1']}, pb = batch * {n['b0']} + c0;",
        f"if (rn == {high} && cn == {wide}) {{",
        f"for (long k = 0; k < {n['inner']}; ++k) {{",
        f"for (int r = 0; r < {high}; ++r) {{ {total} x = {x};",
        f"for (int c = 0; c < {wide}; ++c) sums[r][c] += x * {y}; }} }}",
        "} else {",
        f"for (long k = 0; k < {n['inner']}; ++k)",
        f"for (int r = 0; r < rn; ++r) {{ {total} x = {x};",
        f"for (int c = 0; c < cn; ++c) sums[r][c] += x * {y}; }} }}",
        "for (int r = 0; r < rn; ++r) for (int c = 0; c < cn; ++c)",
        f"{out}[batch * {n['o0']} + (r0 + r) * {n['o1']} + (c0 + c) * {n['o2']}] = {c99.stored(dtype, 'sums[r][c]')};",
    ]
