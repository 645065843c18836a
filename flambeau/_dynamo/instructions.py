"""Instructions that move and compute: variables, the stack, operators, containers, text, attributes and calls."""

from __future__ import annotations

import builtins
import importlib.util
import operator
import sys
import types
from typing import Any

from flambeau._dynamo import attributes, breaks, calls, functions, mappings, operations
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.bytecode import VERSION, Instruction
from flambeau._dynamo.interpreter import Frame, _op
from flambeau._dynamo.sizes import SYMBOLIC, plain
from flambeau._dynamo.traced import NULL, Lazy, TracedNumber
from flambeau._dynamo.values import (
    _is_text_safe,
    advance,
    as_key,
    iterable,
    iterable_list,
    iterate,
    native,
    python_special,
    real_type,
)

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
    frame.locals[inst.arg] = frame.tracer.outside.make_fresh(cell)


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
    names = tracer.outside.namespace(frame.globals)
    new = frame.stack.pop() if inst.name == "STORE_GLOBAL" else NULL
    if new is NULL:
        frame.global_value(inst.value)
    tracer.outside.overlay(names).values[inst.value] = new


@_op("LOAD_DEREF")
def _load_deref(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.cell_value(frame.locals[inst.arg], inst.value))


@_op("STORE_DEREF")
def _store_deref(frame: Frame, inst: Instruction) -> None:
    cell = frame.locals[inst.arg]
    value = frame.stack.pop()
    if id(cell) in frame.tracer.outside.known:
        frame.tracer.outside.overlay(cell).values["cell_contents"] = value
    else:
        cell.cell_contents = value


@_op("DELETE_DEREF")
def _delete_deref(frame: Frame, inst: Instruction) -> None:
    cell = frame.locals[inst.arg]
    frame.cell_value(cell, inst.value)
    if id(cell) in frame.tracer.outside.known:
        frame.tracer.outside.overlay(cell).values["cell_contents"] = NULL
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

    return [symbol for _, symbol in opcode._nb_ops]


_BINARY = _binary_names()


@_op("BINARY_OP")
def _binary_op(frame: Frame, inst: Instruction) -> None:
    right = frame.stack.pop()
    left = frame.stack.pop()
    frame.stack.append(operations.binary(frame.tracer, _BINARY[inst.arg], left, right))


_UNARY = {
    "UNARY_NEGATIVE": (operator.neg, "__neg__"),
    "UNARY_POSITIVE": (operator.pos, "__pos__"),
    "UNARY_INVERT": (operator.invert, "__invert__"),
}


