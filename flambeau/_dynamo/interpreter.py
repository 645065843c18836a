"""The symbolic interpreter: runs bytecode on stand-ins, one `Frame` for each function.

A handler takes the frame and the instruction. Exceptions of the program travel as `UserError`; `Unsupported` travels to
the root frame, where the capture is cut.
"""

from __future__ import annotations

import builtins
import collections
import importlib
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from flambeau._dynamo import attributes, breaks, calls, config
from flambeau._dynamo.breaks import SkipFrame, Unsupported, UserError
from flambeau._dynamo.bytecode import VERSION, Decoded, Handler, Instruction, decode, find_handler
from flambeau._dynamo.calls import native
from flambeau._dynamo.sizes import SYMBOLIC, plain
from flambeau._dynamo.source import Source
from flambeau._dynamo.trace import MISSING, Tracer
from flambeau._dynamo.traced import NULL, Lazy, TracedNumber, TracedTensor

_RETURN = object()
_YIELD = object()
OPS: dict[str, Callable[[Frame, Instruction], Any]] = {}


def _op(*names: str) -> Callable[[Callable[[Any, Instruction], Any]], Callable[[Any, Instruction], Any]]:
    def register(handler: Callable[[Any, Instruction], Any]) -> Callable[[Any, Instruction], Any]:
        for name in names:
            OPS[name] = handler
        return handler

    return register


