"""Functions that continue another one in the middle.

A resume function is the original code with a prologue in front: it takes one tuple, puts the value stack and the locals
back and jumps to the given instruction. Jumps are relative in these versions of Python, so the original bytes stay as
they are; only the exception table and the line table are shifted.
"""

from __future__ import annotations

import inspect
import opcode
import types
from typing import NamedTuple

from flambeau._dynamo.bytecode import CACHES, Handler, build_exception_table, decode, parse_exception_table

_OP = opcode.opmap


class _Assembler:
    def __init__(self) -> None:
        self.code = bytearray()

    def emit(self, name: str, arg: int = 0) -> None:
        op = _OP[name]
        if arg > 0xFFFFFF:
            self.code += bytes((_OP["EXTENDED_ARG"], arg >> 24))
        if arg > 0xFFFF:
            self.code += bytes((_OP["EXTENDED_ARG"], arg >> 16 & 0xFF))
        if arg > 0xFF:
            self.code += bytes((_OP["EXTENDED_ARG"], arg >> 8 & 0xFF))
        self.code += bytes((op, arg & 0xFF))
        self.code += bytes(2 * CACHES.get(op, 0))


def _location(instructions: int) -> bytes:
    """Entries of the line table without a line, for the given number of code units."""
    out = bytearray()
    while instructions > 0:
        length = min(instructions, 8)
        out.append(0x80 | 15 << 3 | length - 1)
        instructions -= length
    return bytes(out)


class ResumeCode(NamedTuple):
    """The code of a resume function."""

    code: types.CodeType
    start: int  # offset of the instruction that it continues at
    shift: int  # by how much the slots of the frame moved


class _Prologue(_Assembler):
    """Restores the stack and the slots of a frame from the tuple in the first local."""

    def __init__(self, code: types.CodeType) -> None:
        super().__init__()
        self.consts = list(code.co_consts)
        if code.co_freevars:
            self.emit("COPY_FREE_VARS", len(code.co_freevars))
        self.emit("RESUME", 0)

    def load(self, index: int) -> None:
        """Pushes an item of the tuple."""
        self.emit("LOAD_FAST", 0)
        self.emit("LOAD_CONST", len(self.consts))
        self.consts.append(index)
        self.emit("BINARY_SUBSCR")

    def restore(self, stack: list[bool], slots: list[int], has_exception: bool) -> None:
        position = 0
        for present in stack:
            if present:
                self.load(position)
                position += 1
            else:
                self.emit("PUSH_NULL")
        if has_exception:
            self.load(position + len(slots))
        # The first local holds the tuple, so its own value comes last.
        for i, slot in sorted(enumerate(slots), key=lambda pair: pair[1] == 0):
            self.load(position + i)
            self.emit("STORE_FAST", slot)
        if 0 not in slots:
            self.emit("DELETE_FAST", 0)


def make_resume_code(
    code: types.CodeType, offset: int, stack: list[bool], slots: list[int], raise_into: Handler | None = None
) -> ResumeCode | None:
    """The code of `code` continued at `offset`.

    The tuple holds the values of the stack (those whose entry in `stack` is true; the others are NULL), then those of
    the `slots` of the frame, and with `raise_into` an exception that is raised where that handler catches it. Returns
    None when the code has no slot for the tuple.
    """
    if code.co_flags & inspect.CO_GENERATOR:
        return None
    shift = 0
    if code.co_nlocals == 0:
        widened = _with_spare_local(code)
        if widened is None:
            return None
        code, slots, shift = widened, [slot + 1 for slot in slots], 1
    out = _Prologue(code)
    out.restore(stack, slots, raise_into is not None)
    handlers: list[Handler] = []
    if raise_into is not None:
        at = len(out.code)
        out.emit("RAISE_VARARGS", 1)
        handlers.append(Handler(at, at + 2, raise_into.target + at + 2, raise_into.depth, raise_into.push_offset))
    else:
        out.emit("JUMP_FORWARD", offset // 2)  # from the end of the jump to the instruction, in code units
    prologue = len(out.code)
    handlers += [
        Handler(h.start + prologue, h.end + prologue, h.target + prologue, h.depth, h.push_offset)
        for h in parse_exception_table(code.co_exceptiontable)
    ]
    resumed = code.replace(
        co_code=bytes(out.code) + code.co_code,
        co_consts=tuple(out.consts),
        co_argcount=1,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        co_stacksize=max(code.co_stacksize, len(stack) + 4) + 2,
        co_linetable=_location(prologue // 2) + code.co_linetable,
        co_exceptiontable=build_exception_table(handlers),
    )
    return ResumeCode(resumed, offset + prologue, shift)


_SHIFTED = frozenset(
    _OP[name]
    for name in "LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_CLASSDEREF MAKE_CELL LOAD_FAST STORE_FAST "
    "DELETE_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FROM_DICT_OR_DEREF".split()
    if name in _OP
)


def _with_spare_local(code: types.CodeType) -> types.CodeType | None:
    """The same code with one more local in front; its cells and free variables move up by one."""
    raw = bytearray(code.co_code)
    for instruction in decode(code).instructions:
        if instruction.opcode in _SHIFTED:
            position = instruction.next_offset - 2 - 2 * CACHES.get(instruction.opcode, 0)
            if instruction.arg >= 255:
                return None
            raw[position + 1] = instruction.arg + 1
        elif instruction.name.startswith(("LOAD_FAST", "STORE_FAST")):
            return None
    return code.replace(co_code=bytes(raw), co_varnames=("__state",), co_nlocals=1)
