"""Kernels in C-like languages: with memory, a copy and a `KernelPrinter` of its own, a device has every operator.

A printer subclasses `KernelPrinter` and says how kernels look (`kernel_head`, `index`), how a source is built (`build`) and
how a kernel is launched (`launch`). Pointwise and reduction hooks, optimizer updates, products and the other primitives are
printed here and kept by what they compute; compile() prints its groups in the same language (`_inductor/c_groups.py`).

A kernel takes pointers, then 64-bit integers, then real numbers. Sizes and strides are among the integers, so that one
kernel serves all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.backends import c99, primitives

__all__ = ["KernelPrinter", "Source"]


class Source:
    """A kernel under construction: its parameters, the functions it needs, and its body."""

    def __init__(self, printer: KernelPrinter) -> None:
        self.printer = printer
        self.pointers: list[tuple[str, str]] = []  # type and name
        self.integers: list[str] = []
        self.reals: list[str] = []
        self.functions: dict[str, str] = {}
        self.expression = c99.CExpression(self.functions, printer.single_suffix)
        self.lines = self.expression.lines

    def pointer(self, dtype: Any) -> str:
        name = f"p{len(self.pointers)}"
        self.pointers.append((c99.storage_type(dtype), name))
        return name

    def integer(self) -> str:
        self.integers.append(f"n{len(self.integers)}")
        return self.integers[-1]

    def real(self) -> str:
        self.reals.append(f"r{len(self.reals)}")
        return self.reals[-1]

    def text(self, name: str = "kernel_function") -> str:
        printer = self.printer
        parameters = [printer.pointer_type.format(t) + f" {n}" for t, n in self.pointers]
        parameters += [f"long {n}" for n in self.integers] + [f"{printer.real_type} {n}" for n in self.reals]
        head = f"{printer.kernel_head} {name}({', '.join(parameters)}, long items)"
        body = "\n".join(f"  {line}" for line in self.lines)
        functions = "\n".join(f"{printer.function_head} {f}" for f in (*_halves(), *self.functions.values()))
        start = f"  long i = {printer.index};\n  if (i >= items) return;"
        return f"{printer.header}\n{functions}\n{head}\n{{\n{start}\n{body}\n}}\n"


def _halves() -> list[str]:
    parts = c99.HALVES.strip().replace("\n  ", " ").splitlines()
    return [p for p in parts if p]


def collapsed(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Sizes and strides with neighbouring dimensions joined where all operands lie so."""
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        own = [s[d] for s in strides]
        if sizes and all(k[-1] == s * n for k, s in zip(merged, own)):
            sizes[-1] *= n
            for k, s in zip(merged, own):
                k[-1] = s
        else:
            sizes.append(n)
            for k, s in zip(merged, own):
                k.append(s)
    return sizes, merged


