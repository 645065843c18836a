"""The primitives that are no expressions, as kernels of a C-like language: products, reads and writes by index, scans, sorts.

Each is a work item for an element of the result, or for a line of it where the order matters. Inputs are made contiguous
first; products read theirs with any strides.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.backends import c99, products
from flambeau.backends.records import empty_as, shape_of

__all__ = ["install"]


def install(device: Any, printer: Any) -> None:
    """Registers the kernels of all primitives."""
    kernels = _Primitives(printer)
    for name, kernel in {
        "mm": kernels.mm, "bmm": kernels.bmm, "gather": kernels.gather, "scatter.src": kernels.scatter,
        "scatter_add": kernels.scatter_add, "nonzero": kernels.nonzero, "cumsum": kernels.cumsum,
        "cumprod": kernels.cumprod, "sort": kernels.sort, "sort.stable": kernels.sort, "ones_like": kernels.ones_like,
    }.items():  # fmt: skip
        device.kernel(name)(kernel)


def _operator(name: str) -> Any:
    return fl._C._operator_object(name)


class _Primitives:
    def __init__(self, printer: Any) -> None:
        self.printer = printer

    def ones_like(self, self_: Any, **options: Any) -> Any:
        """The gradient that every backward begins with, without a detour over its definition."""
        return fl.empty_like(self_, **options).fill_(1)

    # ---------------------------------------------------------------- products

    def mm(self, a: Any, b: Any) -> Any:
        out = empty_as(shape_of(_operator("mm"), (a, b), {}), a.device)
        self._product(a.unsqueeze(0), b.unsqueeze(0), out.unsqueeze(0))
        return out

    def bmm(self, a: Any, b: Any) -> Any:
        out = empty_as(shape_of(_operator("bmm"), (a, b), {}), a.device)
        self._product(a, b, out)
        return out

    def _product(self, a: Any, b: Any, out: Any) -> None:
        if not out.numel():
            return
        sizes = (*out.shape, a.shape[2])
        product = products.plan(self.printer, out.dtype, sizes, a.stride(), b.stride(), out.stride())
        if product is None:
            b = b.contiguous()
            product = products.plan(self.printer, out.dtype, sizes, a.stride(), b.stride(), out.stride())
        assert product is not None
        pointers = [out.data_ptr(), a.data_ptr(), b.data_ptr()]
        self.printer.launch(product.kernel, pointers, product.integers, [], product.items)

    # ---------------------------------------------------------------- by index

    def gather(self, self_: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
        out = empty_as(shape_of(_operator("gather"), (self_, dim, index), {}), self_.device)
        if not out.numel():
            return out
        if self_.dim() == 0 or index.dim() == 0:
            return out.copy_(self_.reshape(-1)[:1].expand(out.numel()).reshape(out.shape))
        dim %= self_.dim()
        self._by_index("gather", out, self_, index, dim, self_.shape[dim])
        return out

    def scatter(self, self_: Any, dim: int, index: Any, src: Any) -> Any:
        return self._scatter("scatter.src", self_, dim, index, src)

    def scatter_add(self, self_: Any, dim: int, index: Any, src: Any) -> Any:
        return self._scatter("scatter_add", self_, dim, index, src)

    def _scatter(self, name: str, self_: Any, dim: int, index: Any, src: Any) -> Any:
        shape_of(_operator(name), (self_, dim, index, src), {})  # its checks
        if self_.dim() == 0:
            return self._scatter(name, self_.reshape(1), 0, index.reshape(-1), src.reshape(-1)).reshape(())
        out = self_.clone(memory_format=fl.contiguous_format)
        index, src = (t.reshape(1) if t.dim() == 0 else t for t in (index, src))
        if index.numel():
            dim %= self_.dim()
            self._by_index("add" if name == "scatter_add" else "put", out, src, index, dim, out.shape[dim])
        return out

    def _by_index(self, what: str, out: Any, source: Any, index: Any, dim: int, size: int) -> None:
        """Walks the lines of an index along a dimension; each is one work item, so that writes never meet."""
        self._check_range(index, size, what)
        ndim = index.dim()
        lead = out.stride() if what != "gather" else source.stride()
        other = source.stride() if what != "gather" else out.stride()
        rest = [d for d in range(ndim) if d != dim]
        sizes = [index.shape[d] for d in rest]
        integers = [index.shape[dim], size, *(t[dim] for t in (lead, other, index.stride())), *sizes]
        for strides in (lead, other, index.stride()):
            integers += [strides[d] for d in rest]
        kernel = self.printer.kernel(
            ("index", what, out.dtype, index.dtype, ndim),
            lambda s: _print_index(s, what, out.dtype, index.dtype, ndim - 1),
        )
        pointers = [(out if what != "gather" else source), (source if what != "gather" else out), index]
        self.printer.launch(kernel, [t.data_ptr() for t in pointers], integers, [], math.prod(sizes))

    def _check_range(self, index: Any, size: int, what: str) -> None:
        low, high = int(fl.amin(index)), int(fl.amax(index))
        if low < -size or high >= size:
            wrong = low if low < -size else high
            raise IndexError(f"[{what}] expected an index in [{-size}, {size - 1}], got {wrong}")

    def nonzero(self, self_: Any) -> Any:
        mask = (self_ != 0).reshape(-1).to(fl.int64)
        count = int(mask.sum()) if mask.numel() else 0
        if not count:
            return fl.empty((0, self_.dim()), dtype=fl.int64, device=self_.device)
        numbers = fl.arange(mask.numel(), device=self_.device)
        places = fl.where(mask != 0, fl.cumsum(mask, 0) - 1, count)
        room = fl.empty(count + 1, dtype=fl.int64, device=self_.device)
        flat = fl.scatter(room, 0, places, numbers)[:count]
        columns = []
        for d in range(self_.dim()):
            inner = math.prod(self_.shape[d + 1 :])
            columns.append(fl.remainder(fl.floor_divide(flat, inner), self_.shape[d]))
        if not columns:
            return fl.empty((count, 0), dtype=fl.int64, device=self_.device)
        return fl.stack(columns, 1)

    # ---------------------------------------------------------------- along lines

    def cumsum(self, self_: Any, dim: int, *, dtype: Any = None) -> Any:
        return self._scan("cumsum", self_, dim, dtype, "+", 0)

    def cumprod(self, self_: Any, dim: int, *, dtype: Any = None) -> Any:
        return self._scan("cumprod", self_, dim, dtype, "*", 1)

    def _scan(self, name: str, self_: Any, dim: int, dtype: Any, combine: str, start: int) -> Any:
        out = empty_as(shape_of(_operator(name), (self_, dim), {"dtype": dtype}), self_.device)
        if not out.numel():
            return out
        if self_.dim() == 0:
            return out.copy_(self_)
        source = self_.to(out.dtype).contiguous()
        result = out if out.is_contiguous() else fl.empty(out.shape, dtype=out.dtype, device=out.device)
        kernel = self.printer.kernel(("scan", name, out.dtype), lambda s: _print_scan(s, out.dtype, combine, start))
        length, inner, lines = _lines(source, dim)
        self.printer.launch(kernel, [result.data_ptr(), source.data_ptr()], [length, inner], [], lines)
        return out if result is out else out.copy_(result)

    def sort(self, self_: Any, dim: int = -1, descending: bool = False, *, stable: Any = None) -> Any:
        values = self_.clone(memory_format=fl.contiguous_format)
        indices = fl.empty(self_.shape, dtype=fl.int64, device=self_.device)
        if self_.dim() == 0 or not self_.numel():
            return values, indices.fill_(0)
        length, inner, lines = _lines(values, dim)
        room = [fl.empty_like(values), fl.empty_like(indices)]
        kernel = self.printer.kernel(
            ("sort", self_.dtype, descending), lambda s: _print_sort(s, self_.dtype, descending)
        )
        pointers = [t.data_ptr() for t in (values, indices, *room)]
        self.printer.launch(kernel, pointers, [length, inner], [], lines)
        return values, indices


def _lines(t: Any, dim: int) -> tuple[int, int, int]:
    """The length of lines along a dimension, the distance of their elements, and how many there are."""
    dim %= t.dim()
    return t.shape[dim], math.prod(t.shape[dim + 1 :]), t.numel() // t.shape[dim]


def _print_index(source: Any, what: str, dtype: Any, index_type: Any, rest: int) -> None:
    indexed, other, index = source.pointer(dtype), source.pointer(dtype), source.pointer(index_type)
    length, size, step, other_step, index_step = (source.integer() for _ in range(5))
    sizes = [source.integer() for _ in range(rest)]
    strides = [[source.integer() for _ in range(rest)] for _ in range(3)]
    lines = source.lines
    lines.append("long rest = i, pi = 0, po = 0, px = 0;")
    for d in range(rest - 1, -1, -1):
        lines.append(f"{{ long at = rest % {sizes[d]}; rest /= {sizes[d]};")
        lines.append(f"pi += at * {strides[0][d]}; po += at * {strides[1][d]}; px += at * {strides[2][d]}; }}")
    lines.append(f"for (long k = 0; k < {length}; ++k) {{ long target = {index}[px + k * {index_step}];")
    lines.append(f"if (target < 0) target += {size};")
    inner, outer = f"{indexed}[pi + target * {step}]", f"{other}[po + k * {other_step}]"
    if what == "gather":
        lines.append(f"{outer} = {inner}; }}")
    elif what == "put":
        lines.append(f"{inner} = {outer}; }}")
    else:
        total = f"{c99.load(dtype, inner)} + {c99.load(dtype, outer)}"
        lines.append(f"{inner} = {c99.stored(dtype, total)}; }}")


def _print_scan(source: Any, dtype: Any, combine: str, start: int) -> None:
    out, source_pointer = source.pointer(dtype), source.pointer(dtype)
    length, inner = source.integer(), source.integer()
    ctype = c99.compute_type(dtype)
    source.lines += [
        f"long base = i / {inner} * {inner} * {length} + i % {inner}; {ctype} total = {start};",
        f"for (long k = 0; k < {length}; ++k) {{ total = total {combine} {c99.load(dtype, f'{source_pointer}[base + k * {inner}]')};",
        f"{out}[base + k * {inner}] = {c99.stored(dtype, 'total')}; }}",
    ]


def _print_sort(source: Any, dtype: Any, descending: bool) -> None:
    """Merges runs of growing length; nan is larger than everything, and equal elements keep their order."""
    values, indices = source.pointer(dtype), source.pointer(fl.int64)
    room, room_indices = source.pointer(dtype), source.pointer(fl.int64)
    length, inner = source.integer(), source.integer()
    ctype = c99.compute_type(dtype)
    a, b = c99.load(dtype, f"{values}[base + p * {inner}]"), c99.load(dtype, f"{values}[base + q * {inner}]")
    nan = "0" if ctype == "long" else "(x != x && y == y)", "0" if ctype == "long" else "(y != y && x == x)"
    later = f"(y > x || {nan[1]})" if descending else f"(y < x || {nan[0]})"
    source.lines += [
        f"long base = i / {inner} * {inner} * {length} + i % {inner};",
        f"for (long k = 0; k < {length}; ++k) {indices}[base + k * {inner}] = k;",
        f"for (long width = 1; width < {length}; width *= 2) {{",
        f"for (long first = 0; first < {length}; first += 2 * width) {{",
        f"long middle = first + width < {length} ? first + width : {length};",
        f"long end = first + 2 * width < {length} ? first + 2 * width : {length};",
        "long p = first, q = middle;",
        "for (long k = first; k < end; ++k) { int take = p < middle;",
        f"if (p < middle && q < end) {{ {ctype} x = {a}, y = {b}; take = !{later}; }}",
        "long from = take ? p++ : q++;",
        f"{room}[base + k * {inner}] = {values}[base + from * {inner}];",
        f"{room_indices}[base + k * {inner}] = {indices}[base + from * {inner}]; }} }}",
        f"for (long k = 0; k < {length}; ++k) {{ {values}[base + k * {inner}] = {room}[base + k * {inner}];",
        f"{indices}[base + k * {inner}] = {room_indices}[base + k * {inner}]; }} }}",
    ]