class Frame:
    __slots__ = (
        "tracer", "code", "decoded", "globals", "closure", "locals", "stack", "pc", "current", "keywords", "result",
        "parent", "root", "step", "function", "raised_at",
    )  # fmt: skip

    def __init__(self, tracer: Tracer, code: types.CodeType, global_names: dict[str, Any], closure: Any) -> None:
        self.tracer = tracer
        self.code = code
        self.decoded: Decoded = decode(code)
        self.globals = global_names
        self.closure = closure
        self.locals: list[Any] = [NULL] * len(self.decoded.names)
        self.stack: list[Any] = []
        self.pc = 0
        self.current: Instruction = self.decoded.instructions[0]
        self.keywords: tuple[str, ...] = ()
        self.result: Any = None
        self.parent: Frame | None = None
        self.root = False
        self.step = 0
        self.function: Any = None
        self.raised_at: list[int] = []

    @classmethod
    def enter(cls, tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        """A frame for an inlined call."""
        frame = cls(tracer, function.__code__, function.__globals__, function.__closure__)
        frame.function = function
        frame.bind(function, args, kwargs)
        known = tracer.known.get(id(function))
        if known is not None and function.__closure__:
            # Cells of an outside function are outside themselves.
            place = known[1]
            for i, cell in enumerate(function.__closure__):
                if id(cell) not in tracer.known and id(cell) not in tracer.fresh:
                    if place.kind == "constant":
                        tracer._know(cell, tracer.sources.constant(cell))
                    else:
                        tracer._know(cell, place.attribute("__closure__").item(i))
        return frame

    def bind(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Arguments into the first locals, as a call does."""
        code = self.code
        tracer = self.tracer
        positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
        local = self.locals
        known = tracer.known.get(id(function))
        count = len(args)
        if count > positional:
            if not code.co_flags & 0x04:
                raise Unsupported(breaks.EXCEPTION, f"wrong number of arguments for {function.__qualname__}")
            local[positional + keyword_only] = args[positional:]
            args = args[:positional]
        elif code.co_flags & 0x04:
            local[positional + keyword_only] = ()
        local[: len(args)] = args
        names = code.co_varnames
        extra: dict[str, Any] | None = {} if code.co_flags & 0x08 else None
        for name, value in kwargs.items():
            try:
                index = names.index(name, code.co_posonlyargcount, positional + keyword_only)
            except ValueError:
                if extra is None:
                    raise Unsupported(
                        breaks.EXCEPTION, f"unexpected argument {name} of {function.__qualname__}"
                    ) from None
                extra[name] = value
                continue
            if local[index] is not NULL:
                raise Unsupported(breaks.EXCEPTION, f"argument {name} of {function.__qualname__} given twice")
            local[index] = value
        if extra is not None:
            local[positional + keyword_only + (1 if code.co_flags & 0x04 else 0)] = extra
        defaults = function.__defaults__ or ()
        first = positional - len(defaults)
        for i in range(positional):
            if local[i] is NULL:
                if i < first:
                    raise Unsupported(breaks.EXCEPTION, f"missing argument of {function.__qualname__}")
                value = defaults[i - first]
                if known is not None:
                    value = tracer.wrap(value, known[1].attribute("__defaults__").item(i - first))
                local[i] = value
        if keyword_only:
            given = function.__kwdefaults__ or {}
            for i in range(positional, positional + keyword_only):
                if local[i] is NULL:
                    name = names[i]
                    if name not in given:
                        raise Unsupported(breaks.EXCEPTION, f"missing argument {name} of {function.__qualname__}")
                    value = given[name]
                    if known is not None:
                        value = tracer.wrap(value, known[1].attribute("__kwdefaults__").dict_item(name))
                    local[i] = value

    def line(self) -> int:
        return self.current.line

    # ------------------------------------------------------------------------------------------ running

    def call(self) -> Any:
        """Runs to the end and returns the result."""
        self.run()
        return self.result

    def resume(self, value: Any, error: BaseException | None, first: bool) -> tuple[bool, Any]:
        """Runs a generator's frame until it yields (False, value) or ends (True, result)."""
        tracer = self.tracer
        outer = tracer.handled
        try:
            if error is not None:
                self._enter()
                try:
                    self._unwind(error)
                finally:
                    self._leave()
            elif not first:
                self.stack.append(value)
            outcome = self.run()
        finally:
            tracer.handled = outer
        return outcome is _RETURN, self.result

    def _enter(self) -> None:
        tracer = self.tracer
        self.parent = tracer.frame
        tracer.frame = self
        tracer.depth += 1

    def _leave(self) -> None:
        tracer = self.tracer
        tracer.frame = self.parent
        tracer.depth -= 1

    def run(self) -> Any:
        self._enter()
        tracer = self.tracer
        instructions = self.decoded.instructions
        ops = TABLE
        breaks_at = tracer.breaks_at if self.root else None
        budget = config.max_steps
        try:
            while True:
                instruction = instructions[self.pc]
                self.current = instruction
                self.pc += 1
                tracer.steps += 1
                if breaks_at is not None:
                    self.step += 1
                    if self.step in breaks_at:
                        raise _BreakHere(self)
                try:
                    outcome = ops[instruction.opcode](self, instruction)
                except UserError as error:
                    self._unwind(error.exception)
                    continue
                except (Unsupported, SkipFrame, _BreakHere) as stop:
                    if isinstance(stop, Unsupported) and stop.where is None:
                        stop.where = (self.code.co_filename, instruction.line, self.code.co_name)
                    raise
                if outcome is not None and (outcome is _RETURN or outcome is _YIELD):
                    return outcome
                if tracer.steps > budget:
                    raise Unsupported(breaks.TOO_LONG)
        finally:
            self._leave()

    def _unwind(self, error: BaseException) -> None:
        """Goes to the handler of an exception, or leaves the frame with it."""
        handled = self.tracer.handled
        if handled is not None and handled is not error and error.__context__ is None:
            error.__context__ = handled
        handler = find_handler(self.decoded, self.current.offset)
        if handler is None:
            raise UserError(error)
        if self.root:
            self.raised_at.append(self.step)
        self._go_to_handler(handler, error)

    def _go_to_handler(self, handler: Handler, error: BaseException) -> None:
        del self.stack[handler.depth :]
        if handler.push_offset:
            self.stack.append(self.current.offset // 2)
        self.stack.append(error)
        self.pc = self.decoded.index_of[handler.target]

    # ------------------------------------------------------------------------------------------ variables

    def load_local(self, index: int) -> Any:
        value = self.locals[index]
        if type(value) is Lazy:
            value = self.locals[index] = self.tracer.realize(value)
        return value

    def cell_value(self, cell: Any, name: str) -> Any:
        tracer = self.tracer
        known = tracer.known.get(id(cell))
        if known is None:
            try:
                value = cell.cell_contents
            except ValueError:
                raise UserError(NameError(f"cannot access free variable '{name}'")) from None
            if type(value) is Lazy:
                value = cell.cell_contents = tracer.realize(value)
            return value
        pending = tracer.pending(cell, "cell_contents")
        if pending is not MISSING:
            if pending is NULL:
                raise UserError(NameError(f"cannot access free variable '{name}'"))
            return pending
        try:
            value = cell.cell_contents
        except ValueError:
            known[1].cell().check("absent")
            raise UserError(NameError(f"cannot access free variable '{name}'")) from None
        return tracer.wrap(value, known[1].cell())

    def global_value(self, name: str) -> Any:
        tracer = self.tracer
        names = self.globals
        overlay = tracer.overlays.get(id(names))
        if overlay is not None and name in overlay.values:
            if overlay.values[name] is NULL:
                raise UserError(NameError(f"name '{name}' is not defined"))
            return overlay.values[name]
        place = tracer.sources.constant(names)
        if name in names:
            return tracer.wrap(names[name], place.dict_item(name))
        place.dict_item(name).check("absent")
        outer = names.get("__builtins__", builtins)
        outer = outer.__dict__ if isinstance(outer, types.ModuleType) else outer
        if name not in outer:
            raise UserError(NameError(f"name '{name}' is not defined"))
        value = outer[name]
        if getattr(builtins, name, None) is value and isinstance(value, (type, types.BuiltinFunctionType)):
            tracer.sources.constant(outer).dict_item(name).check("id", value)
            return value
        return tracer.wrap(value, tracer.sources.constant(outer).dict_item(name))


class _BreakHere(BaseException):
    """The root frame has come to the instruction where the graph is to be cut."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


# ---------------------------------------------------------------------------------------------- variables


@_op("NOP", "RESUME", "PRECALL", "COPY_FREE_VARS", "CACHE", "EXTENDED_ARG", "RESUME_CHECK", "NOT_TAKEN")
def _nothing(frame: Frame, inst: Instruction) -> None:
    if inst.name == "COPY_FREE_VARS":
        count = inst.arg
        frame.locals[len(frame.locals) - count :] = list(frame.closure)


@_op("MAKE_CELL")
def _make_cell(frame: Frame, inst: Instruction) -> None:
    value = frame.locals[inst.arg]
    cell = types.CellType() if value is NULL else types.CellType(value)
    frame.locals[inst.arg] = frame.tracer.make_fresh(cell)


@_op("LOAD_CLOSURE")
def _load_closure(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.locals[inst.arg])


@_op("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")
def _load_fast(frame: Frame, inst: Instruction) -> None:
    value = frame.locals[inst.arg]
    if value is NULL:
        raise UserError(
            UnboundLocalError(f"cannot access local variable '{inst.value}' where it is not associated with a value")
        )
    if type(value) is Lazy:
        value = frame.load_local(inst.arg)
    frame.stack.append(value)


@_op("LOAD_FAST_AND_CLEAR")
def _load_fast_and_clear(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.locals[inst.arg])
    frame.locals[inst.arg] = NULL


def _load_index(frame: Frame, index: int) -> None:
    value = frame.locals[index]
    if value is NULL:
        name = frame.decoded.names[index]
        raise UserError(
            UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
        )
    frame.stack.append(frame.load_local(index))


@_op("LOAD_FAST_LOAD_FAST")
def _load_two(frame: Frame, inst: Instruction) -> None:
    _load_index(frame, inst.arg >> 4)
    _load_index(frame, inst.arg & 15)


@_op("STORE_FAST", "STORE_FAST_MAYBE_NULL")
def _store_fast(frame: Frame, inst: Instruction) -> None:
    frame.locals[inst.arg] = frame.stack.pop()


@_op("STORE_FAST_LOAD_FAST")
def _store_load(frame: Frame, inst: Instruction) -> None:
    frame.locals[inst.arg >> 4] = frame.stack.pop()
    _load_index(frame, inst.arg & 15)


@_op("STORE_FAST_STORE_FAST")
def _store_store(frame: Frame, inst: Instruction) -> None:
    frame.locals[inst.arg >> 4] = frame.stack.pop()
    frame.locals[inst.arg & 15] = frame.stack.pop()


@_op("DELETE_FAST")
def _delete_fast(frame: Frame, inst: Instruction) -> None:
    if frame.locals[inst.arg] is NULL:
        raise UserError(
            UnboundLocalError(f"cannot access local variable '{inst.value}' where it is not associated with a value")
        )
    frame.locals[inst.arg] = NULL


@_op("LOAD_CONST")
def _load_const(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(inst.value)


@_op("LOAD_GLOBAL")
def _load_global(frame: Frame, inst: Instruction) -> None:
    value = frame.global_value(inst.value)
    if VERSION >= (3, 13):
        frame.stack.append(value)
        if inst.arg & 1:
            frame.stack.append(NULL)
        return
    if inst.arg & 1:
        frame.stack.append(NULL)
    frame.stack.append(value)


@_op("STORE_GLOBAL", "DELETE_GLOBAL")
def _store_global(frame: Frame, inst: Instruction) -> None:
    tracer = frame.tracer
    names = frame.globals
    if id(names) in tracer.memo and id(names) not in tracer.known:
        raise Unsupported(breaks.STORE, "global of a module whose dict is in use")
    tracer._know(names, tracer.sources.constant(names))
    new = frame.stack.pop() if inst.name == "STORE_GLOBAL" else NULL
    if new is NULL:
        frame.global_value(inst.value)
    tracer.overlay(names).values[inst.value] = new


@_op("LOAD_DEREF")
def _load_deref(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.cell_value(frame.locals[inst.arg], inst.value))


@_op("STORE_DEREF")
def _store_deref(frame: Frame, inst: Instruction) -> None:
    cell = frame.locals[inst.arg]
    value = frame.stack.pop()
    if id(cell) in frame.tracer.known:
        frame.tracer.overlay(cell).values["cell_contents"] = value
    else:
        cell.cell_contents = value


@_op("DELETE_DEREF")
def _delete_deref(frame: Frame, inst: Instruction) -> None:
    cell = frame.locals[inst.arg]
    frame.cell_value(cell, inst.value)
    if id(cell) in frame.tracer.known:
        frame.tracer.overlay(cell).values["cell_contents"] = NULL
    else:
        del cell.cell_contents


# ---------------------------------------------------------------------------------------------- the stack


@_op("POP_TOP", "END_FOR_POP")
def _pop_top(frame: Frame, inst: Instruction) -> None:
    frame.stack.pop()


@_op("END_FOR")
def _end_for(frame: Frame, inst: Instruction) -> None:
    frame.stack.pop()
    if VERSION < (3, 13):
        frame.stack.pop()


@_op("PUSH_NULL")
def _push_null(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(NULL)


@_op("SWAP")
def _swap(frame: Frame, inst: Instruction) -> None:
    stack = frame.stack
    stack[-1], stack[-inst.arg] = stack[-inst.arg], stack[-1]


@_op("COPY")
def _copy(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.stack[-inst.arg])


# ---------------------------------------------------------------------------------------------- operators


def _binary_names() -> list[str]:
    import opcode

    return [symbol for _, symbol in opcode._nb_ops]  # type: ignore[attr-defined]


_BINARY = _binary_names()


@_op("BINARY_OP")
def _binary_op(frame: Frame, inst: Instruction) -> None:
    right = frame.stack.pop()
    left = frame.stack.pop()
    frame.stack.append(calls.binary(frame.tracer, _BINARY[inst.arg], left, right))


_UNARY = {
    "UNARY_NEGATIVE": (operator.neg, "__neg__"),
    "UNARY_POSITIVE": (operator.pos, "__pos__"),
    "UNARY_INVERT": (operator.invert, "__invert__"),
}


@_op("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def _unary_op(frame: Frame, inst: Instruction) -> None:
    function, name = _UNARY[inst.name]
    frame.stack.append(calls.unary(frame.tracer, function, name, frame.stack.pop()))


@_op("UNARY_NOT")
def _unary_not(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(not calls.truth(frame.tracer, frame.stack.pop()))


@_op("TO_BOOL")
def _to_bool(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(calls.truth(frame.tracer, frame.stack.pop()))


def _comparison_of(inst: Instruction) -> str:
    import opcode

    shift = 5 if VERSION >= (3, 13) else 4 if VERSION >= (3, 12) else 0
    return str(opcode.cmp_op[inst.arg >> shift])


@_op("COMPARE_OP")
def _compare_op(frame: Frame, inst: Instruction) -> None:
    right = frame.stack.pop()
    left = frame.stack.pop()
    result = calls.compare(frame.tracer, _comparison_of(inst), left, right)
    if VERSION >= (3, 13) and inst.arg & 16:
        result = calls.truth(frame.tracer, result)
    frame.stack.append(result)


@_op("IS_OP")
def _is_op(frame: Frame, inst: Instruction) -> None:
    right = frame.stack.pop()
    left = frame.stack.pop()
    frame.stack.append((left is right) != bool(inst.arg))


@_op("CONTAINS_OP")
def _contains_op(frame: Frame, inst: Instruction) -> None:
    container = frame.stack.pop()
    item = frame.stack.pop()
    frame.stack.append(calls.contains(frame.tracer, item, container) != bool(inst.arg))


@_op("BINARY_SUBSCR")
def _binary_subscr(frame: Frame, inst: Instruction) -> None:
    key = frame.stack.pop()
    frame.stack.append(calls.subscript(frame.tracer, frame.stack.pop(), key))


@_op("STORE_SUBSCR")
def _store_subscr(frame: Frame, inst: Instruction) -> None:
    key = frame.stack.pop()
    container = frame.stack.pop()
    calls.store_subscript(frame.tracer, container, key, frame.stack.pop())


@_op("DELETE_SUBSCR")
def _delete_subscr(frame: Frame, inst: Instruction) -> None:
    key = frame.stack.pop()
    calls.store_subscript(frame.tracer, frame.stack.pop(), key, NULL)


@_op("BINARY_SLICE")
def _binary_slice(frame: Frame, inst: Instruction) -> None:
    stop = frame.stack.pop()
    start = frame.stack.pop()
    frame.stack.append(calls.subscript(frame.tracer, frame.stack.pop(), slice(start, stop)))


@_op("STORE_SLICE")
def _store_slice(frame: Frame, inst: Instruction) -> None:
    stop = frame.stack.pop()
    start = frame.stack.pop()
    container = frame.stack.pop()
    calls.store_subscript(frame.tracer, container, slice(start, stop), frame.stack.pop())


# ---------------------------------------------------------------------------------------------- containers


def _pop_many(frame: Frame, count: int) -> list[Any]:
    if not count:
        return []
    items = frame.stack[-count:]
    del frame.stack[-count:]
    return items


@_op("BUILD_TUPLE")
def _build_tuple(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(tuple(_pop_many(frame, inst.arg)))


@_op("BUILD_LIST")
def _build_list(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(_pop_many(frame, inst.arg))


def _check_key(key: Any) -> None:
    if type(key) in SYMBOLIC or type(key) is TracedNumber or (type(key) is tuple and key != plain(key)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "symbolic key")  # callers make keys plain first
    if calls.python_special(type(key), "__hash__", "__eq__"):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(key).__name__}")


@_op("BUILD_SET")
def _build_set(frame: Frame, inst: Instruction) -> None:
    items = [plain(item) for item in _pop_many(frame, inst.arg)]
    for item in items:
        _check_key(item)
    frame.stack.append(native(set, items))


@_op("BUILD_MAP")
def _build_map(frame: Frame, inst: Instruction) -> None:
    items = _pop_many(frame, 2 * inst.arg)
    made: dict[Any, Any] = {}
    for key, value in zip(map(plain, items[::2]), items[1::2]):
        _check_key(key)
        native(made.__setitem__, key, value)
    frame.stack.append(made)


@_op("BUILD_CONST_KEY_MAP")
def _build_const_key_map(frame: Frame, inst: Instruction) -> None:
    keys = frame.stack.pop()
    frame.stack.append(dict(zip(keys, _pop_many(frame, inst.arg))))


@_op("BUILD_STRING")
def _build_string(frame: Frame, inst: Instruction) -> None:
    frame.stack.append("".join(_pop_many(frame, inst.arg)))


@_op("BUILD_SLICE")
def _build_slice(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(slice(*_pop_many(frame, inst.arg)))


@_op("LIST_APPEND")
def _list_append(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop()
    frame.stack[-inst.arg].append(value)


@_op("SET_ADD")
def _set_add(frame: Frame, inst: Instruction) -> None:
    value = plain(frame.stack.pop())
    _check_key(value)
    native(frame.stack[-inst.arg].add, value)


@_op("MAP_ADD")
def _map_add(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop()
    key = plain(frame.stack.pop())
    _check_key(key)
    native(frame.stack[-inst.arg].__setitem__, key, value)


@_op("LIST_EXTEND")
def _list_extend(frame: Frame, inst: Instruction) -> None:
    values = frame.stack.pop()
    native(frame.stack[-inst.arg].extend, calls.iterable(frame.tracer, values))


@_op("SET_UPDATE")
def _set_update(frame: Frame, inst: Instruction) -> None:
    values = frame.stack.pop()
    native(frame.stack[-inst.arg].update, calls.iterable(frame.tracer, values))


@_op("DICT_UPDATE", "DICT_MERGE")
def _dict_update(frame: Frame, inst: Instruction) -> None:
    values = frame.stack.pop()
    target = frame.stack[-inst.arg]
    if not isinstance(values, dict) or id(values) in frame.tracer.known:
        raise Unsupported(breaks.UNKNOWN_OPERATION, "** of an object that is not a dict")
    if inst.name == "DICT_MERGE" and any(key in target for key in values):
        raise Unsupported(breaks.EXCEPTION, "keyword given twice")
    dict.update(target, values)


@_op("LIST_TO_TUPLE")
def _list_to_tuple(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(tuple(frame.stack.pop()))


@_op("UNPACK_SEQUENCE")
def _unpack_sequence(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop()
    items = _unpack(frame, value, inst.arg)
    if len(items) != inst.arg:
        if len(items) > inst.arg:
            raise UserError(ValueError(f"too many values to unpack (expected {inst.arg})"))
        raise UserError(ValueError(f"not enough values to unpack (expected {inst.arg}, got {len(items)})"))
    frame.stack.extend(reversed(items))


def _unpack(frame: Frame, value: Any, limit: int) -> list[Any]:
    if type(value) in (tuple, list):
        return list(value)
    try:
        iterator = calls.iterate(frame.tracer, value)
    except UserError as error:
        if isinstance(error.exception, TypeError) and "is not iterable" in str(error.exception):
            name = calls.real_type(value).__name__
            raise UserError(TypeError(f"cannot unpack non-iterable {name} object")) from None
        raise
    items: list[Any] = []
    while limit < 0 or len(items) <= limit:
        try:
            items.append(calls.advance(frame.tracer, iterator))
        except UserError as error:
            if isinstance(error.exception, StopIteration):
                break
            raise
    return items


@_op("UNPACK_EX")
def _unpack_ex(frame: Frame, inst: Instruction) -> None:
    before, after = inst.arg & 0xFF, inst.arg >> 8
    items = _unpack(frame, frame.stack.pop(), -1)
    if len(items) < before + after:
        raise UserError(
            ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
        )
    end = len(items) - after
    frame.stack.extend(reversed(items[end:]))
    frame.stack.append(items[before:end])
    frame.stack.extend(reversed(items[:before]))


# ---------------------------------------------------------------------------------------------- text

_CONVERSIONS = {1: str, 2: repr, 3: ascii}


@_op("FORMAT_VALUE")
def _format_value(frame: Frame, inst: Instruction) -> None:
    spec = frame.stack.pop() if inst.arg & 4 else ""
    value = frame.stack.pop()
    conversion = inst.arg & 3
    if conversion:
        value = _convert(frame, value, conversion)
    frame.stack.append(calls._format(frame.tracer, value, spec))


def _convert(frame: Frame, value: Any, conversion: int) -> Any:
    if conversion == 3:
        return native(ascii, value) if calls._is_text_safe(value) else breaks.unsupported(breaks.PRINT, "ascii")
    return calls.to_text(frame.tracer, value, _CONVERSIONS[conversion])


@_op("CONVERT_VALUE")
def _convert_value(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(_convert(frame, frame.stack.pop(), inst.arg))


@_op("FORMAT_SIMPLE")
def _format_simple(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(calls._format(frame.tracer, frame.stack.pop()))


@_op("FORMAT_WITH_SPEC")
def _format_with_spec(frame: Frame, inst: Instruction) -> None:
    spec = frame.stack.pop()
    frame.stack.append(calls._format(frame.tracer, frame.stack.pop(), spec))


# ---------------------------------------------------------------------------------------------- attributes


@_op("LOAD_ATTR")
def _load_attr(frame: Frame, inst: Instruction) -> None:
    value = attributes.load(frame.tracer, frame.stack.pop(), inst.value)
    if VERSION >= (3, 12) and inst.arg & 1:
        if VERSION >= (3, 13):
            frame.stack.append(value)
            frame.stack.append(NULL)
            return
        frame.stack.append(NULL)
    frame.stack.append(value)


@_op("LOAD_METHOD")
def _load_method(frame: Frame, inst: Instruction) -> None:
    value = attributes.load(frame.tracer, frame.stack.pop(), inst.value)
    frame.stack.append(NULL)
    frame.stack.append(value)


@_op("LOAD_SUPER_ATTR")
def _load_super_attr(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    cls = frame.stack.pop()
    function = frame.stack.pop()
    if function is not super:
        raise Unsupported(breaks.OPCODE, "another super")
    value = attributes.load(frame.tracer, native(super, cls, owner), inst.value)
    if inst.arg & 1:
        if VERSION >= (3, 13):
            frame.stack.append(value)
            frame.stack.append(NULL)
            return
        frame.stack.append(NULL)
    frame.stack.append(value)


@_op("STORE_ATTR")
def _store_attr(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    attributes.store(frame.tracer, owner, inst.value, frame.stack.pop())


@_op("DELETE_ATTR")
def _delete_attr(frame: Frame, inst: Instruction) -> None:
    attributes.store(frame.tracer, frame.stack.pop(), inst.value, NULL)


# ---------------------------------------------------------------------------------------------- calls


@_op("KW_NAMES")
def _kw_names(frame: Frame, inst: Instruction) -> None:
    frame.keywords = inst.value


def _split(args: list[Any], names: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not names:
        return tuple(args), {}
    count = len(args) - len(names)
    return tuple(args[:count]), dict(zip(names, args[count:]))


@_op("CALL")
def _call(frame: Frame, inst: Instruction) -> None:
    args = _pop_many(frame, inst.arg)
    second = frame.stack.pop()
    first = frame.stack.pop()
    names, frame.keywords = frame.keywords, ()
    if VERSION >= (3, 13):
        function = first
        if second is not NULL:
            args.insert(0, second)
    elif first is NULL:
        function = second
    else:
        function = first
        args.insert(0, second)
    positional, keywords = _split(args, names)
    frame.stack.append(calls.call(frame.tracer, function, positional, keywords))


@_op("CALL_KW")
def _call_kw(frame: Frame, inst: Instruction) -> None:
    names = frame.stack.pop()
    args = _pop_many(frame, inst.arg)
    owner = frame.stack.pop()
    function = frame.stack.pop()
    if owner is not NULL:
        args.insert(0, owner)
    positional, keywords = _split(args, names)
    frame.stack.append(calls.call(frame.tracer, function, positional, keywords))


@_op("CALL_FUNCTION_EX")
def _call_function_ex(frame: Frame, inst: Instruction) -> None:
    keywords = frame.stack.pop() if inst.arg & 1 else {}
    args = frame.stack.pop()
    if VERSION >= (3, 13):
        frame.stack.pop()
        function = frame.stack.pop()
    else:
        function = frame.stack.pop()
        frame.stack.pop()
    if not isinstance(args, tuple):
        args = tuple(calls.iterable_list(frame.tracer, args))
    if not isinstance(keywords, dict):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "** of an object that is not a dict")
    if not all(isinstance(key, str) for key in keywords):
        raise UserError(TypeError("keywords must be strings"))
    frame.stack.append(calls.call(frame.tracer, function, tuple(args), dict(keywords)))


@_op("MAKE_FUNCTION")
def _make_function(frame: Frame, inst: Instruction) -> None:
    code = frame.stack.pop()
    flags = inst.arg if VERSION < (3, 13) else 0
    closure = frame.stack.pop() if flags & 8 else None
    if VERSION >= (3, 13) and code.co_freevars:
        closure = tuple(types.CellType() for _ in code.co_freevars)  # the real one is set by what follows
    annotations = frame.stack.pop() if flags & 4 else None
    keyword_defaults = frame.stack.pop() if flags & 2 else None
    defaults = frame.stack.pop() if flags & 1 else None
    function = types.FunctionType(code, frame.globals, code.co_name, defaults, closure)
    function.__qualname__ = code.co_qualname
    if keyword_defaults:
        function.__kwdefaults__ = keyword_defaults
    if annotations:
        function.__annotations__ = _annotations(annotations)
    frame.stack.append(frame.tracer.make_fresh(function))


def _annotations(value: Any) -> dict[str, Any]:
    return dict(zip(value[::2], value[1::2])) if isinstance(value, tuple) else value


@_op("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(frame: Frame, inst: Instruction) -> None:
    function = frame.stack.pop()
    value = frame.stack.pop()
    if inst.arg == 8:
        made = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, value
        )
        made.__qualname__ = function.__qualname__
        made.__kwdefaults__ = function.__kwdefaults__
        made.__annotations__ = function.__annotations__
        function = frame.tracer.make_fresh(made)
    elif inst.arg == 1:
        function.__defaults__ = value
    elif inst.arg == 2:
        function.__kwdefaults__ = value
    elif inst.arg == 4:
        function.__annotations__ = _annotations(value)
    frame.stack.append(function)


@_op("LOAD_ASSERTION_ERROR")
def _load_assertion_error(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(AssertionError)


@_op("IMPORT_NAME")
def _import_name(frame: Frame, inst: Instruction) -> None:
    names = frame.stack.pop()
    level = frame.stack.pop()
    name = inst.value
    if level:
        package = frame.globals.get("__package__") or ""
        full = importlib.util.resolve_name("." * level + name, package)
    else:
        full = name
    if full not in sys.modules:
        if not full.startswith("flambeau"):
            raise Unsupported(breaks.IMPORT, full)
        native(importlib.import_module, full)
    for part in names or ():
        if part == "*":
            raise Unsupported(breaks.IMPORT, full)
    module = sys.modules[full] if names else sys.modules[full.partition(".")[0]]
    if id(module) not in frame.tracer.known:
        frame.tracer._know(module, frame.tracer.sources.constant(module))
    frame.stack.append(module)


@_op("IMPORT_FROM")
def _import_from(frame: Frame, inst: Instruction) -> None:
    module = frame.stack[-1]
    if inst.value not in module.__dict__ and f"{module.__name__}.{inst.value}" in sys.modules:
        value = sys.modules[f"{module.__name__}.{inst.value}"]
        frame.tracer._know(value, frame.tracer.sources.constant(value))
        frame.stack.append(value)
        return
    try:
        frame.stack.append(attributes.load(frame.tracer, module, inst.value))
    except UserError as error:
        if isinstance(error.exception, AttributeError):
            raise Unsupported(breaks.EXCEPTION, f"cannot import {inst.value}") from None
        raise


@_op("CALL_INTRINSIC_1")
def _call_intrinsic(frame: Frame, inst: Instruction) -> None:
    if inst.arg == 5:  # unary plus
        frame.stack.append(calls.unary(frame.tracer, operator.pos, "__pos__", frame.stack.pop()))
    elif inst.arg == 6:  # list to tuple
        frame.stack.append(tuple(frame.stack.pop()))
    elif inst.arg == 3:  # StopIteration leaving a generator
        error = frame.stack.pop()
        if isinstance(error, StopIteration):
            wrapped = RuntimeError("generator raised StopIteration")
            wrapped.__cause__ = wrapped.__context__ = error
            error = wrapped
        frame.stack.append(error)
    else:
        raise Unsupported(breaks.OPCODE, f"CALL_INTRINSIC_1 {inst.arg}")


# ---------------------------------------------------------------------------------------------- jumps


@_op("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
def _jump(frame: Frame, inst: Instruction) -> None:
    frame.pc = inst.target


@_op("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def _pop_jump_if_true(frame: Frame, inst: Instruction) -> None:
    if calls.truth(frame.tracer, frame.stack.pop()):
        frame.pc = inst.target


@_op("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def _pop_jump_if_false(frame: Frame, inst: Instruction) -> None:
    if not calls.truth(frame.tracer, frame.stack.pop()):
        frame.pc = inst.target


@_op("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_IF_NONE")
def _pop_jump_if_none(frame: Frame, inst: Instruction) -> None:
    if frame.stack.pop() is None:
        frame.pc = inst.target


@_op("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE")
def _pop_jump_if_not_none(frame: Frame, inst: Instruction) -> None:
    if frame.stack.pop() is not None:
        frame.pc = inst.target


@_op("JUMP_IF_TRUE_OR_POP")
def _jump_if_true_or_pop(frame: Frame, inst: Instruction) -> None:
    if calls.truth(frame.tracer, frame.stack[-1]):
        frame.pc = inst.target
    else:
        frame.stack.pop()


@_op("JUMP_IF_FALSE_OR_POP")
def _jump_if_false_or_pop(frame: Frame, inst: Instruction) -> None:
    if not calls.truth(frame.tracer, frame.stack[-1]):
        frame.pc = inst.target
    else:
        frame.stack.pop()


@_op("GET_ITER")
def _get_iter(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(calls.iterate(frame.tracer, frame.stack.pop()))


# From 3.12 on, the target is END_FOR (then POP_TOP), which an exhausted loop skips.
_AFTER_LOOP = 2 if VERSION >= (3, 13) else 1 if VERSION >= (3, 12) else 0


@_op("FOR_ITER")
def _for_iter(frame: Frame, inst: Instruction) -> None:
    try:
        value = calls.advance(frame.tracer, frame.stack[-1])
    except UserError as error:
        if not isinstance(error.exception, StopIteration):
            raise
        frame.stack.pop()
        frame.pc = inst.target + _AFTER_LOOP
        return
    frame.stack.append(value)


@_op("RETURN_VALUE")
def _return_value(frame: Frame, inst: Instruction) -> Any:
    frame.result = frame.stack.pop()
    return _RETURN


@_op("RETURN_CONST")
def _return_const(frame: Frame, inst: Instruction) -> Any:
    frame.result = inst.value
    return _RETURN


# ---------------------------------------------------------------------------------------------- generators


@_op("RETURN_GENERATOR")
def _return_generator(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(None)


@_op("YIELD_VALUE")
def _yield_value(frame: Frame, inst: Instruction) -> Any:
    frame.result = frame.stack.pop()
    return _YIELD


@_op("GET_YIELD_FROM_ITER")
def _get_yield_from_iter(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(calls.iterate(frame.tracer, frame.stack.pop()))


@_op("SEND")
def _send(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop()
    receiver = frame.stack[-1]
    try:
        if value is None:
            result = calls.advance(frame.tracer, receiver)
        else:
            result = calls.call(frame.tracer, attributes.load(frame.tracer, receiver, "send"), (value,), {})
    except UserError as error:
        if not isinstance(error.exception, StopIteration):
            raise
        if VERSION < (3, 12):
            frame.stack.pop()
        frame.stack.append(error.exception.value)
        frame.pc = inst.target
        return
    frame.stack.append(result)


@_op("END_SEND")
def _end_send(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop()
    frame.stack.pop()
    frame.stack.append(value)


# ---------------------------------------------------------------------------------------------- exceptions


@_op("RAISE_VARARGS")
def _raise(frame: Frame, inst: Instruction) -> None:
    tracer = frame.tracer
    if inst.arg == 0:
        if tracer.handled is None:
            raise UserError(RuntimeError("No active exception to reraise"))
        raise UserError(tracer.handled)
    cause: Any = MISSING
    if inst.arg == 2:
        cause = frame.stack.pop()
    error = frame.stack.pop()
    if isinstance(error, type) and issubclass(error, BaseException):
        error = calls.call(tracer, error, (), {})
    if not isinstance(error, BaseException):
        raise UserError(TypeError("exceptions must derive from BaseException"))
    if id(error) in tracer.known:
        raise Unsupported(breaks.EXCEPTION, "an exception object from outside")
    if cause is not MISSING:
        if isinstance(cause, type) and issubclass(cause, BaseException):
            cause = calls.call(tracer, cause, (), {})
        error.__cause__ = cause
        error.__suppress_context__ = True
    raise UserError(error)


@_op("PUSH_EXC_INFO")
def _push_exc_info(frame: Frame, inst: Instruction) -> None:
    error = frame.stack.pop()
    frame.stack.append(frame.tracer.handled)
    frame.stack.append(error)
    frame.tracer.handled = error


@_op("POP_EXCEPT")
def _pop_except(frame: Frame, inst: Instruction) -> None:
    frame.tracer.handled = frame.stack.pop()
    if frame.root and frame.raised_at:
        frame.raised_at.pop()


@_op("RERAISE")
def _reraise(frame: Frame, inst: Instruction) -> None:
    error = frame.stack.pop()
    raise UserError(error)


@_op("CHECK_EXC_MATCH")
def _check_exc_match(frame: Frame, inst: Instruction) -> None:
    kinds = frame.stack.pop()
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise UserError(TypeError("catching classes that do not inherit from BaseException is not allowed"))
    frame.stack.append(isinstance(frame.stack[-1], kinds))


@_op("CLEANUP_THROW")
def _cleanup_throw(frame: Frame, inst: Instruction) -> None:
    error = frame.stack.pop()
    if not isinstance(error, StopIteration):
        raise UserError(error)
    frame.stack.pop()
    frame.stack.pop()
    frame.stack.append(None)
    frame.stack.append(error.value)


@_op("BEFORE_WITH")
def _before_with(frame: Frame, inst: Instruction) -> None:
    tracer = frame.tracer
    manager = frame.stack.pop()
    if type(manager) is TracedTensor:
        raise UserError(TypeError("'Tensor' object does not support the context manager protocol"))
    cls = type(manager)
    found = [attributes.lookup_type(cls, name) for name in ("__enter__", "__exit__")]
    for name, method in zip(("__enter__", "__exit__"), found):
        if method is NULL:
            raise UserError(TypeError(f"'{cls.__name__}' object does not support the context manager protocol"))
        if not isinstance(method, types.FunctionType):
            raise Unsupported(breaks.CONTEXT, cls.__name__)
        tracer.guard_type_attribute(cls, name)
        tracer._know(method, tracer.sources.constant(method))
    frame.stack.append(types.MethodType(found[1], manager))
    frame.stack.append(calls.call(tracer, types.MethodType(found[0], manager), (), {}))


@_op("WITH_EXCEPT_START")
def _with_except_start(frame: Frame, inst: Instruction) -> None:
    error = frame.stack[-1]
    leave = frame.stack[-4]
    frame.stack.append(calls.call(frame.tracer, leave, (type(error), error, None), {}))


# ---------------------------------------------------------------------------------------------- match


@_op("GET_LEN")
def _get_len(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(calls._len(frame.tracer, frame.stack[-1]))


@_op("MATCH_SEQUENCE")
def _match_sequence(frame: Frame, inst: Instruction) -> None:
    value = frame.stack[-1]
    frame.stack.append(isinstance(value, (list, tuple, collections.deque, range)) and not isinstance(value, str))


@_op("MATCH_MAPPING")
def _match_mapping(frame: Frame, inst: Instruction) -> None:
    value = frame.stack[-1]
    if id(value) in frame.tracer.known and hasattr(type(value), "__getitem__"):
        raise Unsupported(breaks.OPCODE, "match of an unknown mapping")
    frame.stack.append(isinstance(value, dict))


@_op("MATCH_KEYS")
def _match_keys(frame: Frame, inst: Instruction) -> None:
    keys = frame.stack[-1]
    subject = frame.stack[-2]
    if not isinstance(subject, dict):
        raise Unsupported(breaks.OPCODE, "match of an unknown mapping")
    found = all(native(dict.__contains__, subject, key) for key in keys)
    frame.stack.append(tuple(subject[key] for key in keys) if found else None)


@_op("MATCH_CLASS")
def _match_class(frame: Frame, inst: Instruction) -> None:
    names = frame.stack.pop()
    cls = frame.stack.pop()
    subject = frame.stack.pop()
    tracer = frame.tracer
    if not calls._isinstance(tracer, subject, cls):
        frame.stack.append(None)
        return
    values: list[Any] = []
    if inst.arg:
        if cls in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple):
            values.append(subject)
        else:
            wanted = attributes.load(tracer, cls, "__match_args__")
            for i in range(inst.arg):
                values.append(attributes.load(tracer, subject, wanted[i]))
    for name in names:
        try:
            values.append(attributes.load(tracer, subject, name))
        except UserError as error:
            if not isinstance(error.exception, AttributeError):
                raise
            frame.stack.append(None)
            return
    frame.stack.append(tuple(values))


def _unknown(frame: Frame, inst: Instruction) -> None:
    raise Unsupported(breaks.OPCODE, inst.name)


def _make_table() -> list[Callable[[Frame, Instruction], Any]]:
    import opcode

    return [OPS.get(name, _unknown) for name in opcode.opname]


TABLE = _make_table()


def argument_sources(tracer: Tracer, frame: Frame, values: list[Any]) -> None:
    """Fills the root frame's arguments, to be looked at when they are used."""
    for index, value in enumerate(values):
        source: Source = tracer.sources.argument(index)
        frame.locals[index] = Lazy(value, source)
