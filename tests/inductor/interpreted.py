"""Runs generated Triton kernels on the CPU, by Triton's interpreter, inside of ordinary compiled programs.

The interpreter has to be chosen before Triton is imported, so the tests run this file as a script: it reads names of
their cases, and answers each with a line that is empty or says what went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import traceback
from typing import Any, ClassVar

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import test_triton
import triton.language as tl
from triton.runtime import interpreter

import flambeau as fl
from flambeau._inductor import triton as printer
from flambeau._inductor import triton_math
from flambeau._inductor.steps import Location, LoopStep
from flambeau._inductor.tiles import Target
from flambeau._inductor.triton_build import TritonPrinter

_FOLDS = {
    "fold_mul": np.multiply, "fold_bitor": np.bitwise_or, "fold_bitand": np.bitwise_and, "fold_maximum": np.maximum,
    "fold_minimum": np.minimum,
}  # fmt: skip


def _reduce(self: Any, input: Any) -> Any:
    """Folds by whole arrays; Triton's own goes element by element."""
    (given,) = input
    made = _FOLDS[self.combine_fn.fn.__name__].reduce(given.handle.data, axis=self.axis)
    return (self.to_tensor(made, given.dtype),)


interpreter.ReduceOps.generic_reduce = _reduce


def _dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
    """Products of bfloat16 as numbers; Triton's own takes their bits for integers."""

    def wide(x: Any) -> Any:
        return (x.data.astype(np.uint32) << 16).view(np.float32) if x.dtype.scalar == tl.bfloat16 else x.data

    return interpreter.TensorHandle(np.matmul(wide(a), wide(b), dtype=d.data.dtype) + d.data, d.dtype.scalar)


interpreter.InterpreterBuilder.create_dot = _dot

_patch_lang = interpreter._patch_lang


def _patched(function: Any) -> Any:
    """Triton's own conversion of bounds of loops wants an older NumPy."""
    scope = _patch_lang(function)
    tl.tensor.__index__ = lambda self: int(self.handle.data.reshape(-1)[0])
    return scope


interpreter._patch_lang = _patched


class Library:
    """The device library's functions, by NumPy and the standard library."""

    def __getattr__(self, name: str) -> Any:
        import math

        names = {
            "rint": np.rint,
            "rsqrt": lambda x: 1 / np.sqrt(x),
            "pow": np.power,
            "fmod": np.fmod,
            "fast_inverse": np.reciprocal,
        }
        function = names.get(name) or getattr(np, name, None)
        if function is None:
            function = np.vectorize(getattr(math, name))

        def call(*args: Any) -> Any:
            arrays = [a.handle.data for a in args]
            with np.errstate(all="ignore"):
                made = np.asarray(function(*arrays)).astype(arrays[0].dtype)
            scalar = args[0].type.scalar
            blocks = any(a.type.is_block() for a in args)
            kind = tl.block_type(scalar, list(made.shape)) if blocks else scalar
            return tl.tensor(interpreter.TensorHandle(made, scalar), kind)

        return call


def _to_float8(dtype: Any, kind: Any) -> Any:
    """The conversion as the device makes it, by the CPU's; Triton's own cuts bits off."""

    def convert(x: Any) -> Any:
        given = np.ascontiguousarray(x.handle.data, np.float32)
        made = fl.tensor(given.reshape(-1)).to(dtype).view(fl.uint8).numpy().reshape(given.shape)
        return tl.tensor(interpreter.TensorHandle(made, kind), tl.block_type(kind, list(given.shape)))

    return convert


def _tensor(value: int, name: str) -> Any:
    kind = tl.str_to_ty(name, None)
    dtype = np.uint64 if name.startswith("*") else np.int64 if name == "i64" else np.int32
    return tl.tensor(interpreter.TensorHandle(np.array([value], dtype), kind), kind)


class _Launch:
    kept: ClassVar[list[Any]] = []  # callbacks live as long as programs may
    errors: ClassVar[list[str]] = []  # which a callback cannot raise

    def __init__(self, kernel: printer.Kernel) -> None:
        self.kernel = kernel
        self.pointers = kernel.pointers
        self.scratch = kernel.scratch
        text = printer.HEADER + kernel.source.replace("@NAME@", "kernel")
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
            file.write(text)
        space: dict[str, Any] = {"__name__": "kernel"}
        exec(compile(text, file.name, "exec"), space)
        space["libdevice"] = Library()
        space["gdc_wait"] = space["gdc_launch_dependents"] = lambda: None
        space["fast_inverse"], space["fast_exp2"] = space["libdevice"].fast_inverse, space["libdevice"].exp2
        space["to_e4m3"] = _to_float8(fl.float8_e4m3fn, tl.float8e4nv)
        space["to_e5m2"] = _to_float8(fl.float8_e5m2, tl.float8e5)
        self.function = space["kernel"].rewrite()
        os.unlink(file.name)

    def step(self, pointers: list[Location]) -> LoopStep:
        kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_int64))
        callback = kind(self.run)
        self.kept.append(callback)
        address = ctypes.cast(callback, ctypes.c_void_p).value
        return LoopStep(address, pointers, [0, *self.kernel.numbers], 1)

    def run(self, pointers: Any, numbers: Any) -> None:
        values = [pointers[i] for i in range(len(self.pointers))]
        values += [numbers[1 + i] for i in range(len(self.kernel.numbers))]
        try:
            run(self.function, values, self.kernel.signature(), self.kernel.constants, self.kernel.grid)
        except Exception:
            self.errors.append(f"{traceback.format_exc()}\n{self.kernel.source}")


def run(function: Any, values: list[int], signature: dict[str, str], constants: dict[str, int], grid: Any) -> None:
    """Runs a rewritten kernel for every program of a grid."""
    args = {name: _tensor(value, kind) for value, (name, kind) in zip(values, signature.items())}
    args |= {name: tl.constexpr(value) for name, value in constants.items()}
    scope = interpreter._patch_lang(function)
    try:
        interpreter.interpreter_builder.set_grid_dim(*grid)
        with np.errstate(all="ignore"):
            for x in range(grid[0]):
                for y in range(grid[1]):
                    for z in range(grid[2]):
                        interpreter.interpreter_builder.set_grid_idx(x, y, z)
                        function(**args)
    finally:
        scope.restore()


class InterpretedPrinter(TritonPrinter):
    """Triton kernels, interpreted; `target` may describe a small GPU, so that small tensors are divided as large ones are."""

    printed: ClassVar[list[str]] = []  # by all of them

    def __init__(self, target: Target) -> None:
        self.target = target
        self.float8 = True

    def knows(self, expr: Any, dtype: Any) -> bool:
        return triton_math.known(expr, dtype.is_floating_point)

    def launches_by_step(self, work: list[Any], steps: Any) -> list[Any]:
        made = printer.print_all(work, self.target, test_triton.Ends(self.target.processors > 8), steps)
        self.printed.extend(kernel.source for kernels in made for kernel in kernels or ())
        return [None if kernels is None else [_Launch(kernel) for kernel in kernels] for kernels in made]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        _Launch.errors.clear()
        _Launch.kept.clear()
        InterpretedPrinter.printed.clear()
        try:
            test_triton.check(line.strip(), InterpretedPrinter)
            said = "\n".join(_Launch.errors)
        except Exception:
            said = "\n".join([traceback.format_exc(), *_Launch.errors, *InterpretedPrinter.printed])
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
