"""A printed Triton kernel, and what a launch of it passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import flambeau as fl
from flambeau._inductor.ir import Buffer

if TYPE_CHECKING:
    from flambeau._inductor.triton_products import Matrix

__all__ = ["POINTERS", "TYPES", "Kernel", "Tuner"]

# dtype: Triton's name of a pointer to it, type to compute in
TYPES = {
    fl.float32: ("*fp32", "float32"),
    fl.float64: ("*fp64", "float64"),
    fl.bfloat16: ("*bf16", "float32"),
    fl.float16: ("*fp16", "float32"),
    fl.bool: ("*i1", "cond"),
    fl.uint8: ("*u8", "int64"),
    fl.int8: ("*i8", "int64"),
    fl.int16: ("*i16", "int64"),
    fl.int32: ("*i32", "int64"),
    fl.int64: ("*i64", "int64"),
    fl.float8_e4m3fn: ("*fp8e4nv", "float32"),
    fl.float8_e5m2: ("*fp8e5", "float32"),
}
POINTERS = {dtype: name for dtype, (name, _) in TYPES.items()}


@dataclass
class Kernel:
    """A printed kernel, and what a launch of it passes."""

    source: str  # with @NAME@ for the function's name
    pointers: list[tuple[Buffer, int]]  # buffer and offset in elements
    numbers: list[int]
    wide: bool  # numbers have 64 bits
    constants: dict[str, Any]
    warps: int
    grid: tuple[int, int, int]
    stages: int = 2
    registers: int | None = None  # the most of a thread; None leaves it to the compiler
    scratch: tuple[Buffer, ...] = ()  # buffers of its own, made before it runs
    waits: bool = False  # itself for the kernel before it

    def signature(self) -> dict[str, str]:
        names = {f"p{i}": POINTERS[b.dtype] for i, (b, _) in enumerate(self.pointers)}
        names |= {f"n{i}": "i64" if self.wide else "i32" for i in range(len(self.numbers))}
        return names | dict.fromkeys(self.constants, "constexpr")

    def multiples(self) -> list[bool]:
        """For each pointer and number whether it is known to be a multiple of sixteen."""
        aligned = [b.memory.aligned and offset * b.dtype.itemsize % 16 == 0 for b, offset in self.pointers]
        return aligned + [n % 16 == 0 for n in self.numbers]


class Tuner(Protocol):
    """Chooses among kernels, where there is one."""

    def product(self, product: Matrix, finished: list[Kernel], separate: list[Kernel]) -> int | None:
        """Which of the kernels that compute a product (or convolution) and what follows it; None: the call and separate
        kernels."""

    def loop(self, kernels: list[Kernel]) -> int:
        """Which of the kernels that compute the same, of which the first is the one that is taken without a tuner."""
