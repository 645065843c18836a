"""Code objects taken apart: instructions, jump targets and exception tables of CPython 3.11, 3.12 and 3.13."""

from __future__ import annotations

import functools
import opcode
import sys
import types
from typing import Any, NamedTuple

VERSION = sys.version_info[:2]
_EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]
_HAS_ARG = opcode.HAVE_ARGUMENT
_RELATIVE = frozenset(opcode.hasjrel)


def _cache_entries() -> dict[int, int]:
    entries: Any = getattr(opcode, "_inline_cache_entries", None)
    if isinstance(entries, dict):  # 3.13: by name
        return {opcode.opmap[name]: count for name, count in entries.items() if name in opcode.opmap}
    return {op: count for op, count in enumerate(entries or ()) if count}


CACHES = _cache_entries()


class Instruction:
    """One instruction; `target` is the index of the instruction it jumps to."""

    __slots__ = ("offset", "opcode", "name", "arg", "value", "target", "next_offset", "line")

    def __init__(self, offset: int, op: int, arg: int) -> None:
        self.offset = offset
        self.opcode = op
        self.name = opcode.opname[op]
        self.arg = arg
        self.value: Any = None
        self.target = -1
        self.next_offset = offset + 2 + 2 * CACHES.get(op, 0)
        self.line = 0

    def __repr__(self) -> str:
        return f"{self.offset} {self.name} {self.arg} {self.value!r}"


class Handler(NamedTuple):
    """An entry of the exception table, in byte offsets."""

    start: int
    end: int
    target: int
    depth: int
    push_offset: bool


class Decoded(NamedTuple):
    instructions: list[Instruction]
    index_of: dict[int, int]  # byte offset -> index
    handlers: list[Handler]
    names: tuple[str, ...]  # of fast locals, cells and free variables
    cells: frozenset[int]  # indices of cells made by the function


def local_names(code: types.CodeType) -> tuple[str, ...]:
    """Names of the slots of a frame, in order."""
    cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    return (*code.co_varnames, *cells, *code.co_freevars)


@functools.lru_cache(4096)
def decode(code: types.CodeType) -> Decoded:
    raw = code.co_code
    instructions: list[Instruction] = []
    index_of: dict[int, int] = {}
    extended, start = 0, -1
    position = 0
    while position < len(raw):
        op, arg = raw[position], raw[position + 1] | extended
        if start < 0:
            start = position
        if op == _EXTENDED_ARG:
            extended = arg << 8
            position += 2
            continue
        instruction = Instruction(start, op, arg if op >= _HAS_ARG or VERSION >= (3, 13) else 0)
        instruction.next_offset = position + 2 + 2 * CACHES.get(op, 0)
        for offset in range(start, position + 2, 2):
            index_of[offset] = len(instructions)
        instructions.append(instruction)
        position = instruction.next_offset
        extended, start = 0, -1
    names = local_names(code)
    lines: dict[int, int] = {}
    line = code.co_firstlineno
    for begin, end, number in code.co_lines():
        for offset in range(begin, end, 2):
            lines[offset] = number if number is not None else line
        line = number if number is not None else line
    for instruction in instructions:
        instruction.line = lines.get(
            instruction.next_offset - 2 - 2 * CACHES.get(instruction.opcode, 0), code.co_firstlineno
        )
        _resolve(instruction, code, names, index_of)
    cell_names = set(code.co_cellvars)
    cells = frozenset(i for i, name in enumerate(names[: len(names) - len(code.co_freevars)]) if name in cell_names)
    return Decoded(instructions, index_of, parse_exception_table(code.co_exceptiontable), names, cells)


def _resolve(instruction: Instruction, code: types.CodeType, names: tuple[str, ...], index_of: dict[int, int]) -> None:
    name, arg = instruction.name, instruction.arg
    if instruction.opcode in _RELATIVE:
        backward = "BACKWARD" in name
        offset = instruction.next_offset + (-2 * arg if backward else 2 * arg)
        instruction.target = index_of[offset]
    if name == "LOAD_CONST" or name == "RETURN_CONST" or name == "KW_NAMES":
        instruction.value = code.co_consts[arg]
    elif name == "LOAD_GLOBAL" or (name == "LOAD_ATTR" and VERSION >= (3, 12)):
        instruction.value = code.co_names[arg >> 1]
    elif name == "LOAD_SUPER_ATTR":
        instruction.value = code.co_names[arg >> 2]
    elif instruction.opcode in _NAMED:
        instruction.value = code.co_names[arg]
    elif instruction.opcode in _LOCAL:
        instruction.value = names[arg] if arg < len(names) else None


_NAMED = frozenset(opcode.hasname)
_LOCAL = frozenset(opcode.haslocal) | frozenset(opcode.hasfree)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    value = byte & 63
    while byte & 64:
        position += 1
        byte = data[position]
        value = value << 6 | byte & 63
    return value, position + 1


def parse_exception_table(data: bytes) -> list[Handler]:
    handlers = []
    position = 0
    while position < len(data):
        start, position = _varint(data, position)
        length, position = _varint(data, position)
        target, position = _varint(data, position)
        depth, position = _varint(data, position)
        handlers.append(Handler(start * 2, (start + length) * 2, target * 2, depth >> 1, bool(depth & 1)))
    return handlers


def _encode(value: int, first: bool) -> bytes:
    parts = [value & 63]
    value >>= 6
    while value:
        parts.append(value & 63)
        value >>= 6
    parts.reverse()
    out = [part | 64 for part in parts[:-1]] + [parts[-1]]
    if first:
        out[0] |= 128
    return bytes(out)


def build_exception_table(handlers: list[Handler]) -> bytes:
    out = b""
    for handler in handlers:
        out += _encode(handler.start // 2, True)
        out += _encode((handler.end - handler.start) // 2, False)
        out += _encode(handler.target // 2, False)
        out += _encode(handler.depth << 1 | int(handler.push_offset), False)
    return out


def find_handler(decoded: Decoded, offset: int) -> Handler | None:
    for handler in decoded.handlers:
        if handler.start <= offset < handler.end:
            return handler
    return None


def runs_code_on_exit(decoded: Decoded, offset: int) -> bool:
    """Whether a GeneratorExit raised at an instruction would run code of the program: a finally or a wide except."""
    instructions = decoded.instructions
    for _ in range(20):
        handler = find_handler(decoded, offset)
        if handler is None:
            return False
        index = decoded.index_of[handler.target]
        names = [instruction.name for instruction in instructions[index : index + 3]]
        if names[0] == "CALL_INTRINSIC_1":  # from 3.12 on, the handler for StopIteration around the whole body
            return False
        if names[0] == "CLEANUP_THROW":  # of `yield from`
            offset = instructions[index].offset
            continue
        if names == ["COPY", "POP_EXCEPT", "RERAISE"]:
            offset = instructions[index + 2].offset
            continue
        if names[0] != "PUSH_EXC_INFO":
            return True
        index += 1
        # except A: ... except (B, C): ... and at last the exception goes on.
        while instructions[index].name in ("LOAD_GLOBAL", "LOAD_ATTR", "BUILD_TUPLE"):
            while instructions[index].name != "CHECK_EXC_MATCH":
                if instructions[index].name not in ("LOAD_GLOBAL", "LOAD_ATTR", "BUILD_TUPLE"):
                    return True
                if instructions[index].value in ("BaseException", "GeneratorExit"):
                    return True
                index += 1
            index = instructions[index + 1].target
            if index < 0:
                return True
        if instructions[index].name != "RERAISE":
            return True
        offset = instructions[index].offset
    return True