class KernelPrinter:
    """Base of printers. Everything that is not raised here follows from the attributes and the two methods."""

    header = ""  # before everything else
    kernel_head = "void"  # before a kernel's name
    function_head = "static"  # before a helper
    pointer_type = "{}*"
    real_type = "double"  # of numbers among the parameters
    index = "i"  # the number of the work item
    single_suffix = "f"  # of library functions of float
    vector_type: str | None = None  # of an element type and a length, where there are OpenCL's vectors: "{}{}"
    elements_per_item = 1  # that a work item of an optimizer step walks; a CPU wants many, a GPU one
    walks_rows = False  # a work item of a compiled loop walks a whole row, as the compilers of CPUs want it

    def __init__(self) -> None:
        self.device: Any = None
        self._kernels: dict[Any, Any] = {}
        self._groups: dict[Any, Any] = {}
        self.steps: dict[Any, Any] = {}  # of optimizers, by the memory they are on (`updates.py`)

    # ---------------------------------------------------------------- what a device brings

    def build(self, source: str, name: str) -> Any:
        """A kernel that can be launched, of a source that defines it under a name."""
        raise NotImplementedError

    def launch(
        self, kernel: Any, pointers: Sequence[int], integers: Sequence[int], reals: Sequence[float], items: int
    ) -> None:
        """Runs a kernel for `items` work items, after all that was launched before."""
        raise NotImplementedError

    def bound(self, kernel: Any, pointers: int, integers: Sequence[int], items: int) -> Any:
        """A launch that native programs make without Python: a capsule "flambeau.launch" (csrc/python/native_launch.h) for a
        kernel with so many pointers, which come at each run; None where there is no such thing."""
        return None

    # ---------------------------------------------------------------- what follows

    def attach(self, device: Any) -> None:
        """Gives a device its hooks and primitives."""
        self.device = device
        device.pointwise = self.pointwise
        device.reduction = self.reduction
        device.update = self.update
        primitives.install(device, self)
        from flambeau.backends import compilation

        compilation.announce(device.name, self)

    def kernel(self, key: Any, make: Callable[[Source], None]) -> Any:
        """The kernel known by a key, printed and built when it is new."""
        kernel = self._kernels.get(key)
        if kernel is None:
            source = Source(self)
            make(source)
            kernel = self._kernels[key] = self.build(source.text(), "kernel_function")
        return kernel

    def pointwise(self, expr: Any, operands: dict[str, Any], out: Any, dtype: Any) -> None:
        tensors = [(n, v) for n, v in operands.items() if isinstance(v, fl.Tensor)]
        numbers = [(n, v) for n, v in operands.items() if not isinstance(v, fl.Tensor)]
        sizes, strides = collapsed(out.shape, [out.stride(), *(t.stride() for _, t in tensors)])
        ctype = c99.compute_type(dtype)
        flat = len(sizes) <= 1 and all(not s or s[-1] == 1 for s in strides)
        key = (
            expr.key, ctype, out.dtype, tuple((n, t.dtype) for n, t in tensors), tuple(n for n, _ in numbers),
            -1 if flat else len(sizes),
        )  # fmt: skip
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self.kernel(
                key,
                lambda s: _print_pointwise(s, expr, tensors, [n for n, _ in numbers], out.dtype, ctype, sizes, flat),
            )
        integers = [] if flat else [*sizes, *(x for s in strides for x in s)]
        reals: list[float] = []
        for _, v in numbers:
            number = _number(v)
            if ctype == "long":
                integers.append(_wrapped(int(number)))
            else:
                reals.append(float(number))
        self.launch(kernel, [out.data_ptr(), *(t.data_ptr() for _, t in tensors)], integers, reals, out.numel())

    def reduction(self, plan: Any, source: Any, out: Any) -> None:
        from flambeau.backends.reductions import run

        run(self, plan, source, out)

    def update(self, plan: Any, lists: dict[str, list[Any]], numbers: list[dict[str, float]]) -> None:
        """A launch for many tensors: all new values of an element at once."""
        from flambeau.backends import updates

        updates.run(self, plan, lists, numbers)


def _number(value: Any) -> Any:
    if isinstance(value, complex):
        raise NotImplementedError("complex numbers")
    return 0 if value is None else value


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def offsets(source: Source, sizes: list[str], strides: list[list[str]], index: str = "i") -> list[str]:
    """Statements that take an index apart, and the offset of each operand."""
    source.lines.append(f"long rest = {index};")
    places = [f"o{k}" for k in range(len(strides))]
    source.lines += [f"long {p} = 0;" for p in places]
    for d in range(len(sizes) - 1, -1, -1):
        last = d == 0
        source.lines.append(f"{{ long at = {'rest' if last else f'rest % {sizes[d]}'};")
        source.lines += [f"{p} += at * {s[d]};" for p, s in zip(places, strides)]
        source.lines.append("}" if last else f"rest /= {sizes[d]}; }}")
    return places


def _print_pointwise(
    source: Source, expr: Any, tensors: Any, numbers: list[str], out: Any, ctype: str, sizes: Any, flat: bool
) -> None:
    target = source.pointer(out)
    pointers = [source.pointer(t.dtype) for _, t in tensors]
    if flat:
        places = ["i"] * (1 + len(tensors))
    else:
        named = [source.integer() for _ in sizes]
        strides = [[source.integer() for _ in sizes] for _ in range(1 + len(tensors))]
        places = offsets(source, named, strides)
    values: dict[str, str] = {}
    for (name, t), p, place in zip(tensors, pointers, places[1:]):
        source.lines.append(f"{ctype} v_{name} = ({ctype}){c99.load(t.dtype, f'{p}[{place}]')};")
        values[name] = f"v_{name}"
    for name in numbers:
        values[name] = source.integer() if ctype == "long" else f"(({ctype}){source.real()})"
    result = source.expression.visit(expr, lambda node: values[node.args[0]], ctype)
    source.lines.append(f"{target}[{places[0]}] = {c99.stored(out, result)};")


def numel(sizes: Sequence[int]) -> int:
    return math.prod(sizes)
