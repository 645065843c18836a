"""Graph breaks: code that performs the instruction which broke it and hands over to resume functions.

The artifact performs the instruction in plain Python and continues in a resume function, which is captured in turn.
Where the instruction lies in a try block, an exception goes to a resume function that raises it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._dynamo.breaks import SkipFrame
from flambeau._dynamo.bytecode import VERSION, Decoded, Handler, Instruction, find_handler
from flambeau._dynamo.control import _AFTER_LOOP
from flambeau._dynamo.instructions import _BINARY, _comparison_of
from flambeau._dynamo.interpreter import Frame
from flambeau._dynamo.rebuild import Rebuilder
from flambeau._dynamo.traced import NULL

# Given the stack shape, slots and offset, makes the function to continue in: (offset, stack, slots, handler, native).
MakeResume = Callable[[int, list[bool], list[int], Handler | None, bool], Any]


def live_slots(decoded: Decoded, start: int) -> set[int]:
    """Slots of the frame that may be read from an instruction on."""
    seen: set[int] = set()
    live: set[int] = set()
    todo = [start]
    instructions = decoded.instructions
    if "__class__" in decoded.names:
        live.add(0)  # super() without arguments reads it
    while todo:
        index = todo.pop()
        while index < len(instructions) and index not in seen:
            seen.add(index)
            instruction = instructions[index]
            name = instruction.name
            if name in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"):
                live.update((instruction.arg >> 4, instruction.arg & 15))
            elif name.startswith(("LOAD_FAST", "DELETE_FAST", "LOAD_CLOSURE")) or "DEREF" in name:
                live.add(instruction.arg)
            handler = find_handler(decoded, instruction.offset)
            if handler is not None:
                todo.append(decoded.index_of[handler.target])
            if instruction.target >= 0:
                todo.append(instruction.target)
                if name == "FOR_ITER" and _AFTER_LOOP:
                    todo.append(instruction.target + _AFTER_LOOP)
            if name in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE") or name.startswith(
                ("JUMP_FORWARD", "JUMP_BACKWARD")
            ):
                break
            index += 1
    return live


class BreakCode:
    def __init__(self, rebuilder: Rebuilder, frame: Frame, make_resume: MakeResume, nested: Any) -> None:
        self.rebuilder = rebuilder
        self.frame = frame
        self.decoded = frame.decoded
        self.make_resume = make_resume
        self.nested = nested
        self.stack: list[str | None] = []
        self.free = len(frame.decoded.names) - len(frame.code.co_freevars)

    def generate(self, instruction: Instruction) -> None:
        frame, rebuilder = self.frame, self.rebuilder
        rebuilder.line_number = instruction.line
        if frame.tracer.handled is not None:
            raise SkipFrame("a graph break while an exception is handled")
        index = self.decoded.instructions.index(instruction)
        live = live_slots(self.decoded, index)
        self.stack = [None if value is NULL else rebuilder.value(value) for value in frame.stack]
        self.slots = [
            (i, rebuilder.value(value))
            for i, value in enumerate(frame.locals[: self.free])
            if value is not NULL and (i in live or i in self.decoded.cells)
        ]
        rebuilder.side_effects()
        names = rebuilder.names
        from flambeau import _C

        self.tail = names.add(_C._tail_call)
        perform = PERFORM.get(instruction.name)
        if perform is None:
            self._continue(instruction.offset, self.stack, native=True)
            return
        handler = find_handler(self.decoded, instruction.offset)
        if handler is None:
            perform(self, instruction, index)
            return
        # Inside a try block the instruction itself is tried; what follows runs in the resume function.
        begin = len(rebuilder.lines)
        perform(self, instruction, index)
        lines = rebuilder.lines[begin:]
        del rebuilder.lines[begin:]
        line = instruction.line
        rebuilder.lines.append(("failure = None", line))
        rebuilder.lines.append(("try:", line))
        split = next(i for i, (text, _) in enumerate(lines) if text.startswith(("return ", "if ")))
        rebuilder.lines += [("    " + text, number) for text, number in lines[:split]] or [("    pass", line)]
        rebuilder.lines.append(("except BaseException as error:", line))
        rebuilder.lines.append(("    failure = error", line))
        state = list(self.stack[: handler.depth])
        slots = [slot for slot, _ in self.slots]
        resume = self.make_resume(0, [text is not None for text in state], slots, handler, True)
        values = [text for text in state if text is not None] + [text for _, text in self.slots] + ["failure"]
        rebuilder.lines.append(("if failure is not None:", line))
        rebuilder.lines.append((f"    return {self.tail}({names.add(resume, 'resume')}, ({', '.join(values)},))", line))
        rebuilder.lines += lines[split:]

    def _continue(self, offset: int, stack: list[str | None], native: bool = False) -> None:
        self.rebuilder.emit(self._goto(offset, stack, native))

    def _goto(self, offset: int, stack: list[str | None], native: bool = False) -> str:
        slots = [slot for slot, _ in self.slots]
        resume = self.make_resume(offset, [text is not None for text in stack], slots, None, native)
        values = [text for text in stack if text is not None] + [text for _, text in self.slots]
        state = "(" + "".join(text + ", " for text in values) + ")"
        return f"return {self.tail}({self.rebuilder.names.add(resume, 'resume')}, {state})"

    def text(self, position: int) -> str:
        """An operand, counted from the top of the stack: -1 is the top."""
        text = self.stack[position]
        if text is None:
            raise SkipFrame("a graph break at an empty operand")
        return text

    def push(self, instruction: Instruction, pops: int, *results: str | None) -> None:
        """Computes results in place of the topmost operands and goes on."""
        names: list[str | None] = []
        for result in results:
            if result is None:
                names.append(None)
                continue
            name = self.rebuilder.fresh_name()
            self.rebuilder.emit(f"{name} = {result}")
            names.append(name)
        rest = self.stack[: len(self.stack) - pops]
        self._continue(instruction.next_offset, [*rest, *names])

    def jump(
        self, condition: str, target: Instruction, follow: Instruction, pops_target: int, pops_follow: int
    ) -> None:
        """Goes one of two ways."""
        name = self.rebuilder.fresh_name()
        self.rebuilder.emit(f"{name} = {condition}")
        size = len(self.stack)
        self.rebuilder.emit(f"if {name}: {self._goto(target.offset, self.stack[: size - pops_target])}")
        self._continue(follow.offset, self.stack[: size - pops_follow])


PERFORM: dict[str, Callable[[BreakCode, Instruction, int], None]] = {}


def _performs(
    *names: str,
) -> Callable[[Callable[[BreakCode, Instruction, int], None]], Callable[[BreakCode, Instruction, int], None]]:
    def register(
        function: Callable[[BreakCode, Instruction, int], None],
    ) -> Callable[[BreakCode, Instruction, int], None]:
        for name in names:
            PERFORM[name] = function
        return function

    return register


@_performs("BINARY_OP")
def _binary(code: BreakCode, inst: Instruction, index: int) -> None:
    symbol = _BINARY[inst.arg]
    left, right = code.text(-2), code.text(-1)
    if symbol.endswith("=") and symbol not in ("==", "<=", ">=", "!="):
        name = code.rebuilder.fresh_name()
        code.rebuilder.emit(f"{name} = {left}")
        code.rebuilder.emit(f"{name} {symbol} {right}")
        code.push(inst, 2, name)
    else:
        code.push(inst, 2, f"{left} {symbol} {right}")


@_performs("COMPARE_OP")
def _compare(code: BreakCode, inst: Instruction, index: int) -> None:
    text = f"{code.text(-2)} {_comparison_of(inst)} {code.text(-1)}"
    code.push(inst, 2, f"bool({text})" if VERSION >= (3, 13) and inst.arg & 16 else text)


@_performs("CONTAINS_OP")
def _contains(code: BreakCode, inst: Instruction, index: int) -> None:
    code.push(inst, 2, f"{code.text(-2)} {'not in' if inst.arg else 'in'} {code.text(-1)}")


@_performs("UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE", "UNARY_NOT", "TO_BOOL", "GET_ITER")
def _unary(code: BreakCode, inst: Instruction, index: int) -> None:
    form = {
        "UNARY_NEGATIVE": "-{}", "UNARY_INVERT": "~{}", "UNARY_POSITIVE": "+{}", "UNARY_NOT": "not {}",
        "TO_BOOL": "bool({})", "GET_ITER": "iter({})",
    }[inst.name]  # fmt: skip
    code.push(inst, 1, form.format(code.text(-1)))


@_performs("BINARY_SUBSCR")
def _subscript(code: BreakCode, inst: Instruction, index: int) -> None:
    code.push(inst, 2, f"{code.text(-2)}[{code.text(-1)}]")


@_performs("BINARY_SLICE")
def _slice(code: BreakCode, inst: Instruction, index: int) -> None:
    code.push(inst, 3, f"{code.text(-3)}[{code.text(-2)}:{code.text(-1)}]")


@_performs("STORE_SUBSCR")
def _store_subscript(code: BreakCode, inst: Instruction, index: int) -> None:
    code.rebuilder.emit(f"{code.text(-2)}[{code.text(-1)}] = {code.text(-3)}")
    code.push(inst, 3)


@_performs("DELETE_SUBSCR")
def _delete_subscript(code: BreakCode, inst: Instruction, index: int) -> None:
    code.rebuilder.emit(f"del {code.text(-2)}[{code.text(-1)}]")
    code.push(inst, 2)


@_performs("LOAD_ATTR", "LOAD_METHOD")
def _load(code: BreakCode, inst: Instruction, index: int) -> None:
    text = f"{code.text(-1)}.{inst.value}"
    if inst.name == "LOAD_METHOD" or (VERSION == (3, 12) and inst.arg & 1):
        code.push(inst, 1, None, text)
    elif VERSION >= (3, 13) and inst.arg & 1:
        code.push(inst, 1, text, None)
    else:
        code.push(inst, 1, text)


@_performs("STORE_ATTR")
def _store(code: BreakCode, inst: Instruction, index: int) -> None:
    code.rebuilder.emit(f"{code.text(-1)}.{inst.value} = {code.text(-2)}")
    code.push(inst, 2)


@_performs("DELETE_ATTR")
def _delete(code: BreakCode, inst: Instruction, index: int) -> None:
    code.rebuilder.emit(f"del {code.text(-1)}.{inst.value}")
    code.push(inst, 1)


def _call_text(code: BreakCode, function: str, args: list[str], names: tuple[str, ...]) -> str:
    split = len(args) - len(names)
    parts = args[:split] + [f"{name}={text}" for name, text in zip(names, args[split:])]
    if code.nested:
        return f"{code.rebuilder.names.add(code.nested, 'nested')}({', '.join([function, *parts])})"
    return f"{function}({', '.join(parts)})"


@_performs("CALL")
def _call(code: BreakCode, inst: Instruction, index: int) -> None:
    count = inst.arg
    size = len(code.stack)
    args = [code.text(i - size) for i in range(size - count, size)]
    second, first = code.stack[size - count - 1], code.stack[size - count - 2]
    if VERSION >= (3, 13):
        function = first
        if second is not None:
            args.insert(0, second)
    elif first is None:
        function = second
    else:
        function = first
        args.insert(0, str(second))
    code.push(inst, count + 2, _call_text(code, str(function), args, code.frame.keywords))


@_performs("CALL_KW")
def _call_kw(code: BreakCode, inst: Instruction, index: int) -> None:
    names = code.frame.stack[-1]
    count = inst.arg
    size = len(code.stack) - 1
    args = [str(code.stack[i]) for i in range(size - count, size)]
    second, function = code.stack[size - count - 1], code.stack[size - count - 2]
    if second is not None:
        args.insert(0, second)
    code.push(inst, count + 3, _call_text(code, str(function), args, names))


@_performs("CALL_FUNCTION_EX")
def _call_ex(code: BreakCode, inst: Instruction, index: int) -> None:
    size = len(code.stack)
    extra = 1 if inst.arg & 1 else 0
    parts = [f"*{code.stack[size - 1 - extra]}"] + ([f"**{code.stack[size - 1]}"] if extra else [])
    function = str(code.stack[size - extra - (3 if VERSION >= (3, 13) else 2)])
    if code.nested:
        text = f"{code.rebuilder.names.add(code.nested, 'nested')}({', '.join([function, *parts])})"
    else:
        text = f"{function}({', '.join(parts)})"
    code.push(inst, 3 + extra, text)


@_performs("IMPORT_NAME")
def _import(code: BreakCode, inst: Instruction, index: int) -> None:
    names = code.rebuilder.names
    text = f"__import__({inst.value!r}, {names.add(code.frame.globals)}, None, {code.text(-1)}, {code.text(-2)})"
    code.push(inst, 2, text)


@_performs("FORMAT_VALUE")
def _format(code: BreakCode, inst: Instruction, index: int) -> None:
    spec = 1 if inst.arg & 4 else 0
    value = code.text(-1 - spec)
    conversion = {0: "{}", 1: "str({})", 2: "repr({})", 3: "ascii({})"}[inst.arg & 3].format(value)
    code.push(inst, 1 + spec, f"format({conversion}, {code.text(-1)})" if spec else f"format({conversion})")


@_performs("FORMAT_SIMPLE", "CONVERT_VALUE")
def _format_simple(code: BreakCode, inst: Instruction, index: int) -> None:
    form = "format({})" if inst.name == "FORMAT_SIMPLE" else {1: "str({})", 2: "repr({})", 3: "ascii({})"}[inst.arg]
    code.push(inst, 1, form.format(code.text(-1)))


@_performs("FORMAT_WITH_SPEC")
def _format_spec(code: BreakCode, inst: Instruction, index: int) -> None:
    code.push(inst, 2, f"format({code.text(-2)}, {code.text(-1)})")


@_performs("UNPACK_SEQUENCE")
def _unpack(code: BreakCode, inst: Instruction, index: int) -> None:
    names = [code.rebuilder.fresh_name() for _ in range(inst.arg)]
    code.rebuilder.emit(f"[{', '.join(names)}] = {code.text(-1)}")
    rest = code.stack[:-1]
    code._continue(inst.next_offset, [*rest, *reversed(names)])


@_performs("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE")
def _extend(code: BreakCode, inst: Instruction, index: int) -> None:
    method = "extend" if inst.name == "LIST_EXTEND" else "update"
    code.rebuilder.emit(f"{code.stack[len(code.stack) - 1 - inst.arg]}.{method}({code.text(-1)})")
    code.push(inst, 1)


@_performs("BEFORE_WITH")
def _before_with(code: BreakCode, inst: Instruction, index: int) -> None:
    leave = code.rebuilder.fresh_name()
    code.rebuilder.emit(f"{leave} = {code.text(-1)}.__exit__")
    code.push(inst, 1, leave, f"{code.text(-1)}.__enter__()")


@_performs(
    "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE",
)  # fmt: skip
def _pop_jump(code: BreakCode, inst: Instruction, index: int) -> None:
    instructions = code.decoded.instructions
    condition = code.text(-1) if inst.name.endswith("TRUE") else f"not {code.text(-1)}"
    code.jump(f"bool({condition})", instructions[inst.target], instructions[index + 1], 1, 1)


@_performs("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def _jump_or_pop(code: BreakCode, inst: Instruction, index: int) -> None:
    instructions = code.decoded.instructions
    condition = code.text(-1) if "TRUE" in inst.name else f"not {code.text(-1)}"
    code.jump(f"bool({condition})", instructions[inst.target], instructions[index + 1], 0, 1)


@_performs("FOR_ITER")
def _for_iter(code: BreakCode, inst: Instruction, index: int) -> None:
    instructions = code.decoded.instructions
    name = code.rebuilder.fresh_name()
    end = code.rebuilder.names.add(NULL, "end")
    code.rebuilder.emit(f"{name} = next({code.text(-1)}, {end})")
    after = instructions[inst.target + _AFTER_LOOP]
    code.rebuilder.emit(f"if {name} is {end}: {code._goto(after.offset, code.stack[:-1])}")
    code._continue(inst.next_offset, [*code.stack, name])
