"""Classes in scripts: `jit.script` on a class, interfaces, and the context managers that scripts know."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.annotations import qualified_name
from flambeau.jit._frontend.callables import EXPORT, IGNORE, UNUSED, modifier, unique_name
from flambeau.jit._functions import Function
from flambeau.jit._schemas import Argument, Signature

_classes: dict[type, T.ClassType] = {}


def compiled_class(cls: type) -> T.ClassType | None:
    return _classes.get(cls)


def script_class(cls: type) -> T.ClassType:
    """The type of a Python class, compiled when it is first seen."""
    known = _classes.get(cls)
    if known is not None:
        return known
    own_scripted = getattr(cls, "_script_class_type", None)
    if isinstance(own_scripted, T.ClassType):
        return own_scripted
    if cls.__module__ in ("builtins", "typing", "types") or not _has_source(cls):
        raise TypeError(f"Unknown type annotation: '{cls.__name__}'")
    if issubclass(cls, BaseException):
        raise TypeError(f"Exception class {cls.__name__} is not a type of TorchScript")
    special = _context_manager(cls)
    if special is not None:
        _classes[cls] = special
        return special
    bases = [b for b in cls.__mro__[1:] if b is not object]
    if bases:
        raise RuntimeError(
            f"[jit.script] expected a class that does not inherit, got {cls.__name__} with the base {bases[0].__name__}: TorchScript classes do not support inheritance yet"
        )
    kind = T.ClassType(unique_name(qualified_name(cls)))
    kind.python = cls
    _classes[cls] = kind
    try:
        _fill(kind, cls)
    except Exception:
        _classes.pop(cls, None)
        raise
    return kind


def _has_source(cls: type) -> bool:
    try:
        inspect.getsource(cls)
    except (OSError, TypeError):
        return False
    return True


def _fill(kind: T.ClassType, cls: type) -> None:

    members = dict(vars(cls))
    if "__dataclass_fields__" in members:
        members.update(_dataclass_methods(cls, members))
    for name, member in members.items():
        if isinstance(member, staticmethod):
            from flambeau.jit._frontend.callables import compile_function

            kind.static_methods[name] = compile_function(member.__func__)
        elif isinstance(member, property) and member.fget is not None:
            _add_property(kind, cls, name, member)
        elif "__dataclass_fields__" in members and name.startswith("__") and not _readable(member):
            continue
        elif isinstance(member, types.FunctionType) and modifier(member) not in (IGNORE, UNUSED):
            kind.methods[name] = _method(kind, cls, name, member)
    constructor = kind.methods.get("__init__")
    for name, annotation in members.get("__annotations__", {}).items():
        from flambeau.jit._frontend.annotations import type_of

        if not isinstance(annotation, str):
            try:
                kind.attributes.setdefault(name, type_of(annotation))
            except TypeError:
                continue
    if constructor is not None:
        constructor.prepare = lambda emitter: _declare_attributes(emitter, kind)
        constructor.ensure()
    for method in list(kind.methods.values()):
        method.ensure()


def _readable(member: Any) -> bool:
    """Whether the source of a function can be found."""
    try:
        inspect.getsource(member)
    except (OSError, TypeError):
        return False
    return True


def _declare_attributes(emitter: Any, kind: T.ClassType) -> None:
    emitter.in_constructor, emitter.declaring = True, kind
    emitter.result_type = T.NONE


def _resolver_extra(cls: type) -> Any:
    def extra(name: str) -> Any:
        return cls if name == cls.__name__ else None

    return extra


def _method(kind: T.ClassType, cls: type, name: str, member: Any) -> Function:
    from flambeau.jit._frontend.callables import declared_signature
    from flambeau.jit._frontend.source import read_function

    def declare() -> Any:
        declaration = read_function(member, kind, _resolver_extra(cls))
        if declaration.result is not None:
            method.schema = declared_signature(declaration)
        return declaration

    method = Function(f"{kind.name}.{name}", declare, member)
    return method


def _add_property(kind: T.ClassType, cls: type, name: str, member: property) -> None:
    if modifier(member.fget) in (IGNORE, UNUSED) or name in getattr(cls, "__jit_unused_properties__", ()):
        return
    getter = _method(kind, cls, f"__{name}_getter", member.fget)
    kind.methods[f"__{name}_getter"] = getter
    setter = None
    if member.fset is not None:
        setter = kind.methods[f"__{name}_setter"] = _method(kind, cls, f"__{name}_setter", member.fset)
    kind.properties[name] = (getter, setter)


def _dataclass_methods(cls: type, members: dict[str, Any]) -> dict[str, Any]:
    """Methods that `dataclass` made without source, written out."""
    import dataclasses
    import linecache

    fields = dataclasses.fields(cls)
    names = {f"_type_{f.name}": _field_type(cls, f) for f in fields}
    names |= {f"_default_{f.name}": f.default for f in fields if f.default is not dataclasses.MISSING}
    heads, body = [], []
    for field in fields:
        head = f"{field.name}: _type_{field.name}"
        if field.default is not dataclasses.MISSING:
            head += f" = _default_{field.name}"
        heads.append(head)
        body.append(f"    self.{field.name} = {field.name}")
    if "__post_init__" in members:
        body.append("    self.__post_init__()")
    texts = {"__init__": f"def __init__(self, {', '.join(heads)}) -> None:\n" + "\n".join(body or ["    pass"]) + "\n"}
    compared = [f for f in fields if f.compare]
    head = f"(self, other: {cls.__name__}) -> bool:\n"
    if cls.__dataclass_params__.eq:
        texts["__eq__"] = (
            f"def __eq__{head}"
            + "".join(_unequal_field(f.name, _is_optional(cls, f)) for f in compared)
            + "    return True\n"
        )
    if cls.__dataclass_params__.order:
        for method, op in (("__lt__", "<"), ("__le__", "<="), ("__gt__", ">"), ("__ge__", ">=")):
            fields_in_order = "".join(_ordered_field(f.name, _is_optional(cls, f), op[0]) for f in compared)
            texts[method] = f"def {method}{head}{fields_in_order}    return {op.endswith('=')}\n"
    methods: dict[str, Any] = {}
    for name, text in texts.items():
        file = f"<dataclass {cls.__qualname__}.{name} {id(cls)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope: dict[str, Any] = {**names, cls.__name__: cls}
        exec(compile(text, file, "exec"), scope)
        methods[name] = scope[name]
    return methods


def _field_type(cls: type, field: Any) -> Any:
    """The type of a field, looked up when it is written as text."""
    if not isinstance(field.type, str):
        return field.type
    try:
        return typing.get_type_hints(cls)[field.name]
    except NameError:  # of a place that the class does not know
        return field.type


def _is_optional(cls: type, field: Any) -> bool:
    return type(None) in typing.get_args(_field_type(cls, field))


def _unequal_field(name: str, optional: bool) -> str:
    """Ends `__eq__` where a field differs."""
    text = f"    mine_{name} = self.{name}\n    its_{name} = other.{name}\n"
    if not optional:
        return f"{text}    if not (mine_{name} == its_{name}):\n        return False\n"
    return (
        f"{text}    if mine_{name} is None or its_{name} is None:\n"
        f"        if mine_{name} is not None or its_{name} is not None:\n            return False\n"
        f"    elif not (mine_{name} == its_{name}):\n        return False\n"
    )


def _ordered_field(name: str, optional: bool, op: str) -> str:
    """Ends a comparison where a field decides it: both are in order, or differ."""
    text = f"    mine_{name} = self.{name}\n    its_{name} = other.{name}\n"
    decide = f"if mine_{name} {op} its_{name}:\n{{0}}    return True\n{{0}}if not (mine_{name} == its_{name}):\n{{0}}    return False\n"
    if not optional:
        return text + "    " + decide.format("    ")
    return (
        f"{text}    if mine_{name} is None or its_{name} is None:\n        raise TypeError(\"'{name}' is None, which has no order\")\n"
        "    else:\n        " + decide.format("        ")
    )


# ---------------------------------------------------------------------------------------------- context managers


def _context_manager(cls: type) -> T.ClassType | None:
    """`torch.no_grad()` and the like as classes whose methods are Python's."""
    import flambeau

    modules: dict[type, str] = {
        flambeau.no_grad: "torch.autograd.grad_mode",
        flambeau.enable_grad: "torch.autograd.grad_mode",
        flambeau.inference_mode: "torch.autograd.grad_mode",
        flambeau.set_grad_enabled: "torch.autograd.grad_mode",
        flambeau.autograd.profiler.record_function: "torch.autograd.profiler",
        flambeau.jit.strict_fusion: "torch.jit",
        flambeau.autocast: "torch.amp.autocast_mode",
    }
    if cls.__name__ == "autocast" and cls in (flambeau.cpu.amp.autocast, flambeau.cuda.amp.autocast):
        device = "cpu" if cls is flambeau.cpu.amp.autocast else "cuda"
        return grad_mode_class(f"__torch__.torch.{device}.amp.autocast_mode.autocast", f"{device}_autocast")
    module = modules.get(cls)
    return None if module is None else grad_mode_class(f"__torch__.{module}.{cls.__name__}", cls.__name__)


def grad_mode_class(full: str, name: str) -> T.ClassType:
    from flambeau.jit._library import library_class

    kind = library_class(name)
    kind.name = full
    return kind


# ---------------------------------------------------------------------------------------------- interfaces


def make_interface(cls: type) -> T.InterfaceType:
    """The type of a class that `jit.interface` decorates: its methods' signatures."""
    from flambeau.jit._frontend.source import read_function
    from flambeau.nn import Module

    kind = T.InterfaceType(unique_name(qualified_name(cls)), issubclass(cls, Module))
    for name, member in vars(cls).items():
        if not isinstance(member, types.FunctionType):
            continue
        declaration = read_function(member, kind)
        arguments = [Argument(p.name, p.kind or T.TENSOR) for p in declaration.parameters]
        kind.methods[name] = Signature(name, "", arguments, [Argument("", declaration.result or T.TENSOR)])
    return kind


def source_of(cls: type) -> ast.ClassDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))


__all__ = ["EXPORT", "compiled_class", "grad_mode_class", "make_interface", "script_class"]
