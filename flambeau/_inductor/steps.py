"""The steps of a native program: what planning (`plan.py`) writes and `csrc/python/compiled.cpp` reads, field by field.

A step is read by the `kind` of its class and the names of its fields. Slots are places for tensors: inputs first, then
constants, then what the steps make. A location is a slot and an offset in bytes from its first element; a negative slot
~i is block i of the run's arena.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = [
    "AllocateStep", "ArenaTensorStep", "Block", "CallStep", "ConcurrentLoopsStep", "GraphSpec", "KernelStep", "Location",
    "LoopStep", "Offer", "ProgramSpec", "RandomStateStep", "ReleaseStep", "Step", "UnshareStep", "ViewStep",
]  # fmt: skip

Dims = tuple[int, ...]
Location = tuple[int, int]  # slot and bytes


@dataclass(slots=True)
class Block:
    """Memory of the arena, from the step that makes it to the last one that touches it."""

    extents: list[int]  # in bytes, of all that lie there one after the other
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return max(self.extents, default=0)


@dataclass(slots=True)
class AllocateStep:
    """Fresh memory."""

    kind: ClassVar[str] = "allocate"
    slot: int
    size: Dims
    stride: Dims
    dtype: Any


@dataclass(slots=True)
class ViewStep:
    """Another window on the memory of a slot, in elements of its own dtype."""

    kind: ClassVar[str] = "view"
    slot: int
    base: int
    size: Dims
    stride: Dims
    offset: int
    dtype: Any


@dataclass(slots=True)
class ArenaTensorStep:
    """A tensor in the arena, for operators."""

    kind: ClassVar[str] = "arena tensor"
    slot: int
    location: Location
    size: Dims
    stride: Dims
    dtype: Any


@dataclass(slots=True)
class UnshareStep:
    """Copies what an operator returned if somebody else holds it, because it is written over from here on."""

    kind: ClassVar[str] = "unshare"
    slot: int


@dataclass(slots=True)
class LoopStep:
    """A generated loop of the host."""

    kind: ClassVar[str] = "loop"
    address: int
    pointers: list[Location]
    numbers: list[int]  # the first is replaced by the number of threads
    work: int  # operations, which decide how many threads pay


@dataclass(slots=True)
class ConcurrentLoopsStep:
    """Independent loops that are too small for several threads: each thread runs some of them."""

    kind: ClassVar[str] = "concurrent loops"
    loops: list[LoopStep]


@dataclass(slots=True)
class KernelStep:
    """A generated kernel of an accelerator."""

    kind: ClassVar[str] = "kernel"
    function: int
    grid: tuple[int, int, int]
    threads: int
    shared: int  # bytes of shared memory
    pointers: list[Location]
    numbers: list[int]
    wide: bool  # the numbers have 64 bits
    waits: bool = False  # itself for the kernel before it, so that it may be started while that one ends
    launch: Callable[[tuple[int, ...]], None] | None = None  # of a device from outside, which gets the addresses


@dataclass(slots=True)
class RandomStateStep:
    """The seed and offset of a stream of random numbers, as a tensor of two integers."""

    kind: ClassVar[str] = "random state"
    slot: int


@dataclass(slots=True)
class Offer:
    """Memory of the arena that an operator may take for the result in a slot."""

    location: Location
    bytes: int
    slot: int


@dataclass(slots=True)
class CallStep:
    """An operator call."""

    kind: ClassVar[str] = "call"
    op: Any
    args: tuple[Any, ...]  # with tensors without data where tensors stand
    kwargs: dict[str, Any]
    tensors: list[int]  # slots of those tensors, in the order of the schema
    results: list[int]  # slots; -1 for what nobody uses
    scalars: list[tuple[int, int]]  # positions of scalar arguments, and slots of the tensors that hold them
    offers: list[Offer]
    strides: list[Dims]  # that results must have; empty where operators keep to the recorded ones


@dataclass(slots=True)
class ReleaseStep:
    """Lets go of slots."""

    kind: ClassVar[str] = "release"
    slots: list[int]


Step = (
    AllocateStep | ViewStep | ArenaTensorStep | UnshareStep | LoopStep | ConcurrentLoopsStep | KernelStep | RandomStateStep
    | CallStep | ReleaseStep
)  # fmt: skip


@dataclass(slots=True)
class ProgramSpec:
    """A whole program."""

    inputs: int
    slots: int
    constants: list[Any]  # tensors, then values kept from run to run
    steps: list[Step]
    outputs: list[int]  # slots; -1 for None
    written: list[int]  # inputs that the program writes
    device: Any  # of its kernels and of the memory that it allocates
    replay: bool  # the device records the program and runs it as one launch
    blocks: list[Block] = field(default_factory=list)  # of the arena
    # Pairs of bytes, of what is written over an operator's result and of that result: the first must not be larger.
    room: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class GraphSpec:
    """Forward and backward for one geometry of the inputs."""

    inputs: Sequence[Any]  # tensors that show the geometry
    grad_mode: bool
    forward: ProgramSpec
    results: int  # outputs of forward that the caller gets; the rest is saved for backward
    backward: ProgramSpec | None = None
    gradients_of: Sequence[int] = ()  # inputs, in the order of backward's outputs
    gradients_from: Sequence[int] = ()  # results, in the order of backward's last inputs
    gradient_strides: Sequence[Dims] = ()  # of those inputs of backward
    families: Sequence[int] = ()  # of the same results: the input that each is a view of, or a number that views share
    recorded: Callable[..., Any] | None = None  # gradients by the original function, for derivatives of derivatives
