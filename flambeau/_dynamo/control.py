"""Instructions that decide where to go: jumps, loops, generators, exceptions, context managers and match."""

from __future__ import annotations

import collections
import enum
import types
from typing import Any

from flambeau._dynamo import attributes, breaks, calls, functions, operations, scalars
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.bytecode import VERSION, Instruction
from flambeau._dynamo.interpreter import _RETURN, _YIELD, Frame, _op
from flambeau._dynamo.kinds import MISSING
from flambeau._dynamo.sizes import SymBool
from flambeau._dynamo.traced import NULL, TracedTensor
from flambeau._dynamo.values import advance, iterate, native

# ---------------------------------------------------------------------------------------------- jumps


@_op("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
def _jump(frame: Frame, inst: Instruction) -> None:
    frame.pc = inst.target


@_op("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def _pop_jump_if_true(frame: Frame, inst: Instruction) -> None:
    condition = frame.stack.pop()
    if _is_asserted(frame, condition) or operations.truth(frame.tracer, condition):
        frame.pc = inst.target


def _is_asserted(frame: Frame, condition: Any) -> bool:
    """Leaves an assert statement about data to the graph, where all is to be one graph and the message is a text."""
    following = frame.decoded.instructions[frame.pc :][:2]
    if len(following) < 2 or following[0].name != "LOAD_ASSERTION_ERROR":
        return False
    message = following[1].value if following[1].name == "LOAD_CONST" else "assertion error"
    if not isinstance(message, str) or following[1].name not in ("LOAD_CONST", "RAISE_VARARGS"):
        return False
    if type(condition) is TracedTensor and condition.fake.numel() == 1 and scalars.can_read(condition, "item"):
        condition = scalars.read_truth(frame.tracer, condition)
    if type(condition) is not SymBool or condition.hint is not None:
        return False
    return frame.tracer.builder.sizes.assert_in_graph(condition, message)


@_op("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def _pop_jump_if_false(frame: Frame, inst: Instruction) -> None:
    if not operations.truth(frame.tracer, frame.stack.pop()):
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
    if operations.truth(frame.tracer, frame.stack[-1]):
        frame.pc = inst.target
    else:
        frame.stack.pop()


@_op("JUMP_IF_FALSE_OR_POP")
def _jump_if_false_or_pop(frame: Frame, inst: Instruction) -> None:
    if not operations.truth(frame.tracer, frame.stack[-1]):
        frame.pc = inst.target
    else:
        frame.stack.pop()


@_op("GET_ITER")
def _get_iter(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(iterate(frame.tracer, frame.stack.pop()))


# From 3.12 on, the target is END_FOR (then POP_TOP), which an exhausted loop skips.
_AFTER_LOOP = 2 if VERSION >= (3, 13) else 1 if VERSION >= (3, 12) else 0


@_op("FOR_ITER")
def _for_iter(frame: Frame, inst: Instruction) -> None:
    try:
        value = advance(frame.tracer, frame.stack[-1])
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
    frame.stack.append(iterate(frame.tracer, frame.stack.pop()))


@_op("SEND")
def _send(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop()
    receiver = frame.stack[-1]
    try:
        if value is None:
            result = advance(frame.tracer, receiver)
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
    if id(error) in tracer.outside.known:
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
    hooks = [attributes.lookup_type(cls, name) for name in ("__enter__", "__exit__")]
    for name, method in zip(("__enter__", "__exit__"), hooks):
        if method is NULL:
            raise UserError(TypeError(f"'{cls.__name__}' object does not support the context manager protocol"))
        if not isinstance(method, types.FunctionType):
            raise Unsupported(breaks.CONTEXT, cls.__name__)
        tracer.outside.guard_type_attribute(cls, name)
        tracer.outside.register(method, tracer.outside.sources.constant(method))
    frame.stack.append(types.MethodType(hooks[1], manager))
    frame.stack.append(calls.call(tracer, types.MethodType(hooks[0], manager), (), {}))


@_op("WITH_EXCEPT_START")
def _with_except_start(frame: Frame, inst: Instruction) -> None:
    error = frame.stack[-1]
    leave = frame.stack[-4]
    frame.stack.append(calls.call(frame.tracer, leave, (type(error), error, None), {}))


# ---------------------------------------------------------------------------------------------- match


@_op("GET_LEN")
def _get_len(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(functions._len(frame.tracer, frame.stack[-1]))


@_op("MATCH_SEQUENCE")
def _match_sequence(frame: Frame, inst: Instruction) -> None:
    value = frame.stack[-1]
    frame.stack.append(isinstance(value, (list, tuple, collections.deque, range)) and not isinstance(value, str))


@_op("MATCH_MAPPING")
def _match_mapping(frame: Frame, inst: Instruction) -> None:
    value = frame.stack[-1]
    unknown = id(value) in frame.tracer.outside.known and not isinstance(value, (enum.Enum, type))
    if unknown and hasattr(type(value), "__getitem__"):
        raise Unsupported(breaks.OPCODE, "match of an unknown mapping")
    frame.stack.append(isinstance(value, dict))


@_op("MATCH_KEYS")
def _match_keys(frame: Frame, inst: Instruction) -> None:
    keys = frame.stack[-1]
    subject = frame.stack[-2]
    if not isinstance(subject, dict):
        raise Unsupported(breaks.OPCODE, "match of an unknown mapping")
    has_all = all(native(dict.__contains__, subject, key) for key in keys)
    frame.stack.append(tuple(subject[key] for key in keys) if has_all else None)


@_op("MATCH_CLASS")
def _match_class(frame: Frame, inst: Instruction) -> None:
    names = frame.stack.pop()
    cls = frame.stack.pop()
    subject = frame.stack.pop()
    tracer = frame.tracer
    if not functions._isinstance(tracer, subject, cls):
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
