"""Classes that are defined while capturing.

The body of a class runs natively, once, if all it does is to define: names it reads are guarded, and what it calls is known
to be free of effects. The class belongs to this capture, its methods are interpreted like functions that were made during it.
Where such a class, or an instance, leaves the function it is embedded, unless it holds values of the graph.
"""

from __future__ import annotations

import abc
import builtins
import collections
import contextlib
import dataclasses
import dis
import enum
import functools
import types
import typing
from typing import Any

from flambeau._dynamo import breaks
from flambeau._dynamo.breaks import Unsupported
from flambeau._dynamo.kinds import LITERALS, is_namedtuple, lookup_type
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import Lazy
from flambeau._dynamo.values import is_plain, native

_METACLASSES = (type, abc.ABCMeta, enum.EnumMeta)
_SOURCES = frozenset("builtins functools dataclasses enum abc typing collections collections.abc".split())
_FORBIDDEN = frozenset(
    "STORE_GLOBAL DELETE_GLOBAL IMPORT_NAME LOAD_BUILD_CLASS DELETE_NAME SETUP_WITH BEFORE_WITH YIELD_VALUE STORE_ATTR "
    "STORE_SUBSCR STORE_DEREF FOR_ITER".split()
)
_MEMBERS = (staticmethod, classmethod)


def build_class(tracer: Tracer, body: Any, name: Any, *bases: Any, **keywords: Any) -> Any:
    """A class statement."""
    if keywords or not isinstance(body, types.FunctionType) or id(body) in tracer.outside.known:
        raise Unsupported(breaks.CLASS, str(name))
    for base in bases:
        _check_base(base)
    _check_body(tracer, body)
    cls = native(builtins.__build_class__, body, name, *bases)
    return _adopt(tracer, cls)


def make_type(tracer: Tracer, name: Any, bases: Any, members: Any) -> Any:
    """type(name, bases, members)"""
    if type(members) is not dict or id(members) in tracer.outside.shadows or type(bases) is not tuple:
        raise Unsupported(breaks.CLASS, str(name))
    for base in bases:
        _check_base(base)
    return _adopt(tracer, native(type, name, bases, members))


def make_dataclass(tracer: Tracer, cls: Any = None, /, **options: Any) -> Any:
    """The decorator dataclass, of a class made during capture."""
    if not is_plain(options):
        raise Unsupported(breaks.CLASS, "dataclass")
    if cls is None:
        return functools.partial(dataclasses.dataclass, **options)
    if not isinstance(cls, type) or id(cls) not in tracer.outside.fresh:
        raise Unsupported(breaks.CLASS, f"dataclass of {getattr(cls, '__name__', cls)}")
    return _adopt(tracer, native(dataclasses.dataclass(**options), cls))


def make_namedtuple(tracer: Tracer, name: Any, fields: Any, **options: Any) -> Any:
    if not is_plain((name, fields)) or not is_plain(options):
        raise Unsupported(breaks.CLASS, "namedtuple")
    frame = tracer.frame
    options.setdefault("module", frame.globals.get("__name__", "__main__"))
    return native(collections.namedtuple, name, fields, **options)


def _check_base(base: Any) -> None:
    if base in (typing.NamedTuple, typing.Generic, typing.Protocol):
        return
    if not isinstance(base, type) or type(base) not in _METACLASSES:
        raise Unsupported(breaks.CLASS, f"a class derived from {getattr(base, '__name__', base)}")
    told = isinstance(lookup_type(base, "__init_subclass__"), (classmethod, types.FunctionType))
    if told and base.__module__ not in _SOURCES:
        raise Unsupported(breaks.CLASS, f"a class derived from {base.__name__}")


def _check_body(tracer: Tracer, body: Any) -> None:
    """Sees to it that running the body natively has no effects, and guards what it reads."""
    defined = {"__annotations__"}
    if any(type(c) is types.CodeType and c.co_name.endswith(("comp>", "<genexpr>")) for c in body.__code__.co_consts):
        raise Unsupported(breaks.CLASS, f"{body.__name__}, whose body has a comprehension")
    instructions = list(dis.get_instructions(body.__code__))
    acts = any(i.opname.startswith(("CALL", "LOAD_ATTR", "LOAD_METHOD", "BINARY")) for i in instructions)
    for index, instruction in enumerate(instructions):
        if instruction.opname == "STORE_SUBSCR" and instructions[index - 2].argval == "__annotations__":
            continue
        if instruction.opname in _FORBIDDEN:
            raise Unsupported(breaks.CLASS, f"{body.__name__}, whose body does more than define")
        if instruction.opname == "STORE_NAME":
            defined.add(instruction.argval)
        elif instruction.opname in ("LOAD_NAME", "LOAD_GLOBAL") and instruction.argval not in defined:
            name = instruction.argval
            value = tracer.frame.global_value(name)
            outer = body.__globals__.get(name, getattr(builtins, name, None))
            if value is not outer or not (_is_known(value) or (isinstance(value, type) and not acts)):
                raise Unsupported(breaks.CLASS, f"{body.__name__}, whose body uses {name}")
    for cell in body.__closure__ or ():
        try:
            if type(cell.cell_contents) is Lazy:
                cell.cell_contents = tracer.outside.realize(cell.cell_contents)
        except ValueError:
            continue


def _is_known(value: Any) -> bool:
    if type(value) in LITERALS:
        return True
    if isinstance(value, types.ModuleType):
        return value.__name__ in _SOURCES
    if type(value) is types.BuiltinFunctionType:
        return value in (len, min, max, sum, sorted, isinstance)
    return getattr(value, "__module__", None) in _SOURCES  # types, decorators, annotations


def _functions(cls: type) -> list[Any]:
    functions: list[Any] = []
    for member in vars(cls).values():
        if isinstance(member, property):
            functions += [f for f in (member.fget, member.fset, member.fdel) if f is not None]
        else:
            functions.append(member.__func__ if isinstance(member, _MEMBERS) else member)
    return [f for f in functions if isinstance(f, types.FunctionType)]


def _adopt(tracer: Tracer, cls: Any) -> Any:
    """Makes a class one of this capture: nothing in it is guarded."""
    tracer.outside.make_fresh(cls)
    for function in _functions(cls):
        tracer.outside.make_fresh(function)
        for cell in function.__closure__ or ():
            tracer.outside.make_fresh(cell)
    return cls


def embeddable(tracer: Tracer, cls: type) -> bool:
    """Whether a class may be part of an artifact: it is from outside, or holds nothing of the capture."""
    if id(cls) not in tracer.outside.fresh:
        return True
    if issubclass(cls, enum.Enum):
        members = [member.value for member in cls]
    else:
        special = "_" if is_namedtuple(cls) else "__"
        members = [member for name, member in vars(cls).items() if not name.startswith(special)]
    for function in _functions(cls):
        members += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                members.append(cell.cell_contents)
    return all(_is_fixed(member) for member in members) and all(embeddable(tracer, base) for base in cls.__bases__)


def _is_fixed(value: Any) -> bool:
    """Whether a value never changes, and is the same in plain Python."""
    if type(value) is tuple:
        return all(_is_fixed(item) for item in value)
    kinds = (type, types.FunctionType, types.BuiltinFunctionType, types.MemberDescriptorType, property, *_MEMBERS)
    return type(value) in LITERALS or isinstance(value, kinds) or getattr(type(value), "__module__", None) in _FIXED


_FIXED = frozenset(["dataclasses", "functools", "typing"])