@_op("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def _unary_op(frame: Frame, inst: Instruction) -> None:
    function, name = _UNARY[inst.name]
    frame.stack.append(operations.unary(frame.tracer, function, name, frame.stack.pop()))


@_op("UNARY_NOT")
def _unary_not(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(not operations.truth(frame.tracer, frame.stack.pop()))


@_op("TO_BOOL")
def _to_bool(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(operations.truth(frame.tracer, frame.stack.pop()))


def _comparison_of(inst: Instruction) -> str:
    import opcode

    shift = 5 if VERSION >= (3, 13) else 4 if VERSION >= (3, 12) else 0
    return str(opcode.cmp_op[inst.arg >> shift])


@_op("COMPARE_OP")
def _compare_op(frame: Frame, inst: Instruction) -> None:
    right = frame.stack.pop()
    left = frame.stack.pop()
    result = operations.compare(frame.tracer, _comparison_of(inst), left, right)
    if VERSION >= (3, 13) and inst.arg & 16:
        result = operations.truth(frame.tracer, result)
    frame.stack.append(result)


@_op("IS_OP")
def _is_op(frame: Frame, inst: Instruction) -> None:
    right = frame.stack.pop()
    left = frame.stack.pop()
    frame.stack.append(operations.identical(frame.tracer, left, right) != bool(inst.arg))


@_op("CONTAINS_OP")
def _contains_op(frame: Frame, inst: Instruction) -> None:
    container = frame.stack.pop()
    item = frame.stack.pop()
    frame.stack.append(operations.contains(frame.tracer, item, container) != bool(inst.arg))


@_op("BINARY_SUBSCR")
def _binary_subscr(frame: Frame, inst: Instruction) -> None:
    key = frame.stack.pop()
    frame.stack.append(operations.subscript(frame.tracer, frame.stack.pop(), key))


@_op("STORE_SUBSCR")
def _store_subscr(frame: Frame, inst: Instruction) -> None:
    key = frame.stack.pop()
    container = frame.stack.pop()
    operations.store_subscript(frame.tracer, container, key, frame.stack.pop())


@_op("DELETE_SUBSCR")
def _delete_subscr(frame: Frame, inst: Instruction) -> None:
    key = frame.stack.pop()
    operations.store_subscript(frame.tracer, frame.stack.pop(), key, NULL)


@_op("BINARY_SLICE")
def _binary_slice(frame: Frame, inst: Instruction) -> None:
    stop = frame.stack.pop()
    start = frame.stack.pop()
    frame.stack.append(operations.subscript(frame.tracer, frame.stack.pop(), slice(start, stop)))


@_op("STORE_SLICE")
def _store_slice(frame: Frame, inst: Instruction) -> None:
    stop = frame.stack.pop()
    start = frame.stack.pop()
    container = frame.stack.pop()
    operations.store_subscript(frame.tracer, container, slice(start, stop), frame.stack.pop())


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


def _check_key(tracer: Any, key: Any) -> None:
    if type(key) in SYMBOLIC or type(key) is TracedNumber or (type(key) is tuple and key != plain(key)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "symbolic key")  # callers make keys plain first
    if tracer.outside.runs_python_as_key(key):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(key).__name__}")


@_op("BUILD_SET")
def _build_set(frame: Frame, inst: Instruction) -> None:
    items = [as_key(item) for item in _pop_many(frame, inst.arg)]
    for item in items:
        _check_key(frame.tracer, item)
    frame.stack.append(native(set, items))


@_op("BUILD_MAP")
def _build_map(frame: Frame, inst: Instruction) -> None:
    items = _pop_many(frame, 2 * inst.arg)
    mapping: dict[Any, Any] = {}
    for key, value in zip(map(as_key, items[::2]), items[1::2]):
        _check_key(frame.tracer, key)
        native(mapping.__setitem__, key, value)
    frame.stack.append(mapping)


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
    value = as_key(frame.stack.pop())
    _check_key(frame.tracer, value)
    native(frame.stack[-inst.arg].add, value)


@_op("MAP_ADD")
def _map_add(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop()
    key = as_key(frame.stack.pop())
    _check_key(frame.tracer, key)
    native(frame.stack[-inst.arg].__setitem__, key, value)


@_op("LIST_EXTEND")
def _list_extend(frame: Frame, inst: Instruction) -> None:
    values = frame.stack.pop()
    native(frame.stack[-inst.arg].extend, iterable(frame.tracer, values))


@_op("SET_UPDATE")
def _set_update(frame: Frame, inst: Instruction) -> None:
    values = frame.stack.pop()
    native(frame.stack[-inst.arg].update, [as_key(v) for v in iterable_list(frame.tracer, values)])


@_op("DICT_UPDATE", "DICT_MERGE")
def _dict_update(frame: Frame, inst: Instruction) -> None:
    values = frame.stack.pop()
    target = frame.stack[-inst.arg]
    if not isinstance(values, dict):
        shown = mappings.from_keys(frame.tracer, values)
        values = values if shown is None else shown
    cls = type(values)
    # Of classes that iterate as dict does, the language reads the items directly.
    special = cls is not dict and cls.__iter__ is not dict.__iter__ and python_special(cls, "keys", "__getitem__")
    if not isinstance(values, dict) or special:
        raise Unsupported(breaks.UNKNOWN_OPERATION, "** of an object that is not a dict")
    if id(values) in frame.tracer.outside.known:
        values = mappings.contents(frame.tracer, values)
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
        iterator = iterate(frame.tracer, value)
    except UserError as error:
        if isinstance(error.exception, TypeError) and "is not iterable" in str(error.exception):
            name = real_type(value).__name__
            raise UserError(TypeError(f"cannot unpack non-iterable {name} object")) from None
        raise
    items: list[Any] = []
    while limit < 0 or len(items) <= limit:
        try:
            items.append(advance(frame.tracer, iterator))
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

_CONVERSIONS: dict[int, Any] = {1: str, 2: repr, 3: ascii}


@_op("FORMAT_VALUE")
def _format_value(frame: Frame, inst: Instruction) -> None:
    spec = frame.stack.pop() if inst.arg & 4 else ""
    value = frame.stack.pop()
    conversion = inst.arg & 3
    if conversion:
        value = _convert(frame, value, conversion)
    frame.stack.append(functions._format(frame.tracer, value, spec))


def _convert(frame: Frame, value: Any, conversion: int) -> Any:
    if conversion == 3:
        return native(ascii, value) if _is_text_safe(value) else breaks.unsupported(breaks.PRINT, "ascii")
    return operations.to_text(frame.tracer, value, _CONVERSIONS[conversion])


@_op("CONVERT_VALUE")
def _convert_value(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(_convert(frame, frame.stack.pop(), inst.arg))


@_op("FORMAT_SIMPLE")
def _format_simple(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(functions._format(frame.tracer, frame.stack.pop()))


@_op("FORMAT_WITH_SPEC")
def _format_with_spec(frame: Frame, inst: Instruction) -> None:
    spec = frame.stack.pop()
    frame.stack.append(functions._format(frame.tracer, frame.stack.pop(), spec))


# ---------------------------------------------------------------------------------------------- attributes


@_op("LOAD_ATTR")
def _load_attr(frame: Frame, inst: Instruction) -> None:
    value = attributes.load(frame.tracer, frame.stack.pop(), inst.value)
    _push_attribute(frame, value, to_call=VERSION >= (3, 12) and bool(inst.arg & 1))


def _push_attribute(frame: Frame, value: Any, to_call: bool) -> None:
    """A value that was read; one to be called has NULL above it from 3.13 on, below it before."""
    if not to_call:
        frame.stack.append(value)
    elif VERSION >= (3, 13):
        frame.stack += [value, NULL]
    else:
        frame.stack += [NULL, value]


@_op("LOAD_METHOD")
def _load_method(frame: Frame, inst: Instruction) -> None:
    _push_attribute(frame, attributes.load(frame.tracer, frame.stack.pop(), inst.value), to_call=True)


@_op("LOAD_SUPER_ATTR")
def _load_super_attr(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    cls = frame.stack.pop()
    function = frame.stack.pop()
    if function is not super:
        raise Unsupported(breaks.OPCODE, "another super")
    value = attributes.load(frame.tracer, native(super, cls, owner), inst.value)
    _push_attribute(frame, value, to_call=bool(inst.arg & 1))


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
    if type(args) is not tuple:
        args = tuple(iterable_list(frame.tracer, args))
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
    frame.stack.append(frame.tracer.outside.make_fresh(function))


def _annotations(value: Any) -> dict[str, Any]:
    return dict(zip(value[::2], value[1::2])) if isinstance(value, tuple) else value


@_op("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(frame: Frame, inst: Instruction) -> None:
    function = frame.stack.pop()
    value = frame.stack.pop()
    if inst.arg == 8:
        changed_function = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, value
        )
        changed_function.__qualname__ = function.__qualname__
        changed_function.__kwdefaults__ = function.__kwdefaults__
        changed_function.__annotations__ = function.__annotations__
        function = frame.tracer.outside.make_fresh(changed_function)
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


@_op("LOAD_BUILD_CLASS")
def _load_build_class(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(builtins.__build_class__)


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
        aliased = full.startswith("torch.") and sys.modules.get("torch") is sys.modules["flambeau"]
        if not full.startswith("flambeau") and not aliased:
            raise Unsupported(breaks.IMPORT, full)
        native(importlib.import_module, full)
    for part in names or ():
        if part == "*":
            raise Unsupported(breaks.IMPORT, full)
    module = sys.modules[full] if names else sys.modules[full.partition(".")[0]]
    if id(module) not in frame.tracer.outside.known:
        frame.tracer.outside.register(module, frame.tracer.outside.sources.constant(module))
    frame.stack.append(module)


def _is_submodule(module: Any, name: str) -> bool:
    """Whether the name is that of a module of the package, which is imported then."""
    full = f"{module.__name__}.{name}"
    is_new = full not in sys.modules and full.startswith("flambeau.") and hasattr(module, "__path__")
    if is_new and native(importlib.util.find_spec, full) is not None:
        native(importlib.import_module, full)
    return full in sys.modules


@_op("IMPORT_FROM")
def _import_from(frame: Frame, inst: Instruction) -> None:
    module = frame.stack[-1]
    if inst.value not in module.__dict__ and _is_submodule(module, inst.value):
        value = sys.modules[f"{module.__name__}.{inst.value}"]
        frame.tracer.outside.register(value, frame.tracer.outside.sources.constant(value))
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
        frame.stack.append(operations.unary(frame.tracer, operator.pos, "__pos__", frame.stack.pop()))
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
