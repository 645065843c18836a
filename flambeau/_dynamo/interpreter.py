"""The symbolic interpreter: runs bytecode on stand-ins, one `Frame` for each function.

A handler takes the frame and the instruction. Exceptions of the program travel as `UserError`; `Unsupported` travels to
the root frame, where the graph breaks.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any

from flambeau._dynamo import breaks, config
from flambeau._dynamo.breaks import SkipFrame, Unsupported, UserError
from flambeau._dynamo.bytecode import Decoded, Handler, Instruction, decode, find_handler
from flambeau._dynamo.kinds import MISSING
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import NULL, Lazy
from flambeau.ops.symbolic.shape_env import DataDependentOutput

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
        tracer.outside.guard_code(function)
        frame = cls(tracer, function.__code__, function.__globals__, function.__closure__)
        frame.function = function
        frame.bind(function, args, kwargs)
        known = tracer.outside.known.get(id(function))
        if known is not None and function.__closure__:
            # Cells of an outside function are outside themselves.
            place = known.source
            for i, cell in enumerate(function.__closure__):
                if id(cell) not in tracer.outside.known and id(cell) not in tracer.outside.fresh:
                    if place.kind == "constant":
                        tracer.outside.register(cell, tracer.outside.sources.constant(cell))
                    else:
                        tracer.outside.register(cell, place.attribute("__closure__").item(i))
        return frame

    def bind(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Arguments into the first locals, as a call does."""
        code = self.code
        tracer = self.tracer
        positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
        local = self.locals
        known = tracer.outside.known.get(id(function))
        count = len(args)
        if count > positional:
            if not code.co_flags & 0x04:
                raise _wrong_arguments(function, args, kwargs)
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
                    raise _wrong_arguments(function, args, kwargs) from None
                extra[name] = value
                continue
            if local[index] is not NULL:
                raise _wrong_arguments(function, args, kwargs)
            local[index] = value
        if extra is not None:
            local[positional + keyword_only + (1 if code.co_flags & 0x04 else 0)] = extra
        defaults = function.__defaults__ or ()
        first = positional - len(defaults)
        for i in range(positional):
            if local[i] is NULL:
                if i < first:
                    raise _wrong_arguments(function, args, kwargs)
                value = defaults[i - first]
                if known is not None:
                    value = tracer.outside.wrap(value, known.source.attribute("__defaults__").item(i - first))
                local[i] = value
        if keyword_only:
            defaults_by_name = function.__kwdefaults__ or {}
            for i in range(positional, positional + keyword_only):
                if local[i] is NULL:
                    name = names[i]
                    if name not in defaults_by_name:
                        raise _wrong_arguments(function, args, kwargs)
                    value = defaults_by_name[name]
                    if known is not None:
                        value = tracer.outside.wrap(value, known.source.attribute("__kwdefaults__").dict_item(name))
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
                except DataDependentOutput as error:
                    stop = Unsupported(breaks.TENSOR_VALUE, str(error))
                    stop.where = (self.code.co_filename, instruction.line, self.code.co_name)
                    raise stop from None
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
            value = self.locals[index] = self.tracer.outside.realize(value)
        return value

    def cell_value(self, cell: Any, name: str) -> Any:
        tracer = self.tracer
        known = tracer.outside.known.get(id(cell))
        if known is None:
            try:
                value = cell.cell_contents
            except ValueError:
                raise UserError(NameError(f"cannot access free variable '{name}'")) from None
            if type(value) is Lazy:
                value = cell.cell_contents = tracer.outside.realize(value)
            return value
        pending = tracer.outside.pending(cell, "cell_contents")
        if pending is not MISSING:
            if pending is NULL:
                raise UserError(NameError(f"cannot access free variable '{name}'"))
            return pending
        try:
            value = cell.cell_contents
        except ValueError:
            known.source.cell().check("absent")
            raise UserError(NameError(f"cannot access free variable '{name}'")) from None
        return tracer.outside.wrap(value, known.source.cell())

    def global_value(self, name: str) -> Any:
        tracer = self.tracer
        names = self.globals
        overlay = tracer.outside.overlays.get(id(names))
        if overlay is not None and name in overlay.values:
            if overlay.values[name] is NULL:
                raise UserError(NameError(f"name '{name}' is not defined"))
            return overlay.values[name]
        place = tracer.outside.sources.constant(names)
        if name in names:
            return tracer.outside.wrap(names[name], place.dict_item(name))
        place.dict_item(name).check("absent")
        outer = names.get("__builtins__", builtins)
        outer = outer.__dict__ if isinstance(outer, types.ModuleType) else outer
        if name not in outer:
            raise UserError(NameError(f"name '{name}' is not defined"))
        value = outer[name]
        if getattr(builtins, name, None) is value and isinstance(value, (type, types.BuiltinFunctionType)):
            tracer.outside.sources.constant(outer).dict_item(name).check("id", value)
            return value
        return tracer.outside.wrap(value, tracer.outside.sources.constant(outer).dict_item(name))


def _wrong_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseException:
    """The error of a call with wrong arguments, made by the language itself: an empty function with the same ones."""
    code = function.__code__
    empty = (lambda: None).__code__
    hollow = code.replace(
        co_code=empty.co_code, co_consts=empty.co_consts, co_exceptiontable=b"", co_linetable=empty.co_linetable,
        co_cellvars=(), co_freevars=(), co_stacksize=2, co_flags=code.co_flags & ~0x2A0,
    )  # fmt: skip
    stand_in = types.FunctionType(hollow, {}, function.__name__, function.__defaults__)
    stand_in.__qualname__, stand_in.__kwdefaults__ = function.__qualname__, function.__kwdefaults__
    try:
        stand_in(*args, **kwargs)
    except TypeError as error:
        error.__traceback__ = None
        return UserError(error)
    return Unsupported(breaks.EXCEPTION, f"arguments of {function.__qualname__}")


class _BreakHere(BaseException):
    """The root frame has come to the instruction where the graph is to break."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


def _unknown(frame: Frame, inst: Instruction) -> None:
    raise Unsupported(breaks.OPCODE, inst.name)


TABLE: list[Callable[[Frame, Instruction], Any]] = []  # handlers by opcode


def prepare() -> None:
    """Fills the table of instructions."""
    if not TABLE:
        import opcode

        from flambeau._dynamo import control, instructions

        assert control and instructions  # they register their handlers
        TABLE.extend(OPS.get(name, _unknown) for name in opcode.opname)
